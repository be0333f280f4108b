//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
)

// otlpServer takes traces as an OpenTelemetry collector does.
type otlpServer struct {
	t   *testing.T
	url string

	mu      sync.Mutex // guards all below
	spans   []*otlp.Span
	service string
	raw     bytes.Buffer
}

func startOTLP(t *testing.T) *otlpServer {
	c := &otlpServer{t: t}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *otlpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := new(collector.ExportTraceServiceRequest)
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" ||
		r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.t.Errorf("%s %s of %q: %v", r.Method, r.URL, r.Header.Get("Content-Type"), err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(body)
	for _, of := range request.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				c.service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// pageTrace is the trace of one page, its spans by name.
type pageTrace map[string]*otlp.Span

// traces returns the traces by id.
func (c *otlpServer) traces() map[string]pageTrace {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]pageTrace)
	for _, s := range c.spans {
		id := hex.EncodeToString(s.GetTraceId())
		if all[id] == nil {
			all[id] = make(pageTrace)
		}
		if all[id][s.GetName()] != nil {
			c.t.Errorf("trace %s has two spans %s", id, s.GetName())
		}
		all[id][s.GetName()] = s
	}
	return all
}

func attribute(s *otlp.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			if n := a.GetValue().GetIntValue(); n != 0 {
				return fmt.Sprint(n)
			}
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

func TestE2ETraces(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, v *backends, mode bridge.Mode) {
		const n, pageSize = 950, 100
		const key = "e2e-trace-secret-key"
		s := newStage(t, v, exportsim.Config{Events: n, APIKey: key})
		s.deliver(mode)
		c := startOTLP(t)
		s.settings["EXPORT_API_KEY"], s.settings["EXPORT_PAGE_SIZE"] = key, fmt.Sprint(pageSize)
		s.settings["OTEL_EXPORTER_OTLP_ENDPOINT"] = c.url
		s.simulate("--fail", "500=20%")
		s.finish()
		traces, sent := c.traces(), make(map[string]string) // the number of records, by traceparent
		failed := 0
		for id, spans := range traces {
			root, get := spans["poll"], spans["GET /events"]
			if root == nil || get == nil || len(root.GetParentSpanId()) != 0 ||
				!bytes.Equal(get.GetParentSpanId(), root.GetSpanId()) {
				t.Fatalf("trace %s has no request in its root: %v", id, spans)
			}
			if get.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR {
				failed++
				if code := attribute(get, "error.type"); code != "500" {
					t.Errorf("a request failed with %q", code)
				}
				continue
			}
			send, commit := spans["send "+s.topic], spans["commit cursor"]
			if send == nil || commit == nil || len(spans) != 4 {
				t.Errorf("trace %s has the spans %v", id, spans)
				continue
			}
			if get.GetKind() != otlp.Span_SPAN_KIND_CLIENT || send.GetKind() != otlp.Span_SPAN_KIND_PRODUCER {
				t.Errorf("kinds of the spans: %v, %v", get.GetKind(), send.GetKind())
			}
			for _, span := range []*otlp.Span{get, send, commit} {
				if !bytes.Equal(span.GetParentSpanId(), root.GetSpanId()) ||
					span.GetStartTimeUnixNano() < root.GetStartTimeUnixNano() ||
					span.GetEndTimeUnixNano() > root.GetEndTimeUnixNano() || span.GetEndTimeUnixNano() < span.GetStartTimeUnixNano() {
					t.Errorf("%s is not in its root: %v\n%v", span.GetName(), span, root)
				}
			}
			sent[fmt.Sprintf("00-%s-%x-01", id, send.GetSpanId())] = attribute(send, "messaging.batch.message_count")
		}
		if len(sent) != 10 || failed == 0 || c.service != "exportbridge" {
			t.Errorf("%d pages sent, %d requests failed, service %q", len(sent), failed, c.service)
		}
		records := make(map[string]int)
		s.eachRecord(s.topic, func(r *kgo.Record) {
			if parent := deadletter.Header(r, "traceparent"); parent != "" {
				records[parent]++
			}
		})
		total := 0
		for parent, count := range records {
			total += count
			if sent[parent] != fmt.Sprint(count) {
				t.Errorf("%d records carry %s, its span sent %s", count, parent, sent[parent])
			}
		}
		if total != n {
			t.Errorf("%d of %d records are traced", total, n)
		}
		for _, secret := range append(s.cursors(key), key, `"userId"`) {
			if bytes.Contains(c.raw.Bytes(), []byte(secret)) {
				t.Errorf("a span holds %s", secret)
			}
		}
		s.read().wantAll(n, s.copies(n))
	})
}

// cursors returns the cursors of all pages of the export.
func (s *stage) cursors(key string) []string {
	s.t.Helper()
	var all []string
	for {
		q := url.Values{"pageSize": {s.settings["EXPORT_PAGE_SIZE"]}}
		if len(all) > 0 {
			q.Set("cursor", all[len(all)-1])
		}
		r := httptest.NewRequest(http.MethodGet, "/events?"+q.Encode(), nil)
		r.Header.Set("X-Api-Key", key)
		w := httptest.NewRecorder()
		s.truth.ServeHTTP(w, r)
		var page struct{ NextCursor string }
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
			s.t.Fatalf("page of the simulator: %d %v", w.Code, err)
		}
		if page.NextCursor == "" || len(all) > 0 && page.NextCursor == all[len(all)-1] {
			if len(all) == 0 {
				s.t.Fatal("the export has one page only")
			}
			return all
		}
		all = append(all, page.NextCursor)
	}
}

// A collector that is away costs warnings, never events nor an exit code.
func TestE2ETracesWithoutCollector(t *testing.T) {
	t.Parallel()
	const n = 300
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "http://" + servers.FreeAddress(t) + "/v1/traces"
	s.simulate()
	began := time.Now()
	run := s.run("--once")
	run.wantExit(0, time.Minute)
	s.read().wantAll(n, 0)
	if !bytes.Contains(run.stderr(), []byte("trace export failed")) {
		t.Errorf("nothing was said about the collector in %s", time.Since(began))
	}

	s.settings["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "localhost:4318"
	s.run("--once").wantExit(2, stepTimeout)

	// What is set for all programs of a machine must not stop this one.
	s.settings["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
	run = s.run("--once")
	run.wantExit(0, time.Minute)
	if !bytes.Contains(run.stderr(), []byte("asks for grpc")) {
		t.Error("nothing was said about the protocol")
	}
}
