package bridgetest_test

import (
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// TestDecodePage: a page is split where encoding/json would split it.
func TestDecodePage(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{ // the next cursor, the items and the first one's id, or "error"
		`{"items":[{"eventId":"a","timestamp":1},{"eventId":"b"}],"nextCursor":"c"}`: `c|{"eventId":"a",` +
			`"timestamp":1}|{"eventId":"b"}|id a`,
		" {\n\"nextCursor\" : null ,\t\"items\" : [ 1 , \"]\\\"}\" ,[{}], true ]\r\n} ": `|1|"]\"}"|[{}]|true|id `,
		`{"items":[{"event\u0049d":"\u0061\"","x":{"eventId":"no"}}]}`: `|{"event\u0049d":"\u0061\"",` +
			`"x":{"eventId":"no"}}|id a"`,
		`{"items":[{"x":"\\","eventId":"é"}]}`: `|{"x":"\\","eventId":"é"}|id é`,
		`{"items":[],"nextCursor":""}`:         `|`,
		`{"items":null}`:                       `|`,
		`{"nextCursor":"c"}`:                   `c|`,
		`{}`:                                   "error",
		`{"items":{}}`:                         "error",
		`{"items":[],"items":[]}`:              "error",
		`{"items":[]} {}`:                      "error",
		`{"items":[`:                           "error",
		`{"items":[],"nextCursor":1}`:          "error",
		`[]`:                                   "error",
		``:                                     "error",
	} {
		page := bridgetest.NewPage(bridge.Position{}, []byte(body))
		got := "error"
		if err := bridgetest.DecodePage(page); err == nil {
			got = page.Next + "|"
			for _, e := range page.Events {
				got += string(e.Raw) + "|"
			}
			if len(page.Events) > 0 {
				got += "id " + string(page.Events[0].ID)
			}
		}
		if got != want {
			t.Errorf("%s\nis  %s\nnot %s", body, got, want)
		}
	}
}

// TestCount: what is no longer in a topic counts no more.
func TestCount(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*bridgetest.Topic){
		"forgotten": func(p *bridgetest.Topic) { p.Forget("events", 1) },
		"cut":       func(p *bridgetest.Topic) { p.Cut(2) },
		"trimmed":   func(p *bridgetest.Topic) { p.Trim(2, false) },
		"recreated": (*bridgetest.Topic).Recreate,
	} {
		topic := bridgetest.NewTopic(t, bridge.AtLeastOnce)
		sink := topic.Open("events")
		recovered(t, sink)
		b := batch(t, 2)
		value := string(b.Pages[0].Events[0].Raw)
		publish(t, sink, b)
		before := topic.Count([]byte(value))
		lose(topic)
		if after := topic.Count([]byte(value)); before != 1 || after != 0 {
			t.Errorf("%s: counted %d times, then %d times", name, before, after)
		}
	}
}
