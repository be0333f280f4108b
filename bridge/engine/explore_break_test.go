//go:build proof

package engine_test

import (
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/rules"
)

// TestExploreBroken takes the rules of the engine and of windows away, one at a time: the
// explorer must notice each, and must not complain about the whole engine. The rules are
// the process's, so nothing runs beside it.
func TestExploreBroken(t *testing.T) {
	defer rules.Break("")
	for _, rule := range append([]string{""}, rules.Names(rules.Engine)...) {
		exploreBroken(t, variants(), rule)
	}
	for _, rule := range append([]string{""}, rules.Names(rules.Windows)...) {
		exploreBroken(t, listVariants(), rule)
	}
}

// rare has plans that break rules which few schedules break: a search takes minutes.
var rare = map[string]string{
	"rewind-keeps-border": "once B ids owned 281000 shared inclusive windows 19hold 39skip",
	"sink-is-stored":      "least A noids owned 568466 windows 17orphan 30late 37lost",
	"own-claim-decides":   "least A noids owned 680994 redis 9died 14move 29skip 33lost 33lapse",
}

// exploreBroken searches until the removed rule is noticed. The whole engine runs as many
// schedules as in TestExplore: more than the search for any rule takes that is not rare.
func exploreBroken(t *testing.T, bases []plan, rule string) {
	most := int64(4_000)
	if rule != "" {
		most = 100_000
	}
	rules.Break("")
	x := newExplorer(t, bases)
	rules.Break(rule)
	x.enough = func(n int64) bool { return n >= most }
	if text := rare[rule]; text != "" {
		r, _ := replay(t, must.Get(parsePlan(text))(t), "")
		x.note(r, "rare")
	}
	if len(x.found) == 0 {
		x.explore(t)
	}
	switch {
	case rule == "" && len(x.found) > 0:
		t.Errorf("the whole engine breaks %q: EXPLORE_SEED='%s'", x.found[0].broken.rule, x.found[0].plan)
	case rule == "":
	case len(x.found) == 0:
		t.Errorf("explore: %s is not noticed in %d schedules", rule, x.total)
	default:
		p := shrink(t, x.found[0])
		r, _ := replay(t, p, x.found[0].broken.rule)
		t.Logf("explore: %s is noticed after %d schedules: EXPLORE_SEED='%s' PROOF_BREAK=%s: %s: %s",
			rule, x.total, p, rule, r.broken.rule, r.broken.detail)
		if testing.Verbose() {
			t.Log(strings.Join(r.trace, "\n"))
		}
	}
}
