package cursorstore_test

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

// TestClusterWithoutNode: while a node of a cluster does not answer, the streams on the other nodes
// have their statuses and their requests.
func TestClusterWithoutNode(t *testing.T) {
	t.Parallel()
	near, far := &member{server: embedded(t)}, &member{server: embedded(t)}
	announce(t, near, far)
	sp := near.space(t)
	cfg := sp.config()
	cfg.URL = cursorstore.URL("redis://" + near.Addr() + "," + far.Addr())
	var mu sync.Mutex // guards health
	health := make(map[string]error)
	cfg.Report = func(stream string, err error) {
		mu.Lock()
		defer mu.Unlock()
		health[stream] = err
	}
	c := open(t, cfg)
	var all []*cursorstore.EncodedStatus
	for n := range 16 {
		all = append(all, &cursorstore.EncodedStatus{Status: bridge.Status{Stream: fmt.Sprintf("s%d", n), Owner: "pod-1",
			Leader: true, State: bridge.StateIdle}})
	}
	must.Do(t, c.PutStatuses(t.Context(), all))
	on := make(map[bool]string) // a stream on the node that answers, and one on the other
	for _, st := range all {
		on[near.mini.Exists(sp.prefix+":{"+st.Stream+"}:status")] = st.Stream
	}
	if len(on) != 2 {
		t.Fatalf("all streams are on one node: %v", on)
	}
	next := func(stream string) (ended <-chan error) {
		c, found := c.Stream(stream), make(chan error, 1)
		go func() {
			cmd, err := c.Next(t.Context())
			if err == nil && cmd.ID != "r1" {
				err = fmt.Errorf("request %q", cmd.ID)
			}
			found <- err
		}()
		return found
	}
	answered, missed := next(on[true]), next(on[false])
	eventually(t, func() error { // both wait
		if near.polls.Load() == 0 || far.polls.Load() == 0 {
			return errors.New("a stream has not been asked for yet")
		}
		return nil
	})

	far.Blackhole(true)
	if c.PutStatuses(t.Context(), all) == nil {
		t.Error("the node that does not answer took statuses")
	}
	mu.Lock()
	for _, st := range all {
		there := near.mini.Exists(sp.prefix + ":{" + st.Stream + "}:status")
		if err := health[st.Stream]; (err == nil) != there {
			t.Errorf("stream %s, whose node answers: %t, reports %v", st.Stream, there, err)
		}
	}
	mu.Unlock()
	mustRequest(t, sp.open(on[true]), reset("r1"), time.Minute)
	if err := <-answered; err != nil {
		t.Errorf("the stream on the node that answers: %v", err)
	}
	if err := <-missed; err == nil {
		t.Error("a node that does not answer has a request")
	}
}

// member is a server of a cluster.
type member struct {
	*server
	polls atomic.Int64 // how often the server was asked for a request
	moved atomic.Bool  // the server sends readers of checkpoints to the next one
}

// TestClusterNotAgreed: during a fail-over, nodes may send a client to each other. That passes,
// and no setting is wrong.
func TestClusterNotAgreed(t *testing.T) {
	t.Parallel()
	one, other := &member{server: embedded(t)}, &member{server: embedded(t)}
	announce(t, one, other)
	cfg := one.space(t).config()
	cfg.URL = cursorstore.URL("redis://" + one.Addr() + "," + other.Addr())
	s := open(t, cfg).Stream(stream)
	one.moved.Store(true)
	other.moved.Store(true)
	_, err := s.Load(t.Context())
	if f := bridge.FaultOf(err); f.Class != bridge.Transient || f.Code != "moved" {
		t.Errorf("%+v", f)
	}
	one.moved.Store(false)
	other.moved.Store(false)
	_, err = s.Load(t.Context())
	must.Be(t, err, bridge.ErrNoCheckpoint)
}

// announce has the servers say that each has its share of the slots.
func announce(t *testing.T, servers ...*member) {
	t.Helper()
	share := 16384 / len(servers)
	for i, s := range servers {
		next := servers[(i+1)%len(servers)].Addr()
		s.mini.Server().SetPreHook(func(c *miniserver.Peer, name string, args ...string) bool {
			switch {
			case name == "HEXISTS":
				s.polls.Add(1)
				return false
			case name == "HGETALL" && s.moved.Load():
				c.WriteError("MOVED 1 " + next)
				return true
			case name != "CLUSTER" || args[0] != "slots":
				return false
			}
			c.WriteLen(len(servers))
			for n, node := range servers {
				host, port, _ := net.SplitHostPort(node.Addr())
				number, _ := strconv.Atoi(port)
				c.WriteLen(3)
				c.WriteInt(n * share)
				c.WriteInt((n+1)*share - 1)
				c.WriteLen(3)
				c.WriteBulk(host)
				c.WriteInt(number)
				c.WriteBulk(strconv.Itoa(n))
			}
			return true
		})
	}
}
