package config

import (
	"fmt"
	"testing"

	"exportbridge/bridge/exportapi"
)

// TestTwinsOfManyStreams: the addresses of thousands of streams are not parsed for each pair of them. It
// counts the allocations of the process, so it does not run in parallel.
func TestTwinsOfManyStreams(t *testing.T) {
	streams := make([]Stream, 100)
	for i := range streams {
		e := exportapi.DefaultConfig()
		e.URL, e.Path = "https://api.example.com", fmt.Sprint("/list/", i)
		streams[i].Name, streams[i].Export, streams[i].Kafka.Topic = fmt.Sprint("s", i), e, "all"
	}
	l := new(loader)
	n := testing.AllocsPerRun(10, func() { l.checkTwins(streams, UsesAll) })
	if most := float64(50 * len(streams)); n > most {
		t.Errorf("%d streams are compared with %v allocations, want at most %v", len(streams), n, most)
	}
}
