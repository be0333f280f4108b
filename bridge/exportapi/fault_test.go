package exportapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi"
)

// serveWith is serve for a configuration that variables alone cannot describe.
func serveWith(t testing.TB, api http.HandlerFunc, cfg exportapi.Config) *exportapi.Client {
	t.Helper()
	server := listen(t, api)
	cfg.URL = server.URL
	return connect(t, cfg)
}

// compressed writes a JSON body in an encoding.
func compressed(w http.ResponseWriter, encoding string, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Encoding", encoding)
	_, _ = w.Write(compress(encoding, body))
}

func compress(encoding string, body []byte) []byte {
	var b bytes.Buffer
	if encoding == "zstd" {
		enc, _ := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
		_, _ = enc.Write(body)
		_ = enc.Close()
		return b.Bytes()
	}
	enc := gzip.NewWriter(&b)
	_, _ = enc.Write(body)
	_ = enc.Close()
	return b.Bytes()
}

// echo returns what a hostile API writes: the key and the cursor, line breaks and terminal
// codes, and very long text.
func echo(r *http.Request) string {
	return "bad\r\n\x1b[31m\u202e " + r.Header.Get("X-Api-Key") + " " + r.URL.Query().Get("cursor") + " " +
		url.QueryEscape(r.URL.Query().Get("cursor")) + strings.Repeat(" long", 100)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	const (
		always = iota // the same with and without a cursor
		withCursor
		withoutCursor
	)
	for _, tc := range []struct {
		codes  []int
		when   int
		class  bridge.Class
		reason bridge.Reason
	}{
		{[]int{400, 404, 410, 414, 422, 431}, withCursor, bridge.BadCursor, bridge.ReasonCursor},
		{[]int{400, 404, 410, 414, 422, 431}, withoutCursor, bridge.Permanent, bridge.ReasonConfig},
		{[]int{402, 405, 406, 407, 409, 411, 412, 413, 415, 417, 418, 421, 426, 428, 451, 499}, always, bridge.Permanent,
			bridge.ReasonConfig},
		{[]int{401, 403}, always, bridge.Permanent, bridge.ReasonAuth},
		{[]int{300, 301, 302, 304, 307, 308}, always, bridge.Permanent, bridge.ReasonConfig},
		{[]int{429}, always, bridge.Throttled, ""},
		{[]int{408, 500, 501, 502, 503, 504, 520, 599, 201, 202, 206}, always, bridge.Transient, ""},
	} {
		for _, code := range tc.codes {
			for _, cursor := range []string{"", testCursor} {
				if tc.when == withCursor && cursor == "" || tc.when == withoutCursor && cursor != "" {
					continue
				}
				t.Run(fmt.Sprintf("%d cursor %v", code, cursor != ""), func(t *testing.T) {
					t.Parallel()
					c := serve(t, func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Content-Type", "application/problem+json")
						w.WriteHeader(code)
						_, _ = fmt.Fprintf(w, `{"title":"Told you","status":%d,"detail":%s}`, code, quote(echo(r)))
					}, nil)
					_, err := fetchAll(t, c, bridge.Position{Cursor: cursor})
					f := wantFault(t, err)
					if f.Class != tc.class || f.Reason != tc.reason || f.Code != fmt.Sprint(code) {
						t.Errorf("got class %v reason %q code %q, want %v %q", f.Class, f.Reason, f.Code, tc.class, tc.reason)
					}
					if !strings.Contains(f.Error(), fmt.Sprint(code)) || len(f.Error()) > 400 {
						t.Errorf("error %q should name the status in under 400 bytes", f)
					}
				})
			}
		}
	}
}

// The hint of a 404 shows the whole path, so that a resource in both EXPORT_URL and
// EXPORT_PATH is seen.
func TestNotFoundNamesThePath(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		map[string]string{"EXPORT_PATH": "/events/events"})
	_, err := fetchAll(t, c, bridge.Position{})
	if f := wantFault(t, err); !strings.Contains(f.Hint, " /events/events: ") {
		t.Errorf("hint %q does not say what was asked for", f.Hint)
	}
}

