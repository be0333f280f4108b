package setup

import "testing"

func TestReadyURL(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		":8080": "http://127.0.0.1:8080/readyz", "0.0.0.0:8080": "http://127.0.0.1:8080/readyz",
		"[::]:8080": "http://[::1]:8080/readyz", "localhost:80": "http://localhost:80/readyz",
		"[::1]:1": "http://[::1]:1/readyz",
	} {
		if got, err := readyURL("http", "HTTP_ADDR", addr); got != want || err != nil {
			t.Errorf("readyURL(%q) = %q, %v, want %q", addr, got, err, want)
		}
	}
}
