package process

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/config"
)

// TestJobChecksBounds: the request before a job has both bounds, as its windows have.
func TestJobChecksBounds(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if q := r.URL.Query(); q.Get("start") == "" || q.Get("end") == "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = fmt.Fprint(w, `{"items":[]}`)
	}))
	t.Cleanup(api.Close)
	st := &config.Stream{Export: exportapi.DefaultConfig()}
	st.Export.URL, st.Export.Auth.Scheme = api.URL, "none"
	if err := (&jobPorts{Stream: st}).checkAPI(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
