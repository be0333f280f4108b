package bench

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

// program is exportbridge-dev with this package's command alone.
var program = cli.Program{
	Name:     "exportbridge-dev",
	Commands: func(a *cli.App) []*cobra.Command { return []*cobra.Command{NewCommand(a, "")} },
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "bench" { // a test has started this program
		program.Execute()
	}
	testscript.Main(servers.Leakless{M: m}, map[string]func(){
		"exportbridge-dev": program.Execute,
	})
}
