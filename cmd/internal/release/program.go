package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command"
)

// share writes an archive of the man pages and completions, for /usr/local.
func (r *release) share() error {
	files, err := r.documents()
	if err != nil {
		return err
	}
	return r.writeArchive("exportbridge-"+r.version+"-share.tar.gz", files)
}

// documents returns the program's man pages and completions. Their names are relative to a prefix
// such as /usr.
func (r *release) documents() ([]file, error) {
	root := command.Program.Root()
	files, err := r.manual(root)
	if err != nil {
		return nil, err
	}
	for _, shell := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"bash-completion/completions/exportbridge", func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"zsh/site-functions/_exportbridge", root.GenZshCompletion},
		{"fish/vendor_completions.d/exportbridge.fish", func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
		{"powershell/exportbridge.ps1", root.GenPowerShellCompletionWithDesc},
	} {
		var text bytes.Buffer
		if err := shell.write(&text); err != nil {
			return nil, err
		}
		files = append(files, file{name: "share/" + shell.name, mode: 0o644, text: text.Bytes()})
	}
	return files, nil
}

// manual returns the man pages of a command and those below it.
func (r *release) manual(cmd *cobra.Command) ([]file, error) {
	cmd.DisableAutoGenTag = true // the tag has the day of the build
	var page bytes.Buffer
	header := &doc.GenManHeader{Section: "1", Date: &r.when, Source: "exportbridge " + r.version, Manual: "exportbridge"}
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return nil, err
	}
	text, err := packed(page.Bytes())
	if err != nil {
		return nil, err
	}
	name := "share/man/man1/" + strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1.gz"
	files := []file{{name: name, mode: 0o644, text: text}}
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		more, err := r.manual(sub)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}

// settings returns an environment file of all settings.
func settings() ([]byte, error) {
	var said, problem bytes.Buffer
	std := cli.Stdio{Stdin: strings.NewReader(""), Stdout: &said, Stderr: &problem}
	if code := command.Program.Run(context.Background(), []string{"config", "env"}, nil, std); code != cli.ExitOK {
		return nil, fmt.Errorf("config env: exit code %d: %s", code, &problem)
	}
	return said.Bytes(), nil
}

// bill writes the CycloneDX bill of materials: the modules in any of the programs, also in that of
// exportbridge-dev, with their hashes from go.sum. The build information of a binary lists both.
func (r *release) bill() error {
	parts := make(map[string]cyclonedx.Component)
	add := func(name, version, sum string) error {
		part := cyclonedx.Component{
			BOMRef: name + "@" + version, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: version,
			PackageURL: "pkg:golang/" + name + "@" + version,
		}
		if encoded, ok := strings.CutPrefix(sum, "h1:"); ok {
			hash, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return fmt.Errorf("hash of %s: %w", name, err)
			}
			part.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
		}
		parts[part.BOMRef] = part
		return nil
	}
	for _, info := range r.built {
		if err := add("stdlib", info.GoVersion, ""); err != nil {
			return err
		}
		for _, module := range info.Deps {
			if module.Replace != nil {
				module = module.Replace
			}
			if err := add(module.Path, module.Version, module.Sum); err != nil {
				return err
			}
		}
	}
	bill := cyclonedx.NewBOM()
	bill.Metadata = &cyclonedx.Metadata{
		Timestamp: r.when.Format("2006-01-02T15:04:05Z"),
		Component: &cyclonedx.Component{
			BOMRef: "exportbridge", Type: cyclonedx.ComponentTypeApplication, Name: "exportbridge", Version: r.version,
		},
	}
	byRef := func(a, b cyclonedx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) }
	bill.Components = new(slices.SortedFunc(maps.Values(parts), byRef))
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bill); err != nil {
		return err
	}
	return r.write("exportbridge-"+r.version+".cdx.json", text.Bytes())
}
