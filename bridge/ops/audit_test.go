package ops_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/door"
)

// recordedSite is a site with an audit log and a log.
type recordedSite struct {
	*site
	audit string
	log   *safeBuffer
}

func newRecordedSite(t *testing.T, cfg ops.Config) *recordedSite {
	t.Helper()
	s := &recordedSite{audit: filepath.Join(t.TempDir(), "audit"), log: new(safeBuffer)}
	lines := must.Get(door.OpenAudit(s.audit))(t)
	t.Cleanup(func() { _ = lines.Close() })
	s.site = newSite(cfg, func(p *ops.Parts) {
		p.Audit, p.Jobs, p.Logger = lines, new(fakeJobs), slog.New(slog.NewTextHandler(s.log, nil))
		p.Log, p.Samples = ops.NewLogTail(slog.DiscardHandler), ops.NewSampler(false)
	})
	return s
}

// audited is a site with named tokens, a trusted proxy and an audit log.
type audited struct {
	*recordedSite
	people
}

func newAudited(t *testing.T) *audited {
	t.Helper()
	p := newPeople(t)
	cfg := p.config()
	cfg.ProxyUserHeader, cfg.TrustedProxies, cfg.ProxyRole = "X-Remote-User", []string{"10.9.0.0/24"}, "act"
	return &audited{recordedSite: newRecordedSite(t, cfg), people: p}
}

func (a *audited) records(t *testing.T) (all []door.Record) {
	t.Helper()
	text := must.Get(os.ReadFile(a.audit))(t)
	for line := range strings.Lines(string(text)) {
		var r door.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if time.Since(r.Time) > time.Minute {
			t.Errorf("line %q: time", line)
		}
		all = append(all, r)
	}
	for _, secret := range []string{a.actor, a.reader, rightToken, strings.Fields(a.lines)[2]} {
		if strings.Contains(string(text), secret) {
			t.Error("the audit log has a secret")
		}
	}
	return all
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// Each action, and each rejected request, is a line.
func TestAudit(t *testing.T) {
	t.Parallel()
	const status, resume = "GET /api/v1/status", "POST /api/v1/jobs/k3xq7a/resume"
	a := newAudited(t)
	for _, ask := range []ask{
		{line: pausePath, body: anyReason, header: bearer(a.actor)},
		{line: pausePath, body: anyReason, peer: "10.9.0.7:1",
			header: map[string]string{"X-Remote-User": "carol@example.com"}},
		{line: resume, body: `{"reason":"why","execute":true}`, header: bearer(rightToken)},
		{line: resume, body: `{"reason":"why"}`, header: bearer(rightToken)},    // a plan
		{line: pausePath, body: `{"reason":""}`, header: bearer(a.actor)},       // no action
		{line: status, header: bearer(a.reader)},                                // allowed to read
		{line: "GET /api/v1/session", header: map[string]string{"Cookie": "x"}}, // the page asks
		{line: pausePath, body: anyReason, header: bearer(a.reader)},
		{line: status + "?access_token=" + a.reader},
		{line: "GET /api/v1/session", header: bearer("wrong")},
		{line: status, host: "evil.example"},
		{line: pausePath, body: anyReason, header: map[string]string{"Sec-Fetch-Site": "cross-site"}},
	} {
		a.do(ask)
	}
	const local, jobs = "127.0.0.1", "POST /api/v1/jobs/k3xq7a/resume"
	paused := door.Record{
		Outcome: door.Allowed, Address: local, Request: pausePath, Action: "pause", Stream: "events", Reason: "why",
	}
	byAlice, byCarol, byBob := paused, paused, paused
	byAlice.Who, byAlice.Auth = "alice", door.ByToken
	byCarol.Who, byCarol.Auth, byCarol.Address = "carol@example.com", door.ByProxy, "10.9.0.7"
	byBob.Who, byBob.Auth, byBob.Outcome, byBob.Status, byBob.Reason = "bob", door.ByToken, door.Denied, 403, ""
	want := []door.Record{
		byAlice, byCarol,
		{Outcome: door.Allowed, Who: "admin", Auth: door.ByToken, Address: local, Request: jobs, Action: "resume",
			Job: "k3xq7a", Reason: "why"},
		byBob,
		{Outcome: door.Denied, Address: local, Request: status, Status: 401},
		{Outcome: door.Denied, Address: local, Request: "GET /api/v1/session", Status: 401},
		{Outcome: door.Denied, Address: local, Request: status, Status: 421},
		{Outcome: door.Denied, Address: local, Request: pausePath, Action: "pause", Status: 403},
	}
	got := a.records(t)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(door.Record{}, "Time", "Error")); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	for _, r := range got {
		if (r.Error == "") != (r.Outcome == door.Allowed) {
			t.Errorf("error of %+v", r)
		}
	}
	if got := a.control.orders[1].By.Who; got != "http:carol@example.com@10.9.0.7" {
		t.Errorf("the history names %s", got)
	}
}

