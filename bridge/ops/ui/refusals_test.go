//go:build browser

package ui_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"exportbridge/bridge/ops"
)

// refusals are answers of the API and of proxies, and what the page says.
var refusals = []struct {
	answer
	says string
}{
	{answer{401, object{"error": "the token is wrong",
		"hint": "Authorization: Bearer <token>"}}, "The token is wrong."},
	{answer{403, object{"error": "cross-site request", "hint": "add ops.example.com to HTTP_ALLOWED_HOSTS"}},
		"Cross-site request. Add ops.example.com to HTTP_ALLOWED_HOSTS."},
	{answer{421, object{"error": "unknown Host name", "hint": "add it to HTTP_ALLOWED_HOSTS, or use the IP address"}},
		"Unknown Host name. Add it to HTTP_ALLOWED_HOSTS, or use the IP address."},
	{answer{429, object{"error": "the token is wrong; too many wrong tokens from 10.0.0.7",
		"hint": "send the right one"}}, "The token is wrong; too many wrong tokens from 10.0.0.7."},
	{answer{503, object{"error": "Redis does not answer", "hint": "redis-cli ping"}},
		"Redis does not answer. Run redis-cli ping."},
	{answer{400, object{"error": "datetime: 2030-01-01T00:00:00Z is in the future", "hint": `"latest": true`}},
		"Datetime: 2030-01-01T00:00:00Z is in the future."},
	{answer{401, nil}, "HTTP status 401, not from the bridge. Reload the page to sign in to the proxy."},
	{answer{403, nil}, "HTTP status 403, not from the bridge. Check the access rules of the proxy."},
	{answer{429, nil}, "HTTP status 429, not from the bridge. Wait a minute and retry: the proxy limits requests."},
	{answer{502, nil}, "HTTP status 502, not from the bridge. Check that the bridge runs and that the proxy reaches it."},
	{answer{418, nil}, "HTTP status 418, not from the bridge. Check the proxy."},
}

// The dialog of an action shows its error as a sentence, and after a wrong token a button that
// asks for the token.
func TestRefusedActions(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.token = "s3cret"
	p := open(t, f, 1280, "status of ")
	const pause = "/api/v1/streams/events/pause"
	for _, r := range refusals {
		t.Run(r.says, func(*testing.T) {
			read[any](p, `sessionStorage.setItem('exportbridge-token', 's3cret')`)
			p.do(chromedp.Reload())
			p.sees("#unlock", "Lock")
			f.set(func() { f.refuse = map[string]answer{pause: r.answer} })
			p.click("#pause")
			p.write("#hold-reason", "why")
			p.click("#hold-submit")
			token := r.body != nil && (r.code == 401 || r.code == 429)
			p.wait(`document.querySelector('#hold-dialog .problem').innerText.replace(/\s+/g, ' ').startsWith(` +
				fmt.Sprintf("%q", r.says) + `)`)
			if got := read[int](p, `document.querySelectorAll('#hold-dialog .problem button').length`) == 1; got != token {
				t.Errorf("%s: a button asks for the token: %v", r.says, got)
			}
			if got := read[bool](p, `sessionStorage.getItem('exportbridge-token') === null`); got != token {
				t.Errorf("%s: the token is dropped: %v", r.says, got)
			}
		})
	}
}

// The error of a list is shown in its place.
func TestRefusedLists(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	p := open(t, f, 1280, "status of ")
	for _, r := range refusals {
		f.set(func() {
			f.refuse = map[string]answer{}
			for _, path := range []string{"/api/v1/jobs", "/api/v1/streams/events/history",
				"/api/v1/streams/events/dead-letters"} {
				f.refuse[path] = r.answer
			}
		})
		p.do(chromedp.Reload())
		for _, id := range []string{"jobs-empty", "letters-empty", "history-empty"} {
			p.wait(`document.getElementById('` + id + `').innerText.toLowerCase().includes(` +
				fmt.Sprintf("%q", strings.ToLower(r.says)) + `)`)
		}
	}
}

