package exportsim_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

func always(kind string) exportsim.Faults { return exportsim.Faults{{Kind: kind, Probability: 1}} }

func TestFaultsOfTheConnection(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind string
		want error
	}{
		{exportsim.FaultReset, syscall.ECONNRESET},
		{exportsim.FaultTruncate, io.ErrUnexpectedEOF},
	}
	for _, test := range tests {
		t.Run(test.kind, func(t *testing.T) {
			t.Parallel()
			_, api := newServer(t, exportsim.Config{Events: 1000, Faults: always(test.kind)})
			for range 5 {
				_, body, err := api.do("/events?pageSize=1000")
				if !errors.Is(err, test.want) {
					t.Fatalf("error %v after %d bytes, want %v", err, len(body), test.want)
				}
				if json.Valid(body) {
					t.Fatalf("%d bytes arrived, a whole page", len(body))
				}
			}
		})
	}
}

func TestFaultStall(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	h, api := newServer(t, exportsim.Config{
		Events: 10, Faults: always(exportsim.FaultStall),
		OnRequest: func(r *http.Request) {
			if r.FormValue("perPage") == "7" { // the first request may end before it arrives
				close(arrived)
			}
		},
	})
	api.client.Timeout = 50 * time.Millisecond
	var timeout interface{ Timeout() bool }
	if _, _, err := api.do("/events"); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("a stalled request ended with %v, want a time-out", err)
	}
	// Close ends the request of a client without a timeout, without an answer.
	api.client.Timeout = 0
	done := make(chan error, 1)
	go func() {
		_, _, err := api.do("/events?perPage=7")
		done <- err
	}()
	<-arrived
	h.Close()
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("after Close: %v, want the end of the connection", err)
	}
}

func TestFaultsInTheAnswer(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Events: 100, Faults: always(exportsim.FaultHTML)})
	html := recordStatus(h, "/events")
	if html.Code != 200 || !strings.HasPrefix(html.Header().Get("Content-Type"), "text/html") {
		t.Errorf("html: %d %s", html.Code, html.Header())
	}
	h = newHandler(t, exportsim.Config{Events: 100, Faults: always(exportsim.FaultMalformed)})
	broken := recordStatus(h, "/events")
	if broken.Code != 200 || json.Valid(broken.Body.Bytes()) ||
		broken.Header().Get("Content-Length") != strconv.Itoa(broken.Body.Len()) {
		t.Errorf("malformed: %d, valid %v, %s", broken.Code, json.Valid(broken.Body.Bytes()), broken.Header())
	}
	for _, status := range []int{408, 429, 500, 502, 503, 504} {
		h := newHandler(t, exportsim.Config{Events: 100, Faults: always(strconv.Itoa(status))})
		seconds, dates := 0, 0
		for range 40 {
			got := recordStatus(h, "/events")
			if got.Code != status || got.Header().Get("Content-Type") != "application/problem+json" {
				t.Fatalf("fault %d: got %d %s", status, got.Code, got.Header())
			}
			after := got.Header().Get("Retry-After")
			if n, err := strconv.Atoi(after); err == nil && n >= 1 {
				seconds++
			} else if at, err := http.ParseTime(after); err == nil && at.After(time.Now()) {
				dates++
			}
		}
		limited := status == 429 || status == 503
		if limited != (seconds > 0 && dates > 0) || limited != (seconds+dates == 40) {
			t.Errorf("fault %d: %d times Retry-After in seconds, %d as a date", status, seconds, dates)
		}
	}
}

// A fault does not change a refusal: a wrong key stays a wrong key.
func TestFaultsSpareRefusedRequests(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{APIKey: "right", Faults: always("500")})
	if got := recordStatus(h, "/events", "X-Api-Key", "wrong").Code; got != 403 {
		t.Errorf("wrong key: %d, want 403", got)
	}
}

func TestFaultsComeAsOftenAsAsked(t *testing.T) {
	t.Parallel()
	const requests = 10_000
	c := exportsim.Config{Faults: exportsim.Faults{{"429", 0.01}, {"500", 0.005}, {"html", 0.1}}}
	run := func() map[string]int {
		h, seen := newHandler(t, c), make(map[string]int)
		for range requests {
			got := recordStatus(h, "/events")
			seen[strconv.Itoa(got.Code)]++
			if strings.HasPrefix(got.Header().Get("Content-Type"), "text/html") {
				seen["html"]++
			}
		}
		return seen
	}
	seen := run()
	for _, fault := range c.Faults {
		want := fault.Probability * requests
		if got := float64(seen[fault.Kind]); got < want*0.7 || got > want*1.3 {
			t.Errorf("fault %s: %v times, want about %v", fault.Kind, got, want)
		}
	}
	if diff := cmp.Diff(seen, run()); diff != "" {
		t.Errorf("a second run has other faults (-first +second):\n%s", diff)
	}
}