// The log has a line for an action before it begins, and one if it fails.
func TestAuditOfAFailedAction(t *testing.T) {
	t.Parallel()
	a := newAudited(t)
	a.control.err = control.ErrRejected
	a.do(ask{line: pausePath, body: anyReason, header: bearer(a.actor)})
	got := a.records(t)
	if len(got) != 2 || got[0].Outcome != door.Allowed || got[1].Outcome != door.Failed || got[1].Error == "" {
		t.Errorf("records %+v", got)
	}
}

// No refused login is left out, however many there are.
func TestAuditIsComplete(t *testing.T) {
	t.Parallel()
	a := newAudited(t)
	const n = 300
	for i := range n {
		a.do(ask{line: "GET /api/v1/status", peer: fmt.Sprintf("10.0.%d.%d:1", i/30, i%3), header: bearer("wrong")})
	}
	if got := a.records(t); len(got) != n {
		t.Errorf("%d records of %d refused logins", len(got), n)
	}
}

// An action whose line cannot be written is not executed. Reading goes on.
func TestNoActionWithoutItsRecord(t *testing.T) {
	t.Parallel()
	a := newAudited(t)
	must.Do(t, os.Remove(a.audit))
	must.Do(t, os.Mkdir(a.audit, 0o700))
	wantRefusal(t, a.do(ask{line: pausePath, body: anyReason, header: bearer(a.actor)}), 503, "nothing was changed")
	wantRefusal(t, a.do(ask{line: "POST /api/v1/jobs/k3xq7a/cancel", body: `{"reason":"why","execute":true}`,
		header: bearer(a.actor)}), 503, "nothing was changed")
	wantRefusal(t, a.do(ask{line: "GET /api/v1/status", header: bearer("wrong")}), 401, "is wrong")
	if w := a.do(ask{line: "GET /api/v1/status", header: bearer(a.reader)}); w.Code != 200 {
		t.Errorf("reading: %d %s", w.Code, w.Body)
	}
	if len(a.control.orders) > 0 {
		t.Errorf("acted: %v", a.control.orders)
	}
	if n := strings.Count(a.log.String(), "audit log not written"); n != 3 {
		t.Errorf("%d failures are logged, want 3:\n%s", n, a.log)
	}
	must.Do(t, os.Remove(a.audit))
	if w := a.do(ask{line: pausePath, body: anyReason, header: bearer(a.actor)}); w.Code != 200 {
		t.Errorf("with the file again: %d %s", w.Code, w.Body)
	}
}

// A client cannot write a line of its own, or a name of another.
func TestInjectionIntoTheAuditLog(t *testing.T) {
	t.Parallel()
	a := newAudited(t)
	const line = `{"outcome":"allowed","who":"alice"}`
	for _, ask := range []ask{
		{line: "GET /api/v1/%0a" + strings.ReplaceAll(line, `"`, "%22") + "%0a"},
		{line: "GET /api/v1/status", header: map[string]string{"Authorization": "Bearer x\n" + line}},
		{line: "GET /api/v1/status", host: "evil\n" + line},
		{line: "GET /api/v1/status", header: map[string]string{"Origin": "http://evil\n" + line}},
		{line: "GET /api/v1/status", peer: "10.9.0.7:1", header: map[string]string{"X-Remote-User": "x\n" + line}},
		{line: "GET /api/v1/status", peer: "10.9.0.7:1", header: map[string]string{"X-Remote-User": `","who":"alice`}},
	} {
		a.do(ask)
	}
	got := a.records(t)
	if len(got) != 6 {
		t.Errorf("%d records, want 6", len(got))
	}
	for _, r := range got {
		if r.Outcome != door.Denied || r.Who != "" {
			t.Errorf("record %+v", r)
		}
	}
}
