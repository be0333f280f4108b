//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/control"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/ops"
)

const adminToken = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"

// lock gives the stage's bridge a token.
func (s *stage) lock() {
	s.t.Helper()
	path := filepath.Join(s.dir, "token")
	must.Do(s.t, os.WriteFile(path, []byte(adminToken+"\n"), 0o600))
	s.settings["HTTP_ADMIN_TOKEN_FILE"] = path
}

// ask asks the bridge's HTTP server for JSON, and decodes the answer, if it is
// wanted. A body makes it an action.
func (s *stage) ask(path, token, body string, into any) (code int, answer []byte) {
	s.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req := must.Get(http.NewRequestWithContext(s.t.Context(), method, "http://"+s.ops+"/api/v1"+path,
		strings.NewReader(body)))(s.t)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res := must.Get(http.DefaultClient.Do(req))(s.t)
	defer res.Body.Close()
	var all bytes.Buffer
	must.Get(all.ReadFrom(res.Body))(s.t)
	if into != nil && res.StatusCode == http.StatusOK {
		decode(s.t, all.Bytes(), into)
	}
	return res.StatusCode, all.Bytes()
}

// act does an action and wants it applied as this epoch.
func (s *stage) act(path, body string, epoch int64) {
	s.t.Helper()
	var done ops.Done
	code, answer := s.ask(path, adminToken, body, &done)
	if code != 200 || !done.Applied || done.Version != (bridge.Version{Epoch: epoch}) || done.By != "e2e" ||
		time.Since(done.At) > time.Minute {
		s.t.Fatalf("%s: %d %s, want it applied as epoch %d", path, code, answer, epoch)
	}
}

func TestE2ESteersOverHTTP(t *testing.T) {
	t.Parallel()
	inEachMode(t, steersOverHTTP)
}

func steersOverHTTP(t *testing.T, v *backends, mode bridge.Mode) {
	const n = 3000
	s := newStage(t, v, exportsim.Config{Events: n, Latency: 10 * time.Millisecond})
	s.deliver(mode)
	s.settings["EXPORT_PAGE_SIZE"] = "100"
	s.lock()
	s.simulate()
	run := s.run()
	s.awaitState("idle")
	const stream = "/streams/events"

	for _, token := range []string{"", "wrong"} {
		if code, answer := s.ask(stream+"/pause", token, `{"reason":"why"}`, nil); code != 401 {
			t.Errorf("a pause with the token %q: %d %s, want 401", token, code, answer)
		}
	}
	s.act(stream+"/pause", `{"reason":"the vendor migrates","for":"30m"}`, 1)
	s.awaitState("paused")
	if code, answer := s.ask(stream+"/resume", adminToken, `{"reason":""}`, nil); code != 400 {
		t.Errorf("a resume without a reason: %d %s", code, answer)
	}
	s.act(stream+"/resume", `{"reason":"it is done"}`, 2)
	s.awaitState("idle")
	if code, answer := s.ask(stream+"/resume", adminToken, `{"reason":"again"}`, nil); code != 409 ||
		!bytes.Contains(answer, []byte("not paused")) {
		t.Errorf("a resume of what is not paused: %d %s, want 409", code, answer)
	}

	// The plan is the command's.
	var plan, commands control.Plan
	if code, answer := s.ask(stream+"/move", adminToken, `{"to":{"shift":-5},"reason":"bad deploy"}`, &plan); code != 200 {
		t.Fatalf("plan: %d %s", code, answer)
	}
	p, _ := s.command(0, "cursor", "rewind", "--shift-by", "-5", "--json")
	decode(t, p.stdout(), &commands)
	if diff := cmp.Diff(commands, plan); diff != "" {
		t.Errorf("the plan differs from the command's (-command +http):\n%s", diff)
	}
	if plan.BaseEpoch != 2 || plan.Repeats.Pages < 5 || int64(plan.Repeats.Min) != n-plan.To.Events ||
		plan.Repeats.Max != plan.Repeats.Min || s.checkpoint().Epoch != 2 {
		t.Errorf("plan %+v, at epoch %d: want at least five pages back, and nothing changed", plan, s.checkpoint().Epoch)
	}

	feed := s.feed()
	execute := fmt.Sprintf(`{"to":{"entry":"%s"},"reason":"bad deploy","execute":true,"confirm":"events",`+
		`"base_epoch":%d}`, plan.To.Version, plan.BaseEpoch)
	s.act(stream+"/move", execute, 3)
	if code, answer := s.ask(stream+"/move", adminToken, execute, nil); code != 409 ||
		!bytes.Contains(answer, []byte("moved, paused or resumed after the plan was made")) {
		t.Errorf("the same once more: %d %s, want 409", code, answer)
	}
	feed.await("sample", `"origin":"rewind"`)
	feed.await("log", `"command applied"`)
	feed.await("detail", `"epoch":3`)
	s.awaitState("idle")

	s.wantInHistory()
	cursor := s.checkpoint().Cursor
	for _, path := range []string{"/status", stream + "/history"} {
		if code, answer := s.ask(path, "", "", nil); code != 200 || cursor != "" && bytes.Contains(answer, []byte(cursor)) {
			t.Errorf("%s: %d, or it shows the cursor", path, code)
		}
	}
	if all := feed.all(); cursor != "" && strings.Contains(all, cursor) || strings.Contains(all, adminToken) ||
		strings.Contains(all, `"value"`) {
		t.Error("the feed shows a cursor, the token or an event")
	}

	run.stop()
	if feed.running() {
		t.Error("the feed goes on when the bridge has ended")
	}
	c := s.read()
	if got, want := c.stretches(), []benchRun{{0, n}, {int(plan.To.Events), n}}; !slices.Equal(got, want) {
		t.Errorf("the topic holds %v, want %v: the rewind once", got, want)
	}
	c.wantAll(n, int(plan.Repeats.Min))
	s.eachOutput(func(name string, content []byte) {
		if name != "token" && bytes.Contains(content, []byte(adminToken)) {
			t.Errorf("%s has the token in it", name)
		}
	})
}

