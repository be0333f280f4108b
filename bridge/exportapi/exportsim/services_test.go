package exportsim_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

func TestNewestFirst(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"newest-first /audit?pageSize=50", "250 249 201"},
		{"github-audit-log /orgs/acme/audit-log?per_page=50", "250 249 201"},
		{"github-audit-log /orgs/acme/audit-log?per_page=50&order=desc", "250 249 201"},
		{"github-audit-log /orgs/acme/audit-log?per_page=50&order=asc", "0 1 49"},
		{"auth0-logs /api/v2/logs", "250 249 201"},
		{"auth0-logs /api/v2/logs?from=900", "0 1 49"},
		{"okta-system-log /api/v1/logs?limit=50", "0 1 49"},
		{"github-audit-log /organizations/4711/audit-log?order=asc", "0 1 29"},
		{"github-audit-log /orgs/acme/audit-log?phrase=created:2026-11-02", ""},
		{
			"github-audit-log /orgs/acme/audit-log?order=asc&per_page=50&phrase=action:x+created:%3E%3D2026-11-01T00:00:10Z",
			"100 101 149",
		},
		{"github-audit-log /orgs/acme/audit-log?per_page=100&phrase=created:2026-10-01..2026-11-01T00:00:05Z", "49 48 0"},
		{"github-audit-log /orgs/acme/audit-log?per_page=2&phrase=created:2026-11-01", "250 249 249"},
		{"github-audit-log /orgs/acme/audit-log?per_page=2&phrase=created:%3E%3D2026-10-31", "250 249 249"},
	} {
		target, want := c[0], c[1]
		name, path, _ := strings.Cut(target, " ")
		form, _ := exportsim.FormNamed(name)
		h := newHandler(t, exportsim.Config{Form: form, Events: 251})
		body := recordStatus(h, path).Body.Bytes()
		items := append(array(body), list(at(body, "items"))...)
		got := ""
		if last := len(items) - 1; last > 0 {
			for _, n := range []int{0, 1, last} {
				i, _ := exportsim.IndexOf(items[n])
				got += fmt.Sprint(i, " ")
			}
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: events %s, want %s", target, got, want)
		}
	}
	// The cursor leads backwards, away from what was added.
	form, _ := exportsim.FormNamed("newest-first")
	h, api := newServer(t, exportsim.Config{Form: form, Events: 250})
	query := params("pageSize", "60")
	for due := 249; due >= 0; {
		p := api.get("/audit", query)
		for _, item := range p.Items {
			if i, _ := exportsim.IndexOf(item); i != due {
				t.Fatalf("event %d where %d is due", i, due)
			}
			due--
		}
		if end := p.cursor() == ""; end != (due < 0) {
			t.Fatalf("event %d is next, cursor %q", due, p.cursor())
		}
		h.Grow(7)
		query.Set("cursor", p.cursor())
	}
}

// TestServiceAnswers has the answers that a service documents.
func TestServiceAnswers(t *testing.T) {
	t.Parallel()
	service := func(name string, c exportsim.Config) http.Handler {
		c.Form, _ = exportsim.FormNamed(name)
		return newHandler(t, c)
	}
	get := func(h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
		return recordStatus(h, "http://api.example"+target, header...)
	}

	okta := service("okta-system-log", exportsim.Config{Events: 150, APIKey: "k"})
	r := get(okta, "/api/v1/logs?since=2026-11-01T00:00:00Z&until=2026-11-02T00:00:00Z", "Authorization", "SSWS k")
	if links := r.Header().Values("Link"); len(links) != 2 || !strings.HasSuffix(links[0], `rel="self"`) ||
		!strings.HasSuffix(links[1], `rel="next"`) {
		t.Errorf("okta: links %q", links)
	}
	next := linkNext.FindStringSubmatch(strings.Join(r.Header().Values("Link"), ","))[1]
	if r = get(okta, strings.TrimPrefix(next, "http://api.example"), "Authorization",
		"SSWS k"); len(r.Header().Values("Link")) != 1 {
		t.Errorf("okta: a bounded request ends with links %q", r.Header().Values("Link"))
	}
	if r = get(okta, "/api/v1/logs?since=yesterday", "Authorization", "SSWS k"); r.Code != 400 ||
		text(at(r.Body.Bytes(), "errorCode")) == "" {
		t.Errorf("okta: %d %s", r.Code, r.Body)
	}
	for _, header := range []string{"k", "Bearer k", "SSWS x", "SSWS"} {
		if r = get(okta, "/api/v1/logs", "Authorization", header); r.Code != 401 {
			t.Errorf("okta: %q gives %d", header, r.Code)
		}
	}

	github := service("github-audit-log", exportsim.Config{Events: 100})
	r = get(github, "/orgs/acme/audit-log?order=asc&per_page=50")
	if link := r.Header().Get("Link"); !strings.HasPrefix(link,
		"<http://api.example/organizations/4711/audit-log?after=") || !strings.Contains(link, `>; rel="next", <`) {
		t.Errorf("github: link %q", link)
	}
	next = linkNext.FindStringSubmatch(r.Header().Get("Link"))[1]
	if r = get(github, strings.TrimPrefix(next, "http://api.example")); strings.Contains(r.Header().Get("Link"), "next") {
		t.Errorf("github: a full page at the end has link %q", r.Header().Get("Link"))
	}

	r = get(service("link", exportsim.Config{Events: 101}), "/items")
	if link := r.Header().Get("Link"); !strings.HasPrefix(link, `</items>; rel="first", </items?cursor=`) {
		t.Errorf("relative link %q", link)
	}

	google := "/admin/reports/v1/activity/users/all/applications/login"
	if r = get(service("google-workspace-activities", exportsim.Config{Rate: 1,
		Clock: func() time.Time { return start }}), google); r.Body.String() != "{}" {
		t.Errorf("google: a list without activities is %s", r.Body)
	}

	auth0 := service("auth0-logs", exportsim.Config{Events: 3})
	r = get(auth0, "/api/v2/logs?take=10&from="+text(at(auth0.(*exportsim.Handler).Event(2), "log_id")))
	if link := r.Header().Get("Link"); r.Body.String() != "[]" ||
		!strings.HasPrefix(link, "<http://api.example/api/v2/logs?take=10&from=9") {
		t.Errorf("auth0: nothing new gives %s, link %q", r.Body, link)
	}
	if r = get(auth0, "/api/v2/logs?take=101"); r.Code != 400 || string(at(r.Body.Bytes(), "statusCode")) != "400" {
		t.Errorf("auth0: %d %s", r.Code, r.Body)
	}
}
