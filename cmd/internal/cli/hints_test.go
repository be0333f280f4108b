package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestEngineHints: every hint of the engine has a text, and there are no other texts.
func TestEngineHints(t *testing.T) {
	t.Parallel()
	all := declaredHints(t)
	for _, h := range all {
		if EngineHints[h] == "" {
			t.Errorf("%s has no words", h)
		}
		if first, _, _ := strings.Cut(EngineHints[h], " "); slices.Contains([]string{"exportbridge", "the", "a", "an",
			"another"}, first) || strings.HasPrefix(first, "-") || strings.HasSuffix(strings.Trim(first, ",;"), "ing") {
			t.Errorf("%s begins without a verb: %q", h, EngineHints[h])
		}
	}
	for h := range EngineHints {
		if !slices.Contains(all, h) {
			t.Errorf("nothing advises %s", h)
		}
	}
	// The commands that the hint of each blocked stream must name.
	for h, choices := range map[bridge.Hint][]string{
		bridge.HintTopicLost:     {"--to-earliest", "--to-current", "verify --repair"},
		bridge.HintTopicVanished: {"topics create --execute", "--to-earliest", "--to-current"},
		bridge.HintTopicMissing: {"check the topic names, KAFKA_TOPIC", "topics create --execute",
			"KAFKA_CREATE_TOPICS"},
		bridge.HintOrigin:     {"cursor reset --to-current --execute"},
		bridge.HintOtherStart: {"cursor reset --to-datetime TIME --execute"},
		bridge.HintRequest:    {"--accept-source SOURCE --execute", "restore"},
		bridge.HintOtherTopic: {"check KAFKA_TOPIC", "its own stream name",
			"cursor reset --to-current --execute"},
		bridge.HintNoPosition:             {"cursor reset --to-datetime", "--execute"},
		bridge.HintSource:                 {"cursor reset --to-datetime TIME --execute"},
		bridge.HintCheckpointTopicMissing: {"topics create --execute"},
		bridge.HintCheckpointTopicLost:    {"topics create --execute"},
		bridge.HintMissingGrants:          {"topics plan --acls"},
		bridge.HintMapping:                {"dlq-all", "EXPORT_ITEM_TIME_FORMAT", "check --sample"},
		bridge.HintMaxEvents:              {"--max-events"},
		bridge.HintUntil:                  {"--until"},
	} {
		for _, choice := range choices {
			if !strings.Contains(EngineHints[h], choice) {
				t.Errorf("%s says %q, want %q in it", h, EngineHints[h], choice)
			}
		}
	}
	// An expired cursor is likelier than an API that takes nothing beside one.
	if _, after, ok := strings.Cut(EngineHints[bridge.HintCursorBeside], "cursor reset"); !ok ||
		!strings.Contains(after, "EXPORT_CURSOR_ALONE") {
		t.Errorf("%s says %q", bridge.HintCursorBeside, EngineHints[bridge.HintCursorBeside])
	}
	// A cursor of another list is rarely worth keeping.
	for _, h := range []bridge.Hint{bridge.HintRequest, bridge.HintSource} {
		if _, after, ok := strings.Cut(EngineHints[h], "--to-datetime TIME"); !ok || !strings.Contains(after, "--to-current") {
			t.Errorf("%s says %q, want --to-datetime before --to-current", h, EngineHints[h])
		}
	}
}

// declaredHints returns the hints that package bridge declares.
func declaredHints(t *testing.T) (hints []bridge.Hint) {
	t.Helper()
	file := must.Get(parser.ParseFile(token.NewFileSet(), "../../../bridge/hint.go", nil, 0))(t)
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.BasicLit); ok && v.Kind == token.STRING && v.Value != `""` {
			hints = append(hints, bridge.Hint(must.Get(strconv.Unquote(v.Value))(t)))
		}
		return true
	})
	if len(hints) == 0 {
		t.Fatal("no hints found")
	}
	return hints
}

// TestHintsOfSeveralStreams: the commands of a hint name the stream.
func TestHintsOfSeveralStreams(t *testing.T) {
	t.Parallel()
	hints := hintsOf("users")
	for h, want := range map[bridge.Hint]string{
		bridge.HintResume:      "run exportbridge resume --stream users",
		bridge.HintDeadLetters: "inspect them: exportbridge tail --stream users --dlq",
		bridge.HintStartLater:  "run exportbridge cursor reset --stream users --to-datetime TIME --execute",
	} {
		if got := hints(h); got != want {
			t.Errorf("%s: %q, want %q", h, got, want)
		}
	}
	for h := range EngineHints {
		text := hints(h)
		if strings.Count(text, "--stream users") != strings.Count(EngineHints[h],
			"exportbridge cursor")+strings.Count(EngineHints[h], "exportbridge resume")+
			strings.Count(EngineHints[h], "exportbridge tail")+strings.Count(EngineHints[h], "exportbridge verify") {
			t.Errorf("%s: %q", h, text)
		}
	}
}
