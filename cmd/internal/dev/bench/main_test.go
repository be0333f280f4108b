package bench

import (
	"io"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command"
)

// program is exportbridge-dev with this package's command alone.
var program = cli.Program{
	Name:     "exportbridge-dev",
	Commands: func(a *cli.App) []*cobra.Command { return []*cobra.Command{NewCommand(a, "")} },
}

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){
		"exportbridge":     command.Program.Execute,
		"exportbridge-dev": program.Execute,
	})
}

// leakless runs the tests and fails if a goroutine is left.
type leakless struct{ *testing.M }

func (m leakless) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		return 1
	}
	return code
}

// closing closes c at the end of the test.
func closing(t *testing.T, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}
