package main

import (
	"io"
	"strings"
	"testing"
)

// TestCompletionsHaveFlags: what is offered is for a flag that exists, and the
// program takes it.
func TestCompletionsHaveFlags(t *testing.T) {
	t.Parallel()
	root := newRootCommand(&app{stdio: stdio{nil, io.Discard, io.Discard}, given: make(map[string]string)})
	for path, flags := range flagValues {
		cmd, rest, err := root.Find(strings.Fields(path)[1:])
		if err != nil || len(rest) > 0 || cmd.CommandPath() != path {
			t.Errorf("there is no command %q: %v", path, err)
			continue
		}
		for flag, values := range flags {
			for _, value := range values {
				if err := cmd.ParseFlags([]string{"--" + flag, value}); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
			if _, found := cmd.GetFlagCompletionFunc(flag); !found {
				t.Errorf("%s --%s is not completed", path, flag)
			}
		}
	}
	for _, path := range takesFile {
		if cmd, _, err := root.Find(strings.Fields(path)[1:]); err != nil || cmd.CommandPath() != path {
			t.Errorf("there is no command %q: %v", path, err)
		}
	}
}
