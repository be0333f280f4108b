// Package ui is the operations page: static files that ask the API of the
// server they come from, and nobody else.
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

// policy lets the page load and ask only its own server, and nobody frame it.
const policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// file is one of the page's files, as it is sent.
type file struct {
	content []byte
	kind    string // Content-Type
	tag     string // ETag
}

// Handler serves the page at / and its files beside it, and 404 for any other
// path. The answers to GET and HEAD may be cached but are asked for again each
// time, since a new version has other files under the same names. It may be
// used concurrently.
func Handler() http.Handler {
	files := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
			return
		}
		name := r.URL.Path
		if name == "/" {
			name = "/index.html"
		}
		f, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		header.Set("Content-Type", f.kind)
		header.Set("ETag", f.tag)
		header.Set("Cache-Control", "no-cache")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.content))
	})
}

// kinds are the content types by extension: the machine's own table may say
// something else, or nothing.
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
		files["/"+base] = file{content: content, kind: kinds[path.Ext(base)], tag: fmt.Sprintf(`"%x"`, sha256.Sum256(content))}
		return nil
	})
	if err != nil {
		panic("page: " + err.Error()) // the files are part of the program
	}
	return files
}