func TestParseFaults(t *testing.T) {
	t.Parallel()
	got, err := exportsim.ParseFaults(" 429=1%, 500=0.5% ,reset=0.001,html=0%,")
	want := exportsim.Faults{{"429", 0.01}, {"500", 0.005}, {"reset", 0.001}, {"html", 0}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if got, err := exportsim.ParseFaults(""); err != nil || len(got) != 0 {
		t.Errorf("empty text: %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"429":               `fault "429" has no probability, write for example 429=1%`,
		"reset=often":       `probability "often" is not a number`,
		"reset=NaN":         "not within 0 and 100%",
		"reset=101%":        "not within 0 and 100%",
		"reset=-1%":         "not within 0 and 100%",
		"bang=1%":           `fault "bang" is not one of: reset,`,
		"200=1%":            `fault "200" is not one of`,
		"600=1%":            `fault "600" is not one of`,
		"html=60%,500=41%":  "add up to 101%",
		"html=1%,html=0.2%": `fault "html" is given twice`,
	} {
		if _, err := exportsim.ParseFaults(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseFaults(%q): error %v, want %q", text, err, want)
		}
	}
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, exportsim.Config{Events: 1, RateLimit: 2})
		for i, want := range []int{200, 200, 429, 429} {
			if got := recordStatus(h, "/events").Code; got != want {
				t.Errorf("request %d: %d, want %d", i, got, want)
			}
		}
		if after := recordStatus(h, "/events").Header().Get("Retry-After"); after != "1" {
			t.Errorf("Retry-After %q, want 1", after)
		}
		pass(time.Second)
		for i, want := range []int{200, 200, 429} {
			if got := recordStatus(h, "/events").Code; got != want {
				t.Errorf("a second later, request %d: %d, want %d", i, got, want)
			}
		}
		slow := newHandler(t, exportsim.Config{RateLimit: 0.1})
		recordStatus(slow, "/events")
		if after := recordStatus(slow, "/events").Header().Get("Retry-After"); after != "10" {
			t.Errorf("one request in 10 s: Retry-After %q, want 10", after)
		}
	})
}

func TestLatencyAndBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, exportsim.Config{Events: 1000, Latency: 20 * time.Millisecond, BandwidthBits: 8_000_000})
		begin := time.Now()
		bytes := recordStatus(h, "/events?pageSize=1000").Body.Len()
		want := 20*time.Millisecond + time.Duration(bytes)*time.Microsecond
		if got := time.Since(begin); got < want-time.Microsecond || got > want+time.Millisecond {
			t.Errorf("%d bytes took %s, want %s", bytes, got, want)
		}
		// The end of the request, or Close, ends the wait.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if got := aborted(ctx, t, h); got != 5*time.Millisecond {
			t.Errorf("a client that left after 5 ms was served for %s", got)
		}
		h.Close()
		h.Close()
		if got := aborted(t.Context(), t, h); got != 0 {
			t.Errorf("a closed simulator waited %s", got)
		}
	})
}

// aborted returns how long a request takes whose connection is closed without an answer.
func aborted(ctx context.Context, t *testing.T, h http.Handler) (took time.Duration) {
	t.Helper()
	begin, recorder := time.Now(), httptest.NewRecorder()
	defer func() {
		took = time.Since(begin)
		if end, _ := recover().(error); !errors.Is(end, http.ErrAbortHandler) || recorder.Body.Len() > 0 {
			t.Errorf("ended with %v after %d bytes", end, recorder.Body.Len())
		}
	}()
	h.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
	return 0
}

func TestCompression(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Events: 300, Gzip: true, Zstd: true})
	plain := recordStatus(h, "/events?pageSize=300").Body.Bytes()
	decoder := must.Get(zstd.NewReader(nil))(t)
	defer decoder.Close()
	for accept, want := range map[string]string{
		"": "", "identity": "", "br": "", "gzip": "gzip", "GZIP": "gzip", "zstd": "zstd", "gzip, zstd": "zstd",
		"zstd;q=0, gzip": "gzip", "zstd;q=0.5, gzip;q=1": "zstd", "gzip;q=0": "",
	} {
		got := recordStatus(h, "/events?pageSize=300", "Accept-Encoding", accept)
		if encoding := got.Header().Get("Content-Encoding"); encoding != want {
			t.Errorf("Accept-Encoding %q: %q, want %q", accept, encoding, want)
			continue
		}
		var body []byte
		switch want {
		case "gzip":
			reader := must.Get(gzip.NewReader(got.Body))(t)
			body = must.Get(io.ReadAll(reader))(t)
		case "zstd":
			body = must.Get(decoder.DecodeAll(got.Body.Bytes(), nil))(t)
		default:
			body = got.Body.Bytes()
		}
		if !bytes.Equal(body, plain) {
			t.Errorf("Accept-Encoding %q: other bytes", accept)
		}
	}
	off := newHandler(t, exportsim.Config{Events: 300})
	if got := recordStatus(off, "/events", "Accept-Encoding", "gzip, zstd").Header().Get("Content-Encoding"); got != "" {
		t.Errorf("not offered, but answered in %s", got)
	}
}
