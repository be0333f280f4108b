//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/learn"
)

// newestFirst is the form that cannot be followed.
const newestFirst = "newest-first"

// TestE2EForms follows every form of export API with the settings that the
// simulator prints for it, and those of a service with the service's profile:
// while it grows, through kills, and back by a rewind.
func TestE2EForms(t *testing.T) {
	t.Parallel()
	for _, name := range exportsim.FormNames()[1:] {
		if form, _ := exportsim.FormNamed(name); form.Backwards() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			followForm(t, name)
		})
	}
}

func followForm(t *testing.T, name string) {
	n, kills := int(size(t, "E2E_EVENTS", 1000, 1000)), int(size(t, "E2E_KILLS", 2, 2))
	form, _ := exportsim.FormNamed(name)
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Rate: 50, Latency: 2 * time.Millisecond,
		Form: form})
	s.simulateForm(name)
	for range kills {
		run := s.run()
		s.awaitPublished(20)
		run.kill()
	}
	s.finish()
	followed := s.readForm()
	followed.wantAll(max(n, len(followed.copies)), 0)

	p, _ := s.command(0, "cursor", "rewind", "--shift-by", "-2", "--execute", "--json")
	var plan struct {
		RepeatsMax *int64 `json:"repeats_max"`
	}
	decode(t, p.stdout(), &plan)
	s.finish()
	again := s.readForm()
	again.wantAll(max(n, len(again.copies)), again.twice())
	if plan.RepeatsMax == nil || again.twice() == 0 || int64(again.twice()) > *plan.RepeatsMax {
		t.Errorf("a rewind by two pages repeated %d events, its plan is %s", again.twice(), p.stdout())
	}
	if len(again.copies) <= n {
		t.Errorf("nothing of the growth came: %d events", len(again.copies))
	}
	s.verifyForm(form)
	t.Logf("e2e: form %s: %d events, %d kills, 0 lost, 0 twice, %d repeated by a rewind", name, len(again.copies),
		kills, again.twice())
}

// TestE2EWindowForms follows the services that list newest first with their profiles, while
// they grow, show events late and fail, through kills.
func TestE2EWindowForms(t *testing.T) {
	t.Parallel()
	for _, name := range config.ProfileNames() {
		form, _ := exportsim.FormNamed(name)
		if !form.Clocked {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, rate := int(size(t, "E2E_EVENTS", 1000, 1000)), 50
			start := time.Now().Add(-time.Duration(n/rate) * time.Second).Truncate(time.Second)
			sim := exportsim.Config{Events: n, Rate: 50, Lag: 2 * time.Second, Start: start, Form: form}
			s := newStage(t, startServers(t, owned{}), sim)
			s.simulateForm(name, "--lag", "2s", "--fail", "500=2%,429=0.5%")
			s.settings["EXPORT_START"], s.settings["EXPORT_SETTLE"] = start.UTC().Format(time.RFC3339), "1s"
			s.settings["EXPORT_POLL_INTERVAL"] = "100ms"
			for range int(size(t, "E2E_KILLS", 2, 5)) {
				run := s.run()
				s.awaitPublished(20)
				run.kill()
			}
			s.finish()
			got, position := s.readForm(), s.checkpoint()
			at := position.Position()
			mark, ok := at.Watermark()
			if !ok || mark.At == start.UnixMilli() {
				t.Fatalf("the watermark is %q", position.Cursor)
			}
			for i := 0; s.truth.EventTime(i).UnixMilli() < mark.At; i++ {
				if seen := s.truth.VisibleAt(i).UnixMilli() < mark.At; seen && (i >= len(got.copies) || got.copies[i] == 0) {
					t.Fatalf("event %d is lost, of %d up to %s", i, len(got.copies), position.Cursor)
				}
			}
			if got.twice() > 0 || got.wrong > 0 || got.records < n/2 {
				t.Errorf("%d records, %d twice, %d wrong", got.records, got.twice(), got.wrong)
			}
		})
	}
}

// simulateForm starts the simulator with a form, and takes the settings that it
// prints. Of a service with a profile, the profile's are used.
func (s *stage) simulateForm(name string, extra ...string) {
	s.t.Helper()
	s.simulate(append(extra, "--form", name)...)
	var printed map[string]string
	eventually(s.t, stepTimeout, "the settings of the form", func() bool {
		printed = make(map[string]string)
		for line := range strings.Lines(string(s.sim.stdout())) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.HasPrefix(key, "EXPORT_") ||
				strings.HasPrefix(key, "KAFKA_") {
				printed[key] = strings.Trim(value, "'")
			}
		}
		return printed["EXPORT_API_KEY"] != "" || printed["EXPORT_AUTH"] == "none"
	})
	delete(s.settings, "EXPORT_API_KEY")
	profile, service := config.Profile(name)
	maps.Copy(s.settings, printed)
	for line := range strings.Lines(profile) {
		key, _, _ := strings.Cut(strings.TrimPrefix(line, "#"), "=")
		if !strings.Contains(line, "# to be set") && key != "EXPORT_PARAMS" && key != "EXPORT_URL" {
			delete(s.settings, key) // as the profile has it
		}
	}
	if service {
		s.settings["EXPORT_PROFILE"] = name
		s.settings["EXPORT_RATE_LIMIT"] = "1000/s"        // in place of the service's
		s.settings["EXPORT_HEADERS"] = "DD-API-KEY: none" // which the simulator does not ask for
	}
	s.settings["EXPORT_PAGE_SIZE"] = "50"
}

