// Package rules removes rules of the protocol, to show that a test notices. The sources do
// not contain the faults: [Overlay] patches copies of them by the table [All], and "go
// build -overlay" compiles the copies instead. One build has the patches of all rules.
// [Break], or PROOF_BREAK=NAME in the environment, removes one rule.
//
// "make broken" does it for all rules. To repeat a schedule that the explorer prints:
//
//	go run ./bridge/bridgetest/rules/overlay FOLDER
//	EXPLORE_SEED='...' PROOF_BREAK=NAME go test -overlay FOLDER/overlay.json -v -run TestExploreReplay ./bridge/engine
package rules

import (
	"os"
	"slices"
	"sync/atomic"
)

// Rule is a rule of the protocol, with the patches that remove it.
type Rule struct {
	Name    string
	Without string // what happens without the rule
	Notice  Test   // the tests that must fail without the rule
	Edits   []Edit
}

// Test is a set of tests that run without a rule.
type Test int

// The tests.
const (
	Engine    Test = 1 << iota // TestExploreBroken of bridge/engine, without servers
	Processes                  // TestE2EProofBroken, with processes and servers
	Windows                    // TestE2EProofBroken, where the stream follows windows
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
	// Diff has the lines of the place: added lines begin with "+", removed lines with "-",
	// other lines with " ". The removed and other lines must occur in File once.
	Diff string
}

var broken atomic.Value // of type string

func init() {
	if name := os.Getenv("PROOF_BREAK"); name != "" {
		Break(name)
	}
}

// Break removes one rule, or none with "". It panics if there is no such rule, or if the
// build has no patches.
func Break(name string) {
	switch {
	case name != "" && !slices.ContainsFunc(All, func(r Rule) bool { return r.Name == name }):
		panic("no such rule: " + name)
	case !patched:
		panic("built without the patches: run make broken")
	}
	broken.Store(name)
}

// Patched reports whether the build has the patches, so that rules can be removed.
func Patched() bool { return patched }

// Broken reports whether a rule is removed. Only patches call it.
func Broken(name string) bool { return broken.Load() == name }
