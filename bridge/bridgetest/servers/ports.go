package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

// The ports for tests and their servers are below the range that systems use for outgoing
// connections.
const (
	firstPort  = 10000
	lastPort   = 31000
	portsBlock = 16
)

// portBlock is a range of free ports that no other user of this package gets. The listener
// on the first port of the range is the lock, so the lock ends with this process.
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

// free reports whether no program listens on any port of the block.
func (b *portBlock) free() bool {
	for port := b.next; port < b.end; port++ {
		if !vacant(port) {
			return false
		}
	}
	return true
}

// vacant reports whether no program listens on a port. To listen there itself would be no
// proof: after Close, a process that is just being started can still have the listener.
func vacant(port int) bool {
	c, err := net.Dial("tcp", localAddr(port))
	if err == nil {
		c.Close()
	}
	return err != nil
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

// given are the ports of FreeAddress. Locks are kept until this process ends, so no two
// tests get the same port, in whatever process.
var given struct {
	mu     sync.Mutex // guards all below
	blocks []*portBlock
}

// FreeAddress returns a loopback address at which no program listens. No later call returns
// the same address, so a test may keep it free, or listen there repeatedly. No outgoing
// connection takes its port, which is below the range of those ports.
func FreeAddress(t testing.TB) string {
	t.Helper()
	given.mu.Lock()
	defer given.mu.Unlock()
	for {
		if n := len(given.blocks); n > 0 {
			if addr, err := given.blocks[n-1].take(); err == nil {
				return addr
			}
		}
		b := must.Get(takePorts())(t)
		given.blocks = append(given.blocks, b)
	}
}

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