// TestE2ELearn follows an API with the profile that learn wrote.
func TestE2ELearn(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"nested": {"-H", "Authorization: Bearer KEY", "URL/v1/events?limit=50"},
		"link":   {"-u", "exporter:KEY", "URL/items?pageSize=50"},
		"cursor-alone": {"-H", "Authorization: Bearer KEY", "-d", `{"limit":50,"start_time":"2020-01-01T00:00:00Z"}`,
			"URL/api/v2/auditevents"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			form, _ := exportsim.FormNamed(name)
			s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 500, Form: form})
			s.simulateForm(name)
			key, file := s.settings["EXPORT_API_KEY"], filepath.Join(s.dir, "learned.env")
			args := []string{"learn", "-o", file, "--", "curl"}
			for _, word := range command {
				args = append(args, strings.NewReplacer("KEY", key, "URL", s.api).Replace(word))
			}
			s.command(0, args...)
			s.learned(file, key)
			s.finish()
			s.readForm().wantAll(500, 0)
		})
	}
}

// learned leaves a profile and a key of all that is set for the API.
func (s *stage) learned(profile, key string) {
	maps.DeleteFunc(s.settings, func(name, _ string) bool {
		return strings.HasPrefix(name, "EXPORT_") || name == "KAFKA_KEY"
	})
	s.settings["EXPORT_PROFILE"], s.settings["EXPORT_API_KEY"] = profile, key
}

// TestE2ERecording follows recordings with the profiles that were learned with them.
func TestE2ERecording(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"nested": "/v1/events", "slack-audit-logs": "/audit/v1/logs"} {
		rate := map[string]float64{"slack-audit-logs": 0.1}[name] // by which the list has a past
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			form, _ := exportsim.FormNamed(name)
			s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 500, Rate: rate, Form: form})
			s.simulateForm(name)
			file, record := filepath.Join(s.dir, "learned.env"), filepath.Join(s.dir, "recording.json")
			s.command(0, "learn", "-o", file, "--record", record, "--",
				"curl", "-H", "Authorization: Bearer "+s.settings["EXPORT_API_KEY"], s.api+path+"?limit=50")
			text := must.Get(os.ReadFile(record))(t)
			h := must.Get(learn.NewReplay(text))(t)
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			s.learned(file, "any")
			s.settings["EXPORT_URL"] = server.URL
			if form.Clocked {
				s.settings["EXPORT_SETTLE"] = "0s"
			}
			s.finish()
			records := 0
			s.eachRecord(s.topic, func(*kgo.Record) { records++ })
			if records != 150 {
				t.Errorf("%d of 150 items were published", records)
			}
		})
	}
}

// readForm judges the topic: each record is an item of the form, byte for byte,
// and an event has one id.
func (s *stage) readForm() *contents {
	s.t.Helper()
	c := newContents(s.t.Errorf)
	ids := make(map[string]int)
	s.eachRecord(s.topic, func(r *kgo.Record) {
		c.records++
		var item struct{ Event json.RawMessage }
		if err := json.Unmarshal(r.Value, &item); err != nil {
			s.t.Errorf("offset %d: %v", r.Offset, err)
			return
		}
		i, ok := exportsim.IndexOf(item.Event)
		if !ok || !s.private.agree(s.truth.Event(i), r) {
			if c.wrong++; c.wrong < maxComplaints {
				s.t.Errorf("offset %d holds %s, event %d is %s", r.Offset, r.Value, i, s.truth.Event(i))
			}
			return
		}
		id := deadletter.Header(r, "ce_id")
		if other, taken := ids[id]; id == "" || taken && other != i {
			s.t.Errorf("events %d and %d have the ce_id %q", i, other, id)
		}
		ids[id] = i
		c.count(i)
		c.lanes[r.Partition] = append(c.lanes[r.Partition], i)
	})
	if len(ids) != len(c.copies)-c.lost(len(c.copies)) {
		s.t.Errorf("%d ids of %d events", len(ids), len(c.copies))
	}
	return c
}

// verifyForm compares the topic with the API, if the form has bounds.
func (s *stage) verifyForm(form exportsim.Form) {
	s.t.Helper()
	const noBounds = 2
	code := 0
	if form.StartParam == "none" || form.EndParam == "none" {
		code = noBounds
	}
	from, to := s.truth.EventTime(0), s.truth.EventTime(s.config.Events/2)
	p, _ := s.command(code, "verify", "--from", from.UTC().Format(time.RFC3339), "--to", to.UTC().Format(time.RFC3339))
	if code == noBounds && !bytes.Contains(p.stderr(), []byte("_PARAM=none")) {
		s.t.Errorf("verify without bounds says %s", p.stderr())
	}
}

// TestE2ENewestFirst: an API that lists backwards is refused before it is
// followed into the past.
func TestE2ENewestFirst(t *testing.T) {
	t.Parallel()
	form, _ := exportsim.FormNamed(newestFirst)
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 1000, Form: form})
	s.simulateForm(newestFirst)
	run := s.run("--once")
	run.wantExit(5, stepTimeout)
	if said := string(run.stderr()); !strings.Contains(said, "newest first") {
		t.Errorf("it says %s", said)
	}
	if c := s.readForm(); c.records > 0 {
		t.Errorf("%d records were published", c.records)
	}
}
