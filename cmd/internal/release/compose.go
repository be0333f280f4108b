package main

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// compose writes the archive of the compose file with the released images, and what it
// mounts. It needs no sources.
func (r *release) compose() error {
	text, err := r.source("docker-compose.yml")()
	if err != nil {
		return err
	}
	files, top := []file{}, "exportbridge-"+r.version+"/"
	released, mounted := string(text), regexp.MustCompile(`\./(cmd/exportbridge/deploy/compose/[\w.-]+)`)
	for _, m := range mounted.FindAllStringSubmatch(released, -1) {
		content, err := r.source(m[1])()
		if err != nil {
			return err
		}
		files = append(files, file{name: top + path.Base(m[1]), mode: 0o644, text: content})
	}
	content, err := r.source("cmd/exportbridge/deploy/compose/simulator.env")()
	if err != nil {
		return err
	}
	files = append(files, file{name: top + "simulator.env", mode: 0o644, text: content})
	for _, change := range []struct{ pattern, with string }{
		{`(?m)^( {2}build:\n(?: {4}.*\n)+)`, ""},
		{`(?m)^( {4}build:\n(?: {6}.*\n)+)`, ""},
		{`image: exportbridge:local`, "image: " + r.image + ":" + r.version},
		{`image: exportbridge-dev:local`, "image: " + r.image + "-dev:" + r.version},
		{`docker compose up --build --wait`, "docker compose up --wait"},
		{`cmd/exportbridge/deploy/compose/`, ""},
	} {
		pattern := regexp.MustCompile(change.pattern)
		if !pattern.MatchString(released) {
			return fmt.Errorf("docker-compose.yml has no %q: adapt compose.go", change.pattern)
		}
		released = pattern.ReplaceAllLiteralString(released, change.with)
	}
	if strings.Contains(released, "build:") {
		return fmt.Errorf("docker-compose.yml still builds an image: adapt compose.go")
	}
	files = append(files, file{name: top + "docker-compose.yml", mode: 0o644, text: []byte(released)})
	return r.write("exportbridge-"+r.version+"-compose.tar.gz", packedArchive(files, r.when))
}
