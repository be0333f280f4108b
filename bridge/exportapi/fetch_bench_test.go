package exportapi_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// canned answers all requests with the same bytes, so that the server takes almost none of
// the measured time.
func canned(b *testing.B, encoding string, body []byte) string {
	b.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(b)
	b.Cleanup(func() { _ = l.Close() })
	if encoding != "" {
		body = compress(encoding, body)
		encoding = "Content-Encoding: " + encoding + "\r\n"
	}
	answer := append(fmt.Appendf(nil,
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\nDate: Mon, 02 Nov 2026 10:00:00 "+
			"GMT\r\n\r\n", encoding, len(body)), body...)
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the client's connections
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					line, err := in.ReadSlice('\n')
					if err != nil {
						return
					}
					if len(line) > 2 {
						continue
					}
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// BenchmarkFetch requests one page after the other: request, body and cursor, without
// decoding.
func BenchmarkFetch(b *testing.B) {
	item := `{"eventId":"00000000-0000-0000-0000-000000000000","userId":"u-1","timestamp":1700000000000,` +
		`"payload":{"type":"tested","pad":"` + noise(1, 300) + strings.Repeat("lorem ipsum ", 20) + `"}}`
	body := []byte(`{"items":[` + strings.TrimSuffix(strings.Repeat(item+",", 1000), ",") + `],"nextCursor":"` +
		noise(2, 60) + `"}`)
	for _, encoding := range []string{"", "gzip", "zstd"} {
		name := encoding
		if name == "" {
			name = "plain"
		}
		b.Run(name, func(b *testing.B) {
			c := connect(b, config(b, map[string]string{"EXPORT_URL": canned(b, encoding, body)}))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				p := must.Get(c.Fetch(b.Context(), bridge.Position{Cursor: "c"}))(b)
				p.Release()
			}
		})
	}
}

// noise returns text that does not compress, for bodies that are large on the wire.
func noise(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, seed))
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[r.IntN(36)]
	}
	return string(b)
}
