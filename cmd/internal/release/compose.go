package main

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// compose writes an archive of the compose file with the released images and of the files that
// it mounts. Users of that archive need no sources.
func (r *release) compose() error {
	text, err := r.source("docker-compose.yml")
	if err != nil {
		return err
	}
	files, top, released := []file{}, "exportbridge-"+r.version+"/", string(text)
	mounted := regexp.MustCompile(`\./cmd/exportbridge/deploy/compose/[\w.-]+`).FindAllString(released, -1)
	for _, name := range append(mounted, "cmd/exportbridge/deploy/compose/simulator.env") {
		content, err := r.source(name)
		if err != nil {
			return err
		}
		files = append(files, file{name: top + path.Base(name), mode: 0o644, text: content})
	}
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
	return r.writeArchive("exportbridge-"+r.version+"-compose.tar.gz", files)
}
