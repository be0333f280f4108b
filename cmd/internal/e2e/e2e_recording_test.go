//go:build unix

package e2e_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

const (
	recordingBegin = "<!-- recording: make recording -->\n```\n"
	recordingEnd   = "```\n<!-- end of recording -->"
)

// TestRecording gives the commands of the README's recording to a demo. With
// RECORDING=write it puts what they print there.
func TestRecording(t *testing.T) {
	t.Parallel()
	binary := must.Get(build())(t)
	s := &stage{t: t, binary: binary, dir: t.TempDir(), settings: map[string]string{"HTTP_ADDR": "127.0.0.1:0"}}
	demo := s.startDev("demo", "--kafka-addr", "127.0.0.1:0", "--redis-addr", "127.0.0.1:0", "--api-addr", "127.0.0.1:0")
	var addresses [][]byte
	said := regexp.MustCompile(`(?s)export API  (\S+).*?Kafka +([^,]+),.*?Redis +([^,]+),`)
	eventually(t, stepTimeout, "the demo's addresses", func() bool {
		addresses = said.FindSubmatch(demo.stdout())
		return addresses != nil
	})
	usual := []string{"http://127.0.0.1:4000", "127.0.0.1:9092", "127.0.0.1:6379"}
	clean := func(text []byte) string {
		for i, address := range addresses[1:] {
			text = bytes.ReplaceAll(text, address, []byte(usual[i]))
		}
		host, _ := os.Hostname() // a machine without a name has none to hide
		out := strings.ReplaceAll(string(text), host, "laptop")
		// What the usual ports do not need.
		out = strings.NewReplacer(" --kafka-brokers "+usual[1], "", "REDIS_URL=redis://"+usual[2]+"/0 ", "").Replace(out)
		ui := regexp.MustCompile(`(web UI +)http://127\.0\.0\.1:\d+( \(the default port is in use\))?`)
		return ui.ReplaceAllString(out, "${1}http://127.0.0.1:8080")
	}
	text := "$ exportbridge-dev demo\n" + clean(demo.stdout()) + "\n"
	s.settings["EXPORT_URL"], s.settings["KAFKA_BROKERS"], s.settings["REDIS_URL"] = string(addresses[1]),
		string(addresses[2]), "redis://"+string(addresses[3])+"/0"
	s.settings["EXPORT_API_KEY"], s.settings["USER"] = "demo", "me"
	settled := regexp.MustCompile(`speed +\d\d events/s`) // ten seconds later: the history goes back so far
	eventually(t, stepTimeout, "all of the stock", func() bool {
		p := s.start("status")
		return p.wait(stepTimeout) == 0 && bytes.Contains(p.stdout(), []byte("caught up")) && settled.Match(p.stdout())
	})
	for _, line := range []string{
		`exportbridge status`,
		`exportbridge tail -n 2 -f '%d{strftime[%H:%M:%S]}  %k\n'`,
		`exportbridge cursor rewind --by-duration 5s`,
		`exportbridge cursor rewind --by-duration 5s --reason "try it" --execute`,
	} {
		args := words(strings.ReplaceAll(strings.TrimPrefix(line, "exportbridge "), "'", `"`))
		p := s.start(args...)
		if code := p.wait(stepTimeout); code != 0 || len(p.stdout()) == 0 {
			t.Fatalf("%s: exit code %d\n%s", line, code, tail(p.stderr()))
		}
		text += "$ " + line + "\n" + clean(p.stdout()) + "\n"
	}
	// With the demo's address, as the README says, other commands read the same list.
	verify := s.start("verify", "--from", "-3m", "--to", "-1m")
	if code := verify.wait(stepTimeout); code != 0 {
		t.Errorf("verify: exit code %d\n%s", code, tail(verify.stderr()))
	}
	if os.Getenv("RECORDING") == "write" {
		writeRecording(t, strings.TrimRight(text, "\n")+"\n")
	}
}

func writeRecording(t *testing.T, text string) {
	t.Helper()
	const name = "../../../README.md"
	readme := must.Get(os.ReadFile(name))(t)
	before, rest, ok := strings.Cut(string(readme), recordingBegin)
	_, after, ended := strings.Cut(rest, recordingEnd)
	if !ok || !ended {
		t.Fatal("the README has no place for the recording")
	}
	must.Do(t, os.WriteFile(name, []byte(before+recordingBegin+text+recordingEnd+after), 0o644))
}
