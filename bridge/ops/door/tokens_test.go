package door_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops/door"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	want := door.Identity{Name: "alice", Role: door.Act, By: door.ByToken}
	token, line, err := door.New(want)
	if err != nil || len(token) < 32 || strings.Contains(line, token) {
		t.Fatalf("token of %d bytes, line %q, %v", len(token), line, err)
	}
	old, oldLine, _ := door.New(want)
	short := strings.Repeat("x", door.MinToken-1)
	tokens := must.Get(door.Parse(fmt.Sprintf("# people\r\n\n%s\r\n%s\nbob read %x\n", line, oldLine, sha256.Sum256([]byte(short)))))(t)
	for _, right := range []string{token, old} {
		if who, ok := tokens.Find(right); !ok || who != want {
			t.Errorf("found %v, %v", who, ok)
		}
	}
	for _, wrong := range []string{"", short, token[1:], token + " ", strings.ToLower(token), line[len(line)-64:]} {
		if who, ok := tokens.Find(wrong); ok {
			t.Errorf("%q is a token of %v", wrong, who)
		}
	}
}

func TestWrongLines(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("0f", 32)
	for text, want := range map[string]string{
		"alice act":                                "line 1 has 2 fields",
		"\nalice act " + hash + " x":               "line 2 has 4 fields",
		"alice root " + hash:                       "line 1: the role",
		"alice Act " + hash:                        "line 1: the role",
		"alice act " + hash[1:]:                    "not a SHA-256",
		"alice act " + hash + "00":                 "not a SHA-256",
		"alice act " + strings.Repeat("zz", 32):    "not a SHA-256",
		"10.0.0.1 act " + hash:                     "name",
		"a\x1b[2J act " + hash:                     "line 1: the name",
		"a\"b act " + hash:                         "name",
		"a@10.0.0.1 act " + hash:                   "name",
		strings.Repeat("a", 65) + " act " + hash:   "name",
		"alice act " + hash + "\nbob read " + hash: "line 2: the hash is that of alice too",
		"# " + strings.Repeat("x", 70_000) + "\n":  "too long",
	} {
		if tokens, err := door.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, %v, want %q", text, tokens, err, want)
		}
	}
	const secret = "AKTOKENINTHEWRONGPLACE"
	for _, text := range []string{secret + "! act " + hash, "1" + secret + " act " + hash, "alice " + secret + " " + hash} {
		if _, err := door.Parse(text); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, who := range []door.Identity{{}, {Name: "a b", Role: door.Act}, {Name: "alice", Role: "admin"}} {
		if _, line, err := door.New(who); err == nil {
			t.Errorf("%v: %q", who, line)
		}
	}
}
