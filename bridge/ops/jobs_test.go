package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/ops"
)

// fakeJobs records its calls.
type fakeJobs struct {
	err error // of every answer

	mu   sync.Mutex // guards all below
	asks []string   // that change something
	last *backfill.Spec
}

func (f *fakeJobs) Plan(_ context.Context, stream string, r *backfill.Spec) (*backfill.Plan, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = r
	id := r.ID
	if id == "" {
		id = "aaaaaa"
	}
	return &backfill.Plan{Job: backfill.Job{
		ID: id, Kind: r.Kind, Stream: stream, Topic: "export." + stream, From: r.From, To: r.To,
		Windows:  backfill.Split(r.From, r.To, max(1, r.Windows)),
		Parallel: 2, RateLimit: 5, PageSize: 100, Who: r.Who, Reason: r.Reason, Created: 5000, State: backfill.Running,
	}, Notes: []string{"a note"}}, f.err
}

func (f *fakeJobs) did(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks = append(f.asks, what)
}

func (f *fakeJobs) Start(_ context.Context, p *backfill.Plan) error {
	f.did("start " + p.Job.ID + " by " + p.Job.Who)
	return f.err
}

func (f *fakeJobs) Resume(_ context.Context, id, by string, execute bool) (backfill.Job, error) {
	if f.err != nil { // as of an unknown job
		return backfill.Job{}, f.err
	}
	if execute {
		f.did("resume " + id + " by " + by)
	}
	return backfill.Job{ID: id, Kind: backfill.Replay, Stream: "events", State: backfill.Running}, nil
}

func (f *fakeJobs) Cancel(_ context.Context, c backfill.Cancellation, execute bool) (backfill.Job, error) {
	if f.err != nil {
		return backfill.Job{}, f.err
	}
	j := backfill.Job{ID: c.ID, Kind: backfill.Backfill, Stream: "events", State: backfill.Running}
	if execute {
		f.did("cancel " + c.ID + " by " + c.By + " because " + c.Why)
		j.State = backfill.Cancelled
	}
	return j, nil
}

func (f *fakeJobs) Trouble(l *backfill.Listed) string {
	if l.Status() != backfill.Interrupted {
		return ""
	}
	return "the API is away from " + l.ID
}

// jobSite is a site with jobs, and its log.
func jobSite(cfg ops.Config) (*site, *fakeJobs, *strings.Builder) {
	jobs, log := new(fakeJobs), new(strings.Builder)
	return newSite(cfg, func(p *ops.Parts) {
		p.Jobs, p.Logger = jobs, slog.New(slog.NewTextHandler(log, nil))
	}), jobs, log
}

const jobsPath = "POST /api/v1/jobs"

func newJob(more string) string {
	return `{"stream":"events","kind":"backfill","from":"2026-01-01T00:00:00Z","to":"2026-02-01T00:00:00Z",` +
		`"windows":4,"reason":"why"` + more + `}`
}

// A job is planned, then started with the id and the hash of its plan. The log has caller and
// reason.
func TestStartJob(t *testing.T) {
	t.Parallel()
	s, jobs, log := jobSite(ops.Config{})
	var plan map[string]any
	w := s.do(ask{line: jobsPath, body: newJob("")})
	if err := json.Unmarshal(w.Body.Bytes(), &plan); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	hash, _ := plan["plan_hash"].(string)
	delete(plan, "plan_hash")
	want := map[string]any{
		"id": "aaaaaa", "kind": "backfill", "stream": "events", "state": "planned", "topic": "export.events",
		"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z",
		"windows": 4.0, "done": 0.0, "events": 0.0, "progress": 0.0, "progress_with_events": 0.0, "parallel": 2.0,
		"rate_limit": 5.0, "who": "http:127.0.0.1", "reason": "why", "begun": "1970-01-01T00:00:05Z",
		"page_size": 100.0, "notes": []any{"a note"},
	}
	if diff := cmp.Diff(want, plan); diff != "" || len(hash) != 16 {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if len(jobs.asks) > 0 || log.Len() > 0 {
		t.Errorf("a plan did %v, and logged %s", jobs.asks, log)
	}
	execute := func(id, hash string) string {
		return newJob(fmt.Sprintf(`,"execute":true,"confirm":"events","id":%q,"plan_hash":%q`, id, hash))
	}
	wantRefusal(t, s.do(ask{line: jobsPath, body: execute("bbbbbb", hash)}), 409, "the plan has changed")
	if len(jobs.asks) > 0 {
		t.Errorf("another plan did %v", jobs.asks)
	}
	w = s.do(ask{line: jobsPath, body: execute("aaaaaa", hash)})
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"state":"running"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if diff := cmp.Diff([]string{"start aaaaaa by http:127.0.0.1"}, jobs.asks); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{`msg="action done"`, "stream=events", `action="start backfill"`, "job=aaaaaa",
		"who=http:127.0.0.1", "reason=why"} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("the log lacks %s: %s", text, log)
		}
	}
	if w := s.do(ask{line: jobsPath, body: strings.Replace(newJob(""), "2026-01-01T00:00:00Z", "earliest",
		1)}); w.Code != 200 || jobs.last.From != 0 {
		t.Errorf("from the earliest event: %d %s", w.Code, w.Body)
	}
}

