package cursorstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

// TestRejectedWrites: a stream whose writes are rejected stays unhealthy while reads
// work, until a write works.
func TestRejectedWrites(t *testing.T) {
	t.Parallel()
	const others = "others"
	t.Run("of one stream", func(t *testing.T) {
		t.Parallel()
		s := embedded(t)
		// As in a cluster, where one primary of several is read-only.
		reject := func(on bool) {
			s.mini.Server().SetPreHook(func(c *miniserver.Peer, name string, args ...string) bool {
				all := strings.Join(args, " ")
				writes := strings.HasPrefix(name, "EVAL") && strings.Contains(all, "{"+stream+"}:") &&
					!strings.Contains(all, onlyReads)
				if on && writes {
					c.WriteError("READONLY You can't write against a read only replica.")
				}
				return on && writes
			})
		}
		rejectedWrites(t, s.space(t).config(), reject, map[string]bool{stream: true, others: false})
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		needReal(t)
		for name, settings := range map[string][2]string{
			"replicas": {"min-replicas-to-write", "1"}, "memory": {"maxmemory", "1"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				socket := startRedis(t)
				raw := redis.NewClient(&redis.Options{Addr: socket})
				t.Cleanup(func() { closes(t, raw) })
				reject := func(on bool) {
					value := "0"
					if on {
						value = settings[1]
					}
					must.Do(t, raw.ConfigSet(t.Context(), settings[0], value).Err())
				}
				cfg := valid()
				cfg.URL = cursorstore.URL("unix://" + socket)
				rejectedWrites(t, cfg, reject, map[string]bool{stream: true, others: true})
			})
		}
	})
}

// onlyReads is a process whose scripts find nothing to write.
const onlyReads = "pod-2"

func rejectedWrites(t *testing.T, cfg cursorstore.Config, reject func(on bool), rejected map[string]bool) {
	t.Helper()
	reports := map[string]error{}
	cfg.Report = func(stream string, err error) { reports[stream] = err }
	client := open(t, cfg)
	cycle := func(when string, rejects bool) {
		t.Helper()
		for name, hit := range rejected {
			store := client.Stream(name)
			err := store.PutStatus(t.Context(), bridge.Status{Stream: name, Owner: "pod-1", Leader: true,
				LastCommit: time.UnixMilli(0)})
			if errors.Is(err, cursorstore.ErrWrites) != (rejects && hit) || (err == nil) == (rejects && hit) {
				t.Errorf("%s, stream %s: write: %v", when, name, err)
			}
			if _, _, err := store.Status(t.Context()); err != nil {
				t.Errorf("%s, stream %s: read: %v", when, name, err)
			}
			if got := reports[name]; errors.Is(got, cursorstore.ErrWrites) != (rejects && hit) ||
				(got == nil) == (rejects && hit) {
				t.Errorf("%s, stream %s: reported %v", when, name, got)
			}
		}
	}
	cycle("before", false)
	reject(true)
	cycle("while writes are rejected", true)
	// An operation that writes nothing does not show that writes work again: a standby beside an
	// owner, and a shutdown after the status has expired.
	for name, hit := range rejected {
		store := client.Stream(name)
		for _, st := range []bridge.Status{{Stream: name, Owner: onlyReads},
			{Stream: name, Owner: onlyReads, State: bridge.StateStopped}} {
			_ = store.PutStatus(t.Context(), st)
			if got := reports[name]; (got == nil) == hit {
				t.Errorf("stream %s: reported %v after a status of %q", name, got, st.State)
			}
		}
	}
	reject(false)
	cycle("afterwards", false)
}
