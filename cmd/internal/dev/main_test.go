package dev

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"exportbridge/cmd/internal/command"
)

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){
		"exportbridge":     command.Program.Execute,
		"exportbridge-dev": Program.Execute,
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