func TestActOnJob(t *testing.T) {
	t.Parallel()
	s, jobs, log := jobSite(ops.Config{})
	for _, tc := range []struct{ action, did, state string }{
		{"resume", "resume aaaaaa by http:127.0.0.1", "running"}, {"cancel",
			"cancel aaaaaa by http:127.0.0.1 because why", "cancelled"},
	} {
		path := jobsPath + "/aaaaaa/" + tc.action
		jobs.asks = nil
		log.Reset()
		if w := s.do(ask{line: path, body: anyReason}); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"state":"running"`) || len(jobs.asks)+log.Len() > 0 {
			t.Errorf("%s without execute: %d %s, did %v", tc.action, w.Code, w.Body, jobs.asks)
		}
		w := s.do(ask{line: path, body: `{"reason":"why","execute":true}`})
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"state":"`+tc.state+`"`) || len(jobs.asks) != 1 ||
			jobs.asks[0] != tc.did {
			t.Errorf("%s: %d %s, did %v", tc.action, w.Code, w.Body, jobs.asks)
		}
		if !strings.Contains(log.String(), `msg="action done" stream=events action="`+tc.action) {
			t.Errorf("%s: the log says %s", tc.action, log)
		}
	}
}

func TestJobBodies(t *testing.T) {
	t.Parallel()
	const do = `,"execute":true,"confirm":"events","id":"aaaaaa","plan_hash":"x"`
	for _, tc := range []struct {
		name, line, body string
		code             int
		text             string
	}{
		{"no reason", jobsPath, strings.Replace(newJob(""), "why", "", 1), 400, "reason is empty"},
		{"another stream", jobsPath, strings.Replace(newJob(""), "events", "users", 1), 404, `unknown stream "users"`},
		{"no bound", jobsPath, `{"stream":"events","kind":"backfill","reason":"why"}`, 400, `from: "" is not a time`},
		{"a relative time", jobsPath, strings.Replace(newJob(""), "2026-02-01T00:00:00Z", "-1d", 1), 400, `to: "-1d"`},
		{"text for windows", jobsPath, newJob(`,"parallel":"4"`), 400, "parallel is string, want a whole number"},
		{"text for a rate", jobsPath, newJob(`,"rate_limit":"10/s"`), 400, "rate_limit is string, want a number"},
		{"text for types", jobsPath, newJob(`,"events":"a"`), 400, "events is string, want a list"},
		{"an unknown field", jobsPath, newJob(`,"resume":"aaaaaa"`), 400, "resume"},
		{"not confirmed", jobsPath, newJob(`,"execute":true`), 400, "confirm"},
		{"not planned", jobsPath, newJob(`,"execute":true,"confirm":"events"`), 400, "plan the job"},
		{"a strange id", jobsPath, newJob(strings.Replace(do, "aaaaaa", "../x", 1)), 400, "plan the job"},
		{"cancelled without a reason", jobsPath + "/aaaaaa/cancel", `{"execute":true}`, 400, "reason is empty"},
		{"resumed with a plan", jobsPath + "/aaaaaa/resume", `{"reason":"why","windows":3}`, 400, "windows"},
		{"no id", jobsPath + "/seven/cancel", `{"reason":"why","execute":true}`, 404, `"seven" is not a job id`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, jobs, _ := jobSite(ops.Config{})
			wantRefusal(t, s.do(ask{line: tc.line, body: tc.body}), tc.code, tc.text)
			if len(jobs.asks) > 0 || jobs.last != nil {
				t.Errorf("it did %v, and planned %+v", jobs.asks, jobs.last)
			}
		})
	}
}

