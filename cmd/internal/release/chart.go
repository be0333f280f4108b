package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// chartFolder is the Helm chart, below the sources.
const chartFolder = "cmd/exportbridge/deploy/helm"

// chart writes the Helm chart with the version and the image of the release.
func (r *release) chart() error {
	changes := map[string][2]string{
		"Chart.yaml": {
			"version: 0.0.0\nappVersion: devel\n",
			fmt.Sprintf("version: %s\nappVersion: %q\n", semantic(r.version), r.version),
		},
		"values.yaml": {"  repository: registry.example.com/exportbridge\n", "  repository: " + r.image + "\n"},
	}
	var files []file
	folder := os.DirFS(filepath.Join(r.root, chartFolder))
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(folder, name)
		if change, ok := changes[name]; ok {
			if !bytes.Contains(text, []byte(change[0])) {
				return fmt.Errorf("%s has no %q: adapt chart.go", name, change[0])
			}
			text = bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
		}
		files = append(files, file{name: "exportbridge/" + name, mode: 0o644, text: text})
		return err
	})
	if err != nil {
		return err
	}
	return r.writeArchive("exportbridge-"+semantic(r.version)+".tgz", files)
}
