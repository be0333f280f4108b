package config

import (
	"math"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

// TestPageLimitFollowsMemory: by default two pages together with their events fit the
// memory.
func TestPageLimitFollowsMemory(t *testing.T) {
	t.Parallel()
	for memory, want := range map[int64]string{0: "64MiB", math.MaxInt64: "64MiB", 1 << 30: "64MiB", 512 << 20: "64MiB",
		256 << 20 / 100 * 90: "28MiB", 1 << 20: "1MiB"} {
		for _, environ := range []string{"", "EXPORT_MAX_RESPONSE_BYTES=48MiB",
			"STREAM_EVENTS_EXPORT_MAX_RESPONSE_BYTES=48MiB"} {
			l := &loader{src: newSources(nil, nil, []string{"EXPORT_API_KEY=sesame", environ}, nil), memory: memory}
			s := must.Get(l.load(UsesAll, testNow))(t)
			wanted, shown := want, want
			if environ != "" {
				wanted = "48MiB"
			}
			if strings.HasPrefix(environ, "EXPORT") {
				shown = wanted
			}
			row := s.Effective[slices.IndexFunc(s.Effective,
				func(row Setting) bool { return row.Variable == "EXPORT_MAX_RESPONSE_BYTES" })]
			if got := formatBytes(s.Streams[0].Export.MaxResponse); got != wanted || row.Value != shown {
				t.Errorf("memory %d, %q: limit %s, shown as %s, want %s and %s", memory, environ, got, row.Value, wanted, shown)
			}
		}
	}
}

// TestPageLimitIsShared: the streams of a process, and other readers in it, share the
// memory for pages, unless the limit is set.
func TestPageLimitIsShared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		environ      string
		memory       int64
		want, beside string // with eight readers
	}{
		{"BRIDGE_STREAMS=events,users", 230 << 20, "14MiB", "3MiB"}, {"BRIDGE_STREAMS=events,users,sessions", 230 << 20,
			"9MiB", "3MiB"},
		{"BRIDGE_STREAMS=events", 230 << 20, "28MiB", "3MiB"}, {"BRIDGE_STREAMS=events,users", 8 << 30, "64MiB", "64MiB"},
		{"BRIDGE_STREAMS=events,users", 0, "64MiB", "64MiB"}, {"EXPORT_MAX_RESPONSE_BYTES=48MiB", 230 << 20, "48MiB",
			"48MiB"},
	} {
		l := &loader{src: newSources(nil, nil, []string{"EXPORT_API_KEY=sesame", c.environ}, nil), memory: c.memory}
		s := must.Get(l.load(UsesAll, testNow))(t)
		st := &s.Streams[0]
		if got := formatBytes(st.Export.MaxResponse); got != c.want {
			t.Errorf("%s, memory %d: limit %s, want %s", c.environ, c.memory, got, c.want)
		}
		if st.LimitPages(8); formatBytes(st.Export.MaxResponse) != c.beside {
			t.Errorf("%s, memory %d: limit %s for eight readers, want %s", c.environ, c.memory,
				formatBytes(st.Export.MaxResponse), c.beside)
		}
	}
}