// A hint names the settings of what was sent, and the setting of what a page lacks.
func TestHintsNameSettings(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	mapped := map[string]string{"EXPORT_PATH": "/v2", "EXPORT_PAGE_SIZE_PARAM": "none", "EXPORT_RESOURCE": "events"}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(mapped)
		maps.Copy(all, more)
		return all
	}
	for name, tc := range map[string]struct {
		api       http.HandlerFunc
		vars      map[string]string
		at        bridge.Position
		want, not string
	}{
		"first page": {status(400), nil, bridge.Position{Start: 1},
			"EXPORT_START, EXPORT_START_PARAM, EXPORT_TIME_FORMAT, EXPORT_PAGE_SIZE, EXPORT_PAGE_SIZE_PARAM, EXPORT_PARAMS",
			"EXPORT_EVENTS"},
		"events": {status(422), map[string]string{"EXPORT_EVENTS": "a"}, bridge.Position{}, "EXPORT_EVENTS",
			"EXPORT_START"},
		"no size": {status(400), mapped, bridge.Position{}, "EXPORT_PARAMS", "EXPORT_PAGE_SIZE"},
		"method":  {status(405), nil, bridge.Position{}, "EXPORT_METHOD", "EXPORT_RESOURCE"},
		"cursor": {status(400), map[string]string{"EXPORT_PATH": "/v2"}, bridge.Position{Cursor: "c"},
			string(bridge.HintCursorBeside), ""},
		"bare cursor": {status(400), mapped, bridge.Position{Cursor: "c"}, string(bridge.HintCursorRejected), ""},
		"alone": {status(400), map[string]string{"EXPORT_PATH": "/v2", "EXPORT_CURSOR_ALONE": "true"},
			bridge.Position{Cursor: "c"}, string(bridge.HintCursorRejected), ""},
		"number": {status(400), map[string]string{"EXPORT_PATH": "/v2", "EXPORT_CURSOR_IN": "page-number"},
			bridge.Position{Cursor: "2"}, string(bridge.HintCursorRejected), string(bridge.HintCursorBeside)},
		"unmapped": {status(400), nil, bridge.Position{Cursor: "c"}, string(bridge.HintCursorRejected), ""},
		"more": {answer(emptyPage), with(map[string]string{"EXPORT_MORE_FIELD": "has_more"}), bridge.Position{},
			"correct EXPORT_MORE_FIELD", "EXPORT_ITEMS_FIELD"},
		"an object": {answer(`{"data":{},"nextCursor":null}`), with(map[string]string{"EXPORT_ITEMS_FIELD": "/data"}),
			bridge.Position{}, "correct EXPORT_ITEMS_FIELD", "EXPORT_CURSOR_FIELD"},
		"other form": {answer(emptyPage), with(map[string]string{"EXPORT_CURSOR_IN": "next-url"}),
			bridge.Position{Cursor: "abc"}, string(bridge.HintCursorForm), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := fetchAll(t, serve(t, tc.api, tc.vars), tc.at)
			f := wantFault(t, err)
			if got := f.Hint + string(f.HintCode); !strings.Contains(got, tc.want) ||
				tc.not != "" && strings.Contains(got, tc.not) {
				t.Errorf("%v: got %q, want %q in it and not %q", f, got, tc.want, tc.not)
			}
		})
	}
}

// raw writes bytes to the connection and closes it.
func raw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, strings.ReplaceAll(text, "ECHO", r.Header.Get("X-Api-Key")))
		_ = conn.Close()
	}
}

