// Package rules takes rules of the protocol away, to show that a test notices. The
// sources do not contain the faults: [Overlay] patches copies of them by the table [All],
// and "go build -overlay" compiles the copies instead. One build has the patches of all
// rules. [Break], or PROOF_BREAK=NAME in the environment, takes one rule away.
//
// "make broken" does it for all rules. To repeat a schedule that the explorer prints:
//
//	go run ./bridge/bridgetest/rules/overlay FOLDER
//	EXPLORE_SEED='...' PROOF_BREAK=NAME go test -overlay FOLDER/overlay.json -v -run 'TestExplore$' ./bridge/engine
package rules

import (
	"os"
	"slices"
	"sync/atomic"
)

// Rule is a rule of the protocol, with the patches that take it away.
type Rule struct {
	Name    string
	Without string // what happens without the rule
	Notice  Test   // that must fail without it
	Edits   []Edit
}

// Test is a set of tests that play without a rule.
type Test int

// The tests.
const (
	Engine    Test = 1 << iota // TestExploreBroken of bridge/engine, without servers
	Processes                  // TestE2EProofBroken, with processes and servers
	Windows                    // the same, where it follows windows
	Lists                      // TestFollowBroken of bridge/windows, without servers
	Ranges                     // TestRangeBroken of bridge/windows, without servers
)

// Names returns the names of the rules that a test must notice.
func Names(by Test) (names []string) {
	for i := range All {
		if All[i].Notice&by != 0 {
			names = append(names, All[i].Name)
		}
	}
	return names
}

// Edit changes one place in a source.
type Edit struct {
	File string // below the root of the repository
	// Diff has the lines of the place, each after "+" if it is added, "-" if it is
	// removed, " " if it stays. What is removed or stays must be in File exactly once.
	Diff string
}

var broken atomic.Value // of type string

func init() {
	if name := os.Getenv("PROOF_BREAK"); name != "" {
		Break(name)
	}
}

// Break takes one rule away, or none with "". It panics if there is no such rule, or if
// the build has no patches.
func Break(name string) {
	switch {
	case name != "" && !slices.ContainsFunc(All, func(r Rule) bool { return r.Name == name }):
		panic("no such rule: " + name)
	case !patched:
		panic("built without the patches: run make broken")
	}
	broken.Store(name)
}

// Patched reports whether the build has the patches, so that rules can be taken away.
func Patched() bool { return patched }

// Broken reports whether a rule is taken away. Only patches ask.
func Broken(name string) bool { return broken.Load() == name }
