package servers

import (
	"io"
	"net"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

// Answering returns the address of a server that calls answer with each connection, one
// after the other, and then closes the connection. The end of the test stops the server.
func Answering(t testing.TB, answer func(net.Conn)) (addr string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// Say returns a function for Answering: it waits for the first bytes, and sends the text.
func Say(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, text)
	}
}