func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	page := []byte(`{"items":[{"timestamp":1,"pad":"` + strings.Repeat("x", 5000) + `"}],"nextCursor":"c"}`)
	zipped := compress("gzip", page)
	zstded := compress("zstd", page)
	broken := bytes.Clone(zipped)
	broken[len(broken)-6] ^= 1
	as := func(kind, encoding string, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{kind}
			if encoding != "" {
				w.Header().Set("Content-Encoding", encoding)
			}
			_, _ = w.Write(body)
		}
	}
	const json = "application/json"
	bomb := strings.Repeat(" ", 2<<20)
	for name, tc := range map[string]struct {
		api    http.HandlerFunc
		class  bridge.Class
		code   string
		reason bridge.Reason
		say    string
	}{
		"html": {as("text/html", "", []byte("<html>"+testKey)), bridge.Transient, "decode", "",
			`24 bytes of type "text/html"`},
		"no content type": {as("", "", []byte("Sign in: {}")), bridge.Transient, "decode", "", "not JSON"},
		"html behind white space": {as("text/html; charset=utf-8", "", []byte("\n <html>")), bridge.Transient, "decode",
			"", `"text/html`},
		"html as plain text": {as("text/plain", "", []byte("\n <html>")), bridge.Transient, "decode", "",
			`"text/plain"`},
		"ndjson": {as("application/x-ndjson", "", []byte("{\"timestamp\":1}\n{\"timestamp\":2}")),
			bridge.Malformed, "schema", bridge.ReasonSchema, "unexpected data after the object"},
		"nothing": {as(json, "", nil), bridge.Malformed, "schema", bridge.ReasonSchema,
			"the body is empty"},
		"white space": {as(json, "", []byte(" \n")), bridge.Malformed, "schema", bridge.ReasonSchema,
			"the body is empty"},
		"unknown encoding": {as(json, "br", page), bridge.Transient, "decode", "", "Content-Encoding"},
		"not gzip":         {as(json, "gzip", page), bridge.Transient, "decode", "", "decompressed"},
		"empty gzip":       {as(json, "gzip", nil), bridge.Transient, "decode", "", "decompressed"},
		"gzip cut": {as(json, "gzip", zipped[:len(zipped)-9]), bridge.Transient, "decode", "",
			"decompressed"},
		"gzip with a wrong checksum": {as(json, "gzip", broken), bridge.Transient, "decode", "", "decompressed"},
		"gzip and garbage": {as(json, "gzip", append(bytes.Clone(zipped), page...)), bridge.Transient, "decode",
			"", "decompressed"},
		"not zstd": {as(json, "zstd", page), bridge.Transient, "decode", "", "decompressed"},
		"zstd cut": {as(json, "zstd", zstded[:len(zstded)-5]), bridge.Transient, "decode", "",
			"decompressed"},
		"gzip bomb": {as(json, "gzip", compress("gzip", []byte(bomb))), bridge.Permanent, "size",
			bridge.ReasonSize, "1048576"},
		"zstd bomb": {as(json, "zstd", compress("zstd", []byte(bomb))), bridge.Permanent, "size",
			bridge.ReasonSize, "1048576"},
		"too large": {as(json, "", []byte(bomb)), bridge.Permanent, "size", bridge.ReasonSize, "1048576"},
		"too large, said before": {
			raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{"), bridge.Permanent,
			"size", bridge.ReasonSize, "1048576"},
		"short of its length": {
			raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n" + emptyPage),
			bridge.Transient, "network", "", "ended after 30 bytes"},
		"chunks end early": {
			raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ite\r\n"),
			bridge.Transient, "network", "", "body ended"},
		"closed without length": {
			raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"items\":[{\"nextCursor\":\"x\"}"),
			bridge.Transient, "decode", "", "truncated"},
		"closed at once":         {raw(""), bridge.Transient, "network", "", ""},
		"not HTTP, with the key": {raw("ECHO ECHO ECHO\r\n\r\n"), bridge.Transient, "network", "", ""},
		"switching protocols": {raw("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
			bridge.Transient, "101", "", ""},
		"redirect to nowhere": {raw("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"), bridge.Permanent, "302",
			bridge.ReasonConfig, "unreadable location"},
		"redirect": {
			raw("HTTP/1.1 302 Found\r\nLocation: https://other.example:99/a?b=c\r\nContent-Length: 0\r\n\r\n"),
			bridge.Permanent, "302", bridge.ReasonConfig, "other.example:99"},
		"failed but with a page": {
			raw("HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n" + emptyPage),
			bridge.Transient, "500", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, tc.api, map[string]string{"EXPORT_MAX_RESPONSE_BYTES": "1048576"})
			_, err := fetchAll(t, c, bridge.Position{Cursor: testCursor})
			f := wantFault(t, err)
			if f.Class != tc.class || f.Code != tc.code || f.Reason != tc.reason || !strings.Contains(f.Error(), tc.say) {
				t.Errorf("got class %v code %q reason %q %q, want %v %q %q %q", f.Class, f.Code, f.Reason, f, tc.class,
					tc.code, tc.reason, tc.say)
			}
		})
	}
}

// TestBombUsesLittleMemory sends a body of 256 MiB in a quarter MiB.
func TestBombUsesLittleMemory(t *testing.T) {
	bomb := compress("gzip", make([]byte, 256<<20))
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	}, map[string]string{"EXPORT_MAX_RESPONSE_BYTES": "4194304"})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := fetchAll(t, c, bridge.Position{})
	runtime.ReadMemStats(&after)
	if f := wantFault(t, err); f.Reason != bridge.ReasonSize {
		t.Errorf("got %v, want size", f)
	}
	if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 32 {
		t.Errorf("a limit of 4 MiB allocated %d MiB", used)
	}
}

func TestLargestPageAllowed(t *testing.T) {
	t.Parallel()
	body := emptyPage + strings.Repeat(" ", 5000-len(emptyPage))
	for _, encoding := range []string{"", "identity", "gzip", "zstd"} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if encoding == "gzip" || encoding == "zstd" {
				compressed(w, encoding, []byte(body))
				return
			}
			w.Header().Set("Content-Encoding", encoding)
			answer(body)(w, nil)
		}, map[string]string{"EXPORT_MAX_RESPONSE_BYTES": "5000"})
		if _, err := fetchAll(t, c, bridge.Position{}); err != nil {
			t.Errorf("%q: %v", encoding, err)
		}
	}
}

