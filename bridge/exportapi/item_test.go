package exportapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

func TestIngestedAt(t *testing.T) {
	t.Parallel()
	c := serve(t, answer(emptyPage), nil)
	for item, want := range map[string]int64{
		`{"systemTimestamp":17}`: 17, `{"systemTimestamp":"18"}`: 18, `{"systemTimestamp":"soon"}`: 0,
		`{"systemTimestamp":null}`: 0, `{}`: 0, `[17]`: 0, `x`: 0, ``: 0, `{"systemTimestamp":17`: 0,
	} {
		if got := c.IngestedAt([]byte(item)); got != want {
			t.Errorf("%s: ingested at %d, want %d", item, got, want)
		}
	}
	mapped := map[string]string{"EXPORT_ITEM_INGESTED": "/meta/seen,/created", "EXPORT_ITEM_TIME_FORMAT": "rfc3339"}
	c = serve(t, answer(emptyPage), mapped)
	for item, want := range map[string]int64{
		`{"meta":{"seen":"1970-01-01T00:00:01+00:00"},"created":"1970-01-01T00:00:02Z"}`: 1000,
		`{"meta":{"seen":null},"created":"1970-01-01T00:00:02Z"}`:                        2000,
		`{"meta":{"seen":1000},"created":"1970-01-01T00:00:02Z"}`:                        0, // the first value counts
		`{"systemTimestamp":17}`: 0,
	} {
		if got := c.IngestedAt([]byte(item)); got != want {
			t.Errorf("%s: ingested at %d, want %d", item, got, want)
		}
	}
	for _, setting := range []string{"EXPORT_ITEM_INGESTED", "EXPORT_ITEM_TIME_FORMAT"} {
		c = serve(t, answer(emptyPage), map[string]string{setting: "none"})
		if got := c.IngestedAt([]byte(`{"systemTimestamp":17}`)); got != 0 {
			t.Errorf("%s=none: ingested at %d, want 0", setting, got)
		}
	}
}

// TestMappedEvents reads items of other APIs.
func TestMappedEvents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		vars map[string]string
		item string
		want event
	}{
		"nested ISO time": {
			map[string]string{"EXPORT_ITEM_ID": "/uuid", "EXPORT_ITEM_TIME": "/meta/published",
				"EXPORT_ITEM_TIME_FORMAT": "rfc3339", "EXPORT_ITEM_TYPE": "/eventType", "EXPORT_ITEM_SUBJECT": "/actor/id"},
			`{"uuid":"a","meta":{"published":"1970-01-01T00:00:01.5Z"},"eventType":"user.session.start","actor":{"id":"b"},` +
				`"userId":"u"}`,
			event{"a", "u", "user.session.start", "b", 1500, ""},
		},
		"seconds with a fraction": {
			map[string]string{"EXPORT_ITEM_TIME": "/ts", "EXPORT_ITEM_TIME_FORMAT": "s"},
			`{"ts":"1512085950.000216"}`, event{absent, absent, absent, absent, 1512085950000, ""},
		},
		"the first time with a value counts": {
			map[string]string{"EXPORT_ITEM_TIME": "/a,/b,/c"}, `{"a":null,"c":3,"b":"2"}`,
			event{absent, absent, absent, absent, 2, ""},
		},
		"though it cannot be read": {
			map[string]string{"EXPORT_ITEM_TIME": "/a,/b"}, `{"a":"soon","b":2}`,
			event{absent, absent, absent, absent, 0, bridge.DefectTime},
		},
		"no time among them": {
			map[string]string{"EXPORT_ITEM_TIME": "/a,/b"}, `{"timestamp":1}`,
			event{absent, absent, absent, absent, 0, bridge.DefectTime},
		},
		"no time yet of a session": {
			map[string]string{"EXPORT_RESOURCE": "sessions", "EXPORT_ITEM_TIME": "/a,/b"}, `{"a":null}`,
			event{absent, absent, absent, absent, bridge.NoTime, ""},
		},
		"a time or none, absent": {map[string]string{"EXPORT_ITEM_TIME": "/a,/b,none"}, `{"timestamp":1}`,
			event{absent, absent, absent, absent, bridge.NoTime, ""}},
		"a time or none, null": {map[string]string{"EXPORT_ITEM_TIME": "/a,/b,none"}, `{"b":null}`,
			event{absent, absent, absent, absent, bridge.NoTime, ""}},
		"a time or none, there": {map[string]string{"EXPORT_ITEM_TIME": "/a,/b,none"}, `{"b":7}`,
			event{absent, absent, absent, absent, 7, ""}},
		"a time or none, broken": {map[string]string{"EXPORT_ITEM_TIME": "/a,/b,none"}, `{"b":"soon"}`,
			event{absent, absent, absent, absent, 0, bridge.DefectTime}},
		"without times": {map[string]string{"EXPORT_ITEM_TIME": "none"}, `{"timestamp":"x"}`,
			event{absent, absent, absent, absent, bridge.NoTime, ""}},
		"without times, format": {map[string]string{"EXPORT_ITEM_TIME_FORMAT": "none"}, `{"timestamp":"x"}`,
			event{absent, absent, absent, absent, bridge.NoTime, ""}},
		"escaped names": {map[string]string{"EXPORT_ITEM_ID": "/x,/a~1b/m~0n", "EXPORT_ITEM_SUBJECT": "/~01",
			"KAFKA_KEY": "none"}, `{"a/b":{"m~n":"e"},"~1":"s","/":"no","timestamp":1}`, event{"e", absent, absent, "s", 1, ""}},
		"without the rest": {map[string]string{"EXPORT_ITEM_ID": "none", "EXPORT_ITEM_TYPE": "none",
			"EXPORT_ITEM_SUBJECT": "none"}, `{"eventId":"e","userId":"u","timestamp":1,"payload":{"type":"t"}}`,
			event{absent, "u", absent, absent, 1, ""}},
		"an id that is a number": {map[string]string{"EXPORT_ITEM_ID": "/n"}, `{"n":9007199254740993,"timestamp":1}`,
			event{"9007199254740993", absent, absent, absent, 1, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, answer(`{"items":[`+tc.item+`],"nextCursor":"c"}`), tc.vars)
			p := mustFetch(t, c, bridge.Position{})
			if diff := cmp.Diff(tc.want, eventOf(&p.Events[0])); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
			one := must.Get(c.DecodeItem([]byte(tc.item)))(t)
			if diff := cmp.Diff(tc.want, eventOf(&one.Events[0])); diff != "" {
				t.Errorf("item by itself (-want +got):\n%s", diff)
			}
		})
	}
}

// event is what an item is read as; absent stands for a value that it lacks.
type event struct {
	ID, Key, Type, Subject string
	Time                   int64
	Defect                 bridge.Defect
}

const absent = "<nil>"

func eventOf(e *bridge.Event) event {
	text := func(b []byte) string {
		if b == nil {
			return absent
		}
		return string(b)
	}
	return event{text(e.ID), text(e.Key), text(e.Type), text(e.Subject), e.Time, e.Defect}
}
