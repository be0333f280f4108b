package main

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/ops"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

func TestAnswerable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err    error
		status int
		hint   string
	}{
		{&exitError{code: exitUsage, err: errors.New("no such stream"), hint: "--stream events"}, 400, "--stream events"},
		{&exitError{code: exitFailed, err: errors.New("not read to its end"), hint: "dlq list"}, 503, "dlq list"},
		{fmt.Errorf("load: %w", &bridge.Fault{Err: errors.New("refused"), Hint: "REDIS_URL"}), 503, "REDIS_URL"},
		{errors.New("strange"), 503, ""},
	} {
		e, ok := errors.AsType[*ops.Error](answerable(test.err))
		if !ok || e.Status != test.status || e.Hint != test.hint || e.Error() != test.err.Error() {
			t.Errorf("%v: %+v, want %d with the hint %q", test.err, e, test.status, test.hint)
		}
	}
	if err := answerable(nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}

// Servers that accept and never answer must not keep whoever looks at the page
// waiting one after the other.
func TestReportsWithoutAnswers(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	addr := silent.Addr().String()
	a := &app{environ: []string{"KAFKA_BROKERS=" + addr, "REDIS_URL=redis://" + addr + "/0", "EXPORT_API_KEY=any"}}
	s, err := a.settings(t.Context(), config.UsesAll, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cursorstore.Open(s.Cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	began := time.Now()
	r := controllers(client, s)["events"].Status(t.Context())
	if took := time.Since(began); len(r.Notes) != 3 || took > 2*control.StatusTimeout {
		t.Errorf("after %s: %+v; want three notes", took, r)
	}
}