func TestRetryAfterIsPassedOn(t *testing.T) {
	t.Parallel()
	server := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC) // its clock is years ahead
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "86400": 10 * time.Minute,
		server.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
	} {
		for _, code := range []int{429, 503} {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", server.Format(http.TimeFormat))
				w.Header().Set("Retry-After", value)
				w.WriteHeader(code)
			}, nil)
			_, err := fetchAll(t, c, bridge.Position{Cursor: "c"})
			if f := wantFault(t, err); f.RetryAfter != want {
				t.Errorf("%d with Retry-After %q: got %v, want %v", code, value, f.RetryAfter, want)
			}
		}
	}
}

// dripping sends a page one byte at a time, without an end.
func dripping(kind string, code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(code)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := io.WriteString(w, " "); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}
}

func silent(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func TestSlowAnswersEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		api  http.HandlerFunc
		code string
	}{
		"no header":        {silent, "timeout"},
		"body drips":       {dripping("application/json", 200), "timeout"},
		"problem drips":    {dripping("application/json", 500), "500"},
		"wrong type drips": {dripping("text/html", 200), "decode"},
		"refusal drips":    {dripping("text/html", 403), "403"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, tc.api, map[string]string{"EXPORT_TIMEOUT": "300ms"})
			began := time.Now()
			_, err := fetchAll(t, c, bridge.Position{})
			f := wantFault(t, err)
			if took := time.Since(began); took > 5*time.Second || f.Code != tc.code {
				t.Errorf("got code %q (%v) after %v, want %q within 300ms", f.Code, f, took, tc.code)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error("a time-out of the request looks like the end of the caller's context")
			}
		})
	}
}

// switchProtocols keeps a connection open on which no timeout works.
func switchProtocols(t *testing.T, w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\nContent-Type: "+
		"application/json\r\n\r\n")
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the client waits on the bare connection")
	}
}

func TestSwitchingProtocols(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { switchProtocols(t, w) }, nil)
	_, err := fetchAll(t, c, bridge.Position{})
	if f := wantFault(t, err); f.Code != "101" {
		t.Errorf("got %v", f)
	}
}

func TestCancelReturnsAtOnce(t *testing.T) {
	t.Parallel()
	for name, api := range map[string]http.HandlerFunc{"no header": silent,
		"body drips": dripping("application/json", 200), "problem drips": dripping("application/json", 500)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{}, 1)
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				api(w, r)
			}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { // ends with the request's arrival
				<-arrived
				cancel()
			}()
			began := time.Now()
			p, err := c.Fetch(ctx, bridge.Position{})
			if !errors.Is(err, context.Canceled) || p != nil {
				t.Errorf("got %v %v, want context.Canceled", p, err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
	c := serve(t, answer(emptyPage), map[string]string{"EXPORT_RATE_LIMIT": "1/h"})
	mustFetch(t, c, bridge.Position{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Fetch(ctx, bridge.Position{}); !errors.Is(err, context.Canceled) {
		t.Errorf("while waiting for the rate limit: got %v, want context.Canceled", err)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	addr := servers.FreeAddress(t)
	c := connect(t, config(t, map[string]string{"EXPORT_URL": "http://" + addr}))
	_, err := fetchAll(t, c, bridge.Position{Cursor: testCursor})
	if f := wantFault(t, err); f.Class != bridge.Transient || f.Code != "network" || !strings.Contains(f.Error(), addr) {
		t.Errorf("got %+v, want a network fault that names the address", f)
	}
}

// Bytes that are not HTTP may be part of an event, so no error quotes them.
func TestBrokenAnswersAreNotQuoted(t *testing.T) {
	t.Parallel()
	const event = `{"userId":"secret-user","payload":{"card":"secret-card"}}`
	for name, sent := range map[string]string{
		"no HTTP at all":      event + "\r\n\r\n",
		"no status":           "HTTP/1.1 " + event + "\r\n\r\n",
		"a header of no form": "HTTP/1.1 200 OK\r\n" + event[1:9] + " " + event + "\r\n\r\n",
		"a length of no form": "HTTP/1.1 200 OK\r\nContent-Length: " + event + "\r\n\r\n",
		"an unknown coding":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + event + "\r\n\r\n",
		"a trailer": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n0\r\n" + event[1:9] + " " + event + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, sent)
			}, nil)
			_, err := fetchAll(t, server, bridge.Position{Cursor: testCursor})
			if f := wantFault(t, err); f.Class != bridge.Transient || strings.Contains(f.Error(), "secret") {
				t.Errorf("got class %v, %q", f.Class, f.Error())
			}
		})
	}
}
