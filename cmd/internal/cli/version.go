package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// The linker sets these in releases: -X exportbridge/cmd/internal/cli.version=v1.2.3.
var version, revision string

// buildInfo describes the build of the program.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built with changes on top of Revision
	Time     string `json:"time,omitempty"`     // of Revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadBuildInfo reads the description of the build from the binary.
func ReadBuildInfo() buildInfo {
	b := buildInfo{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version, b.Revision = info.Main.Version, revision
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	if version != "" {
		b.Version = version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Revision = setting.Value
		case "vcs.time":
			b.Time = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

func newVersionCommand(a *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  " + a.Name + " version --json",
		GroupID: GroupSetup,
		Args:    NoArgs,
	}
	asJSON := TakeJSON(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		b := ReadBuildInfo()
		if *asJSON {
			return PrintJSON(a.Stdout, b)
		}
		_, err := fmt.Fprintln(a.Stdout, a.Name, b)
		return err
	}
	return cmd
}

// String returns the build in one line, without the program's name.
func (b buildInfo) String() string {
	text := b.Version
	if b.Revision != "" {
		text += " of " + b.Revision
		if b.Modified {
			text += ", modified"
		}
	}
	return fmt.Sprintf("%s (%s, %s)", text, b.Go, b.Platform)
}
