package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

//go:embed scripts
var scripts embed.FS

// packages writes the deb and the rpm of a binary.
func (r *release) packages(binary, arch string) error {
	stage, err := os.MkdirTemp("", "exportbridge-packages")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	contents, err := r.contents(stage, binary)
	if err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		// Each format has an Info of its own, because it changes the Info.
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "exportbridge", Arch: arch, Platform: "linux", Version: semantic(r.version), MTime: r.when,
			Section: "net", Maintainer: "The exportbridge authors", License: "Apache-2.0", DisableGlobbing: true,
			Description: "Turns a paginated export API into a Kafka topic\n" +
				"exportbridge publishes every event of an export API to Kafka, exactly once.",
			Overridables: nfpm.Overridables{
				Contents: contents(format),
				Scripts: nfpm.Scripts{
					PostInstall: filepath.Join(stage, "scripts/postinstall.sh"),
					PreRemove:   filepath.Join(stage, "scripts/preremove.sh"),
				},
				RPM: nfpm.RPM{BuildHost: "localhost", Summary: "Turns a paginated export API into a Kafka topic"},
			},
		})
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := packager.Package(info, &out); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		if err := os.WriteFile(r.path("-linux-"+arch+"."+format), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// contents writes the files of the packages below stage. It returns a function that lists
// these files for a format.
func (r *release) contents(stage, binary string) (func(format string) files.Contents, error) {
	all, err := r.documents()
	if err != nil {
		return nil, err
	}
	var problems []error
	add := func(name string, text []byte, err error) {
		problems = append(problems, err)
		all = append(all, file{name: name, text: text})
	}
	unit, err := r.source("cmd/exportbridge/deploy/systemd/exportbridge.service")
	if !bytes.Contains(unit, []byte("ExecStart=/usr/local/bin/")) {
		err = errors.Join(err, errors.New("the unit of systemd has no ExecStart=/usr/local/bin/: adapt packages.go"))
	}
	unit = bytes.Replace(unit, []byte("/usr/local/bin/"), []byte("/usr/bin/"), 1)
	add("lib/systemd/system/exportbridge.service", unit, err)
	text, err := settings()
	add("/etc/exportbridge/exportbridge.env", text, err)
	text, err = r.source("LICENSE")
	add("share/doc/exportbridge/copyright", text, err)
	text, err = r.source("cmd/exportbridge/THIRD_PARTY_NOTICES.txt")
	add("share/doc/exportbridge/THIRD_PARTY_NOTICES.txt", text, err)
	text, err = os.ReadFile(binary)
	add("bin/exportbridge", text, err)
	problems = append(problems, os.CopyFS(stage, scripts))
	for _, f := range all {
		to := filepath.Join(stage, f.name)
		problems = append(problems, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, f.text, 0o600))
	}
	return func(format string) files.Contents {
		var list files.Contents
		for _, f := range all {
			c := &files.Content{
				Source: filepath.Join(stage, f.name), Destination: place(f.name, format),
				FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o644, MTime: r.when},
			}
			switch {
			case strings.HasPrefix(f.name, "/etc/"):
				c.Type, c.FileInfo.Mode = files.TypeConfigNoReplace, 0o640
			case strings.HasPrefix(f.name, "bin/"):
				c.FileInfo.Mode = 0o755
			}
			list = append(list, c)
		}
		return list
	}, errors.Join(problems...)
}

// place returns the path where a package installs a file. A relative name is below /usr.
func place(name, format string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	if format == "deb" {
		name = strings.Replace(name, "zsh/site-functions", "zsh/vendor-completions", 1)
	}
	return "/usr/" + name
}