// wantInHistory wants the three actions in the history, over HTTP and from the
// command, with who and why.
func (s *stage) wantInHistory() {
	s.t.Helper()
	type change struct {
		Kind        bridge.Kind
		Who, Reason string
	}
	want := []change{
		{bridge.KindRewind, "http:admin@127.0.0.1", "bad deploy"}, {bridge.KindResume, "http:admin@127.0.0.1", "it is done"},
		{bridge.KindPause, "http:admin@127.0.0.1", "the vendor migrates"},
	}
	changes := func(all []*bridge.Change) (list []change) {
		for _, c := range all {
			if c == nil || len(list) > 0 && list[len(list)-1].Reason == c.Reason {
				continue
			}
			list = append(list, change{c.Kind, c.Who, c.Reason})
		}
		return list
	}
	var history struct {
		Source  string
		Entries []bridge.Checkpoint
	}
	if code, answer := s.ask("/streams/events/history?limit=1000", "", "", &history); code != 200 ||
		history.Source != "redis" {
		s.t.Fatalf("history: %d %s", code, answer)
	}
	var overHTTP, shown []*bridge.Change
	for _, e := range history.Entries {
		overHTTP = append(overHTTP, e.Change)
	}
	var entries []bridge.Checkpoint
	p, _ := s.command(0, "cursor", "history", "--limit", "0", "--json")
	decode(s.t, p.stdout(), &entries)
	for _, e := range entries {
		shown = append(shown, e.Change)
	}
	for _, got := range [][]change{changes(overHTTP), changes(shown)} {
		if diff := cmp.Diff(want, got); diff != "" {
			s.t.Errorf("changes in the history (-want +got):\n%s", diff)
		}
	}
}

// feed is what a page would be told.
type feed struct {
	t     *testing.T
	done  chan struct{} // closed when it has ended
	mu    sync.Mutex    // guards lines
	lines []string
}

// feed connects to the bridge's events.
func (s *stage) feed() *feed {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	s.t.Cleanup(leave)
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.ops+"/api/v1/events?stream=events",
		http.NoBody))(s.t)
	res := must.Get(http.DefaultClient.Do(req))(s.t)
	f := &feed{t: s.t, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			f.mu.Lock()
			f.lines = append(f.lines, lines.Text())
			f.mu.Unlock()
		}
	}()
	f.await("detail", "")
	return f
}

func (f *feed) all() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.lines, "\n")
}

// await waits for an event that holds text.
func (f *feed) await(event, text string) {
	f.t.Helper()
	eventually(f.t, stepTimeout, fmt.Sprintf("%s with %s in the feed", event, text), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.ContainsFunc(f.lines, func(line string) bool {
			return strings.HasPrefix(line, "data: ") &&
				strings.Contains(line, text)
		}) &&
			slices.Contains(f.lines, "event: "+event)
	})
}

func (f *feed) running() bool {
	select {
	case <-f.done:
		return false
	case <-time.After(time.Second):
		return true
	}
}