// Jobs require the same authorization as other actions.
func TestWhoMayStartJobs(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "/aaaaaa/cancel", "/aaaaaa/resume"} {
		s, jobs, log := jobSite(ops.Config{Addr: ":8080", AdminToken: rightToken})
		w := s.do(ask{line: jobsPath + path, body: `{"reason":"why","execute":true}`})
		wantRefusal(t, w, 401, "token is required")
		if len(jobs.asks) > 0 || !strings.Contains(log.String(), "request rejected") {
			t.Errorf("%s did %v", path, jobs.asks)
		}
		if w := newSite(ops.Config{}).do(ask{line: jobsPath + path, body: anyReason}); w.Code != 405 && w.Code != 404 {
			t.Errorf("%s without jobs: %d", path, w.Code)
		}
	}
	s, _, _ := jobSite(ops.Config{})
	if w := s.do(ask{line: "DELETE /api/v1/jobs"}); w.Code != 405 || w.Header().Get("Allow") != "GET, POST" {
		t.Errorf("DELETE: %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

func TestJobFailures(t *testing.T) {
	t.Parallel()
	refused := func(why backfill.Reason) error { return &backfill.RejectedError{Reason: why} }
	for _, f := range []failing{
		{backfill.Invalid("windows", "is not within 1 to 1000"), 400, "correct windows"},
		{refused(backfill.Unknown), 404, "/api/v1/jobs"},
		{refused(backfill.IsDone), 409, ""},
		{refused(backfill.InUse), 409, "wait until that process stops, or ends the job"},
		{refused(backfill.WasPaused), 409, "resume the job again to end the pause"},
		{refused(backfill.Overlaps), 409,
			`choose another range, or "allow_overlap": true publishes it again, with the same ce_id`},
		{refused(backfill.NoBounds), 409, "correct these settings, if the API has bounds"},
		{backfill.ErrStopping, 503, "retry when it has restarted"},
		{fmt.Errorf("commit: %w", &bridge.Fault{Err: errors.New("no brokers"), Hint: "check"}), 503, "check"},
		{fmt.Errorf("start: %w", errTimeout), 504, "check /api/v1/jobs: the change may have been applied"},
		{errors.New("strange"), 500, ""},
	} {
		s, jobs, log := jobSite(ops.Config{})
		jobs.err = f.err
		for _, a := range []ask{{line: jobsPath, body: newJob("")},
			{line: jobsPath + "/aaaaaa/cancel", body: `{"reason":"why","execute":true}`}} {
			w := s.do(a)
			wantRefusal(t, w, f.code, f.err.Error())
			if !strings.Contains(w.Body.String(), fmt.Sprintf(`"hint":%q`, f.hint)) {
				t.Errorf("%s: %s lacks the hint %q", a.line, w.Body, f.hint)
			}
		}
		if !strings.Contains(log.String(), `msg="action failed"`) || !strings.Contains(log.String(), "action=cancel job=aaaaaa") {
			t.Errorf("%v: the log says %s", f.err, log)
		}
	}
}

// The list says why a job of this process waits.
func TestJobsInTrouble(t *testing.T) {
	t.Parallel()
	s, _, _ := jobSite(ops.Config{})
	s.records.jobs = []backfill.Listed{{Job: backfill.Job{ID: "aaaaaa", State: backfill.Running}},
		{Job: backfill.Job{ID: "bbbbbb", State: backfill.Done}}}
	body := s.do(ask{line: "GET /api/v1/jobs"}).Body.String()
	if !strings.Contains(body, `"trouble":"the API is away from aaaaaa"`) || strings.Contains(body, "from bbbbbb") {
		t.Error(body)
	}
}

// TestJobsIncomplete: the jobs that could be read are listed, and why others are not.
func TestJobsIncomplete(t *testing.T) {
	t.Parallel()
	s, _, _ := jobSite(ops.Config{})
	s.records.err = errors.New("job b is newer")
	if r := s.do(ask{line: "GET /api/v1/jobs"}); r.Code != http.StatusInternalServerError {
		t.Errorf("no jobs: %d %s", r.Code, r.Body)
	}
	s, _, _ = jobSite(ops.Config{})
	s.records.jobs, s.records.err = []backfill.Listed{{Job: backfill.Job{ID: "aaaaaa"}}}, errors.New("job b is newer")
	body := s.do(ask{line: "GET /api/v1/jobs"}).Body.String()
	if !strings.Contains(body, `"id":"aaaaaa"`) || !strings.Contains(body, `"incomplete":"job b is newer"`) {
		t.Error(body)
	}
}
