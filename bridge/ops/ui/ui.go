// Package ui is the operations page: static files that call only the API of their own
// server.
package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed static
var embedded embed.FS

// file is one of the page's files.
type file struct {
	content []byte
	kind    string // Content-Type
	tag     string // ETag
}

// Handler serves the page at / and its files beside it, and 404 for any other path. It
// takes GET and HEAD; ops.Handler rejects other methods and sets the security headers.
// Browsers revalidate each file: a new version has other files under the same names.
func Handler() http.Handler {
	files := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path
		if name == "/" {
			name = "/index.html"
		}
		f, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		header := w.Header()
		header.Set("Content-Type", f.kind)
		header.Set("ETag", f.tag)
		header.Set("Cache-Control", "no-cache")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.content))
	})
}

// kinds are the content types by extension. The machine's own table may lack them.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// load reads all files, by path.
func load() map[string]file {
	files := make(map[string]file)
	err := fs.WalkDir(embedded, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		base := path.Base(name)
		files["/"+base] = file{content, kinds[path.Ext(base)], fmt.Sprintf(`"%x"`, sha256.Sum256(content))}
		return nil
	})
	if err != nil {
		panic("page: " + err.Error()) // the files are part of the program
	}
	return files
}
