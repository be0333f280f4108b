package bridgetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// The ports for own servers lie below the range that systems give to outgoing
// connections.
const (
	firstPort  = 15000
	lastPort   = 31000
	portsBlock = 16
)

// portBlock is a range of free ports that nobody who uses this package takes.
// The listener on the range's first port is the lock, so that it ends with
// this process.
type portBlock struct {
	lock net.Listener
	next int
	end  int
}

func takePorts() (*portBlock, error) {
	const blocks = (lastPort - firstPort) / portsBlock
	first := rand.IntN(blocks)
	for i := range blocks {
		base := firstPort + (first+i)%blocks*portsBlock
		lock, err := net.Listen("tcp", localAddr(base))
		if err != nil {
			continue
		}
		if b := (&portBlock{lock: lock, next: base + 1, end: base + portsBlock}); b.free() {
			return b, nil
		}
		lock.Close()
	}
	return nil, fmt.Errorf("take ports: no %d free ports in a row between %d and %d", portsBlock, firstPort, lastPort)
}

// free reports whether nobody listens on any port of the block.
func (b *portBlock) free() bool {
	for port := b.next; port < b.end; port++ {
		l, err := net.Listen("tcp", localAddr(port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

// take returns the address of the next port.
func (b *portBlock) take() (string, error) {
	if b.next == b.end {
		return "", errors.New("take a port: the block is used up")
	}
	b.next++
	return localAddr(b.next - 1), nil
}

func (b *portBlock) release() error { return b.lock.Close() }

// FreeAddress returns a loopback address that nobody listens at. Its port is
// below those that systems give to outgoing connections, any of which could
// have taken it before the process listens that it is for, and below those of
// this package's servers.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const lowest = 10_000
	for try := 1; ; try++ {
		addr := localAddr(lowest + rand.IntN(firstPort-lowest))
		l, err := net.Listen("tcp", addr)
		switch {
		case err == nil:
			l.Close()
			return addr
		case try == 100:
			t.Fatal(err)
		}
	}
}

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
