package e2e_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// libraries are the packages for other programs.
var libraries = []string{"bridge", "bridge/exportapi", "bridge/exportapi/exportsim", "bridge/control", "bridge/kafkasink", "bridge/ops", "bridge/ops/metrics", "bridge/ops/tracing", "cursorstore"}

// TestDocumented counts the names that a library shows. A field is documented
// by a comment of its own, the description of its setting, or one above that
// names it. What fulfils an interface of the standard library needs none.
func TestDocumented(t *testing.T) {
	t.Parallel()
	const goal = 0.95
	total := 0
	var bare []string
	for _, dir := range libraries {
		p := parsePackage(t, "../../../"+dir)
		count := func(name, text string) {
			total++
			if strings.TrimSpace(text) == "" {
				bare = append(bare, dir+"."+name)
			}
		}
		values := func(all []*doc.Value) {
			for _, v := range all {
				for _, spec := range v.Decl.Specs {
					spec := spec.(*ast.ValueSpec)
					for _, name := range spec.Names {
						if name.IsExported() {
							count(name.Name, v.Doc+spec.Doc.Text()+spec.Comment.Text())
						}
					}
				}
			}
		}
		functions := func(all []*doc.Func, of string) {
			for _, f := range all {
				if of == "" || !slices.Contains([]string{"Error", "Unwrap", "String"}, f.Name) {
					count(of+f.Name, f.Doc)
				}
			}
		}
		values(p.Consts)
		values(p.Vars)
		functions(p.Funcs, "")
		for _, typ := range p.Types {
			count(typ.Name, typ.Doc)
			values(typ.Consts)
			values(typ.Vars)
			functions(typ.Funcs, "")
			functions(typ.Methods, typ.Name+".")
			if of, ok := typ.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType); ok {
				fields(of, func(name, text string) { count(typ.Name+"."+name, text) })
			}
		}
	}
	if share := 1 - float64(len(bare))/float64(total); total < 500 || share < goal {
		t.Errorf("%.1f%% of %d names are documented, want %.0f%%; not:\n%s", 100*share, total, 100*goal, strings.Join(bare, "\n"))
	}
}

func parsePackage(t *testing.T, dir string) *doc.Package {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(set, files, dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fields gives every field that is shown to count.
func fields(of *ast.StructType, count func(name, text string)) {
	var above []string
	for _, f := range of.Fields.List {
		if text := f.Doc.Text(); text != "" {
			above = strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		}
		text := f.Doc.Text() + f.Comment.Text()
		if f.Tag != nil && strings.Contains(f.Tag.Value, `desc:"`) {
			text += f.Tag.Value
		}
		for _, name := range f.Names {
			if !name.IsExported() {
				continue
			}
			if text == "" && slices.Contains(above, name.Name) {
				count(name.Name, strings.Join(above, " "))
				continue
			}
			count(name.Name, text)
		}
	}
}
