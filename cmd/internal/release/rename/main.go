// Command rename gives the module another path: in go.mod, imports, documents, the profile
// and the name of the image.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

func main() {
	root := flag.String("root", "../../..", "folder of the sources")
	to := flag.String("module", "", "path of the module, such as example.org/team/exportbridge")
	image := flag.String("image", "", "name of the image, without a tag; by default that of the module in lower case")
	flag.Parse()
	if err := rename(*root, *to, *image); err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
}

// rename changes all files below root, except in folders that git ignores.
func rename(root, to, image string) error {
	if err := module.CheckPath(to); err != nil {
		return fmt.Errorf("MODULE: %w; choose a path such as example.org/team/exportbridge", err)
	}
	if image == "" {
		image = strings.ToLower(to)
	}
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	from := modfile.ModulePath(text)
	if from == "" {
		return errors.New("go.mod names no module")
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	change := changes(from, to, image, makefile)
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", ".profiles", "dist"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		if entry.Name() == "default.pgo" {
			return reprofile(path, from, to)
		}
		old, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(old, 0) >= 0 {
			return err
		}
		renamed := change(old)
		if bytes.Equal(old, renamed) {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(path, renamed, info.Mode())
	})
}

// paths returns an expression for the module's path: alone in files of modules and linters,
// elsewhere before the name of a package.
func paths(from string) *regexp.Regexp {
	from = regexp.QuoteMeta(from)
	return regexp.MustCompile(`(?m)(^|[^\w./-])` + from + `(/(?:bridge|cmd|cursorstore)\b| v0\.0\.0\b| =>)` +
		`|\b((?:module|pkg:) )` + from + `$`)
}

// imageVariable is the line of the Makefile that names the image.
var imageVariable = regexp.MustCompile(`(?m)^(IMAGE +\?= )(.*)$`)

// changes returns a function that changes a text. The Makefile has the old name of the image. It
// is not replaced if it is exportbridge without a registry, which has other meanings too.
func changes(from, to, image string, makefile []byte) func([]byte) []byte {
	path := paths(from)
	clone := regexp.MustCompile("Go cannot download the module path `" + regexp.QuoteMeta(from) +
		"`;\nuse a local clone:\n\n```sh\ngo mod edit -replace .*\n")
	names := regexp.MustCompile(`registry\.example\.com/exportbridge\b`)
	if m := imageVariable.FindSubmatch(makefile); m != nil && bytes.Contains(m[2], []byte("/")) {
		names = regexp.MustCompile(`\b` + regexp.QuoteMeta(string(m[2])) + `\b`)
	}
	return func(text []byte) []byte {
		text = clone.ReplaceAllLiteral(text, []byte("Add it to your module:\n\n```sh\n"))
		text = path.ReplaceAll(text, []byte("${1}${3}"+to+"${2}"))
		text = names.ReplaceAllLiteral(text, []byte(image))
		return imageVariable.ReplaceAll(text, []byte("${1}"+image))
	}
}

// reprofile renames the functions of a profile, because the compiler finds them by their names.
func reprofile(path, from, to string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	p, err := profile.Parse(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, f := range p.Function {
		f.Name = strings.ReplaceAll(f.Name, from+"/", to+"/")
		f.SystemName = strings.ReplaceAll(f.SystemName, from+"/", to+"/")
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