// What the server shows is what the commands show.
func TestE2EShowsOverHTTP(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"] = "50"
	s.settings["HTTP_SHOW_EVENTS"] = "true"
	s.serveAltered(func(i int, item []byte) []byte {
		if i%100 == 7 {
			return fmt.Appendf(nil, "%d", i)
		}
		return item
	})
	run := s.run()
	s.awaitState("idle")

	var listed []struct{ Letter, Reason, Message string }
	p, _ := s.command(0, "dlq", "list", "--json")
	decode(t, p.stdout(), &listed)
	var dead struct {
		Letters []struct {
			Partition, Index, Bytes int
			Offset                  int64
			Reason, Message         string
		}
		Total int
		More  bool
	}
	if code, answer := s.ask("/streams/events/dead-letters?limit=4", "", "", &dead); code != 200 || dead.Total != 4 ||
		!dead.More || len(listed) != n/100 || len(dead.Letters) != 4 {
		t.Fatalf("dead letters: %d %s, the command lists %d", code, answer, len(listed))
	}
	for i, l := range dead.Letters {
		if place := fmt.Sprintf("%d:%d", l.Partition, l.Offset); place != listed[i].Letter ||
			l.Reason != listed[i].Reason || l.Message != listed[i].Message || l.Bytes == 0 || l.Index != 7 {
			t.Errorf("letter %d is %+v, the command lists %+v", i, l, listed[i])
		}
	}

	s.command(0, "backfill", "--here", "--from", s.timeOf(0), "--to", s.timeOf(n/2), "--windows", "2", "--allow-overlap",
		"--execute")
	var jobs struct {
		Jobs []struct {
			ID, Kind, Stream, State string
			Windows, Done           int
			Events                  int64
		}
	}
	if code, answer := s.ask("/jobs", "", "", &jobs); code != 200 || len(jobs.Jobs) != 1 {
		t.Fatalf("jobs: %d %s", code, answer)
	}
	own := s.jobs()[0]
	if j := jobs.Jobs[0]; j.ID != own.ID || j.Kind != "backfill" || j.State != "done" || j.Windows != 2 ||
		j.Done != 2 || j.Events != int64(own.TotalEvents) || j.Stream != "events" {
		t.Errorf("job %+v, the command lists %+v", j, own)
	}

	var overHTTP, shown []map[string]any
	p, _ = s.command(0, "status", "--json")
	decode(t, p.stdout(), &shown)
	if code, answer := s.ask("/status", "", "", &overHTTP); code != 200 {
		t.Fatalf("status: %d %s", code, answer)
	}
	for _, all := range [][]map[string]any{shown, overHTTP} {
		for _, name := range []string{"live", "lag_seconds"} { // it moves
			delete(all[0], name)
		}
		c := all[0]["checkpoint"].(map[string]any)
		for _, name := range []string{"cursor", "cursor_hash", "tail", "tail_items", "seq", "written_at", "position_time",
			"owner", "session", "kind"} {
			delete(c, name)
		}
	}
	if diff := cmp.Diff(shown, overHTTP); diff != "" {
		t.Errorf("status differs from the command's (-command +http):\n%s", diff)
	}

	// Without a token this machine may act, and another name than ours is not answered.
	f := s.feed()
	if code, answer := s.ask("/streams/events/move", "",
		`{"to":{"earliest":true},"reason":"look","execute":true,"confirm":"events","base_epoch":0}`, nil); code != 200 {
		t.Fatalf("move: %d %s", code, answer)
	}
	f.await("sample", `"value":"{`)
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.ops+"/api/v1/status",
		http.NoBody))(t)
	req.Host = "evil.example"
	res := must.Get(http.DefaultClient.Do(req))(t)
	var refusal struct{ Error, Hint string }
	if err := json.NewDecoder(res.Body).Decode(&refusal); err != nil || res.StatusCode != 421 || refusal.Hint == "" {
		t.Errorf("by another name: %s %+v", res.Status, refusal)
	}
	if _, body := s.get("/metrics"); !bytes.Contains(body, []byte("\nprocess_open_fds ")) && runtime.GOOS == "linux" ||
		!bytes.Contains(body, []byte("\ngo_goroutines ")) {
		t.Error("the metrics lack those of the process itself")
	}
	run.stop()
}

// A process whose servers are away for longer than a loop may stand still is
// alive: restarting it would not help.
func TestE2EAliveWhileServersAreAway(t *testing.T) {
	v := startServers(t, owned{})
	names := map[string]string{"EXPORT_URL": "api", "KAFKA_BROKERS": "kafka", "REDIS_URL": "redis"}
	var all []func()
	for away, name := range names {
		s := newStage(t, v, exportsim.Config{Events: 100})
		s.simulate()
		nobody := servers.FreeAddress(t)
		s.settings[away] = map[string]string{"EXPORT_URL": "http://" + nobody, "KAFKA_BROKERS": nobody,
			"REDIS_URL": "redis://" + nobody}[away]
		run := s.run()
		eventually(t, stepTimeout, "/livez", func() bool { code, _ := s.get("/livez"); return code == 200 })
		died := s.alive(65 * time.Second)
		all = append(all, func() {
			if text := <-died; text != "" {
				t.Errorf("without %s %s", away, text)
			}
			if code, body := s.get("/readyz?verbose"); code != 200 || !bytes.Contains(body, []byte(name+" is down since")) {
				t.Errorf("/readyz without %s: %d %s", away, code, body)
			}
			run.stop()
		})
	}
	t.Parallel() // the minute has begun, and passes beside all other tests
	for _, wait := range all {
		wait()
	}
}

// alive asks the bridge for so long whether it is alive, and then says when it
// was not, or nothing.
func (s *stage) alive(length time.Duration) <-chan string {
	died := make(chan string, 1)
	go func() {
		defer close(died)
		for began := time.Now(); time.Since(began) < length; passes(500 * time.Millisecond) {
			if code, body := s.get("/livez"); code != 200 {
				died <- fmt.Sprintf("for %s: /livez = %d %s", time.Since(began).Round(time.Second), code, body)
				return
			}
		}
	}()
	return died
}