// The error that keeps the page from loading is shown until the page loads.
func TestRefusedPage(t *testing.T) {
	for _, r := range refusals {
		if r.code == 401 && r.body != nil {
			continue // the API does not answer so to who has no token
		}
		t.Run(r.says, func(t *testing.T) {
			f := newFakeBridge(t, running("events"))
			f.refuse = map[string]answer{"/api/v1/session": r.answer}
			p := visit(t, f, 1280, "status of ")
			p.sees("#loading-text", r.says)
			p.sees("#loading-text", "Retrying.")
			f.set(func() { f.refuse = nil })
			p.sees("#state-name", "Running")
		})
	}
}

// The error of the live connection is shown above the page.
func TestRefusedFeed(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.refuse = map[string]answer{"/api/v1/events": refusals[0].answer}
	p := open(t, f, 1280, "status of ")
	for _, r := range refusals {
		f.set(func() { f.refuse = map[string]answer{"/api/v1/events": r.answer} })
		p.do(chromedp.Reload())
		p.sees("#lost", r.says)
	}
	f.set(func() { f.refuse = nil })
	p.sees("#link", "Live")
	p.wait(`document.getElementById('lost').hidden`)
}

// While others guess tokens from the same address, a new client waits, and the dialog says so. A
// token that is no longer valid prevents no reading.
func TestSlowedAddress(t *testing.T) {
	const right = "0123456789abcdef"
	f := newDoor(t, ops.Config{AdminToken: right})
	guess := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+"/api/v1/session", http.NoBody)
		if err != nil {
			return 0
		}
		r.Header.Set("Authorization", "Bearer wrong")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	for guess() != http.StatusTooManyRequests {
	}
	var guessing sync.WaitGroup
	ended := make(chan struct{})
	guessing.Go(func() { // so that the address stays slowed
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				guess()
			case <-ended:
				return
			}
		}
	})
	stop := sync.OnceFunc(func() {
		close(ended)
		guessing.Wait()
	})
	defer stop()
	p := open(t, f, 1280, "status of 429", "status of 401")
	read[any](p, `sessionStorage.setItem('exportbridge-token', 'not valid any more')`)
	p.do(chromedp.Reload())
	p.sees("#unlock", "Unlock…")
	p.click("#pause")
	p.write("#token", "wrong")
	submit := func() {
		p.click("#token-dialog [type=submit]")
		p.wait(`!document.querySelector('#token-dialog').hasAttribute('aria-busy')`)
	}
	p.until("the dialog says that the address is slowed", func() bool { // one wrong token a second is not
		submit()
		return strings.HasPrefix(read[string](p, `document.querySelector('#token-dialog .problem').innerText`),
			"Too many wrong tokens from 127.0.0.1.")
	})
	stop()
	p.set("#token", right)
	p.until("the right token is accepted", func() bool {
		submit()
		return !read[bool](p, `document.querySelector('#token-dialog').open`)
	})
	p.write("#hold-reason", "why")
	p.click("#hold-submit")
	p.sees("#toast", "events paused at entry 4.0")
}

// Behind a proxy that changes Host, the page acts once the proxy's name is allowed. Before, it
// names the setting that allows it.
func TestBehindProxy(t *testing.T) {
	for _, allowed := range [][]string{nil, {"ops.example.com"}} {
		f := proxied(t, newDoor(t, ops.Config{AllowedHosts: allowed}), func(*http.Request) {})
		f.URL = strings.Replace(f.URL, "127.0.0.1", "ops.example.com", 1)
		p := open(t, f, 1280, "status of 403")
		p.sees("#link", "Live")
		p.click("#pause")
		p.write("#hold-reason", "why")
		p.click("#hold-submit")
		if allowed == nil {
			p.sees("#hold-dialog .problem", "If this is the web UI behind a proxy, add ops.example.com to HTTP_ALLOWED_HOSTS.")
		} else {
			p.sees("#toast", "events paused at entry 4.0")
		}
	}
}

// Without a token, a client on another machine can read only, and sees the reason.
func TestReadOnlyBehindProxy(t *testing.T) {
	p := open(t, proxied(t, newDoor(t, ops.Config{}),
		func(r *http.Request) { r.Header.Set("X-Forwarded-For", "10.0.0.7") }), 1280)
	p.sees("#act-why", "Read-only: HTTP actions are restricted to localhost unless HTTP_ADMIN_TOKEN_FILE is set.")
	p.wait(`document.getElementById('pause').disabled && document.getElementById('jobs-begin').disabled`)
}
