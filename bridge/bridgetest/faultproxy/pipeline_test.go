package faultproxy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// carryPipes carries a connection between two pipes in the bubble's time.
func carryPipes(t *testing.T, p *KafkaProxy) (client, server net.Conn) {
	t.Helper()
	client, clientEnd := net.Pipe()
	server, serverEnd := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	l := &link{client: clientEnd, server: serverEnd, cancel: cancel}
	var carrying sync.WaitGroup
	carrying.Go(func() { p.carry(ctx, l) })
	t.Cleanup(func() {
		l.cut()
		carrying.Wait()
	})
	return client, server
}

// requestFrame is a request without body and client id.
func requestFrame(key kmsg.Key, id int32) []byte {
	f := binary.BigEndian.AppendUint32(nil, 10)
	f = binary.BigEndian.AppendUint16(f, uint16(key))
	f = binary.BigEndian.AppendUint16(f, 0)
	f = binary.BigEndian.AppendUint32(f, uint32(id))
	return binary.BigEndian.AppendUint16(f, 0xffff)
}

// replyFrame is a reply without a body.
func replyFrame(id int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 4), uint32(id))
}

// exchange sends a frame for each key and its reply back, all at once, and
// returns how long the requests and the whole took.
func exchange(t *testing.T, client, server net.Conn, keys ...kmsg.Key) (requests, whole time.Duration) {
	t.Helper()
	begin := time.Now()
	send := func(to io.Writer, frame func(i int) []byte) {
		for i := range keys {
			if _, err := to.Write(frame(i)); err != nil {
				t.Error(err)
			}
		}
	}
	receive := func(from io.Reader, size int) time.Duration {
		if _, err := io.ReadFull(from, make([]byte, size*len(keys))); err != nil {
			t.Error(err)
		}
		return time.Since(begin)
	}
	go send(client, func(i int) []byte { return requestFrame(keys[i], int32(i)) })
	requests = receive(server, 14)
	go send(server, func(i int) []byte { return replyFrame(int32(i)) })
	return requests, receive(client, 8)
}

// TestPipeline of ten requests: their replies take one delay together.
func TestPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewKafkaProxy()
		p.Add(KafkaRule{Fault: DelayReply, Delay: 5 * time.Millisecond, Times: -1})
		client, server := carryPipes(t, p)
		if requests, whole := exchange(t, client, server, make([]kmsg.Key, 10)...); requests != 0 ||
			whole != 5*time.Millisecond {
			t.Errorf("10 requests took %s and their replies %s, want 0 and 5ms", requests, whole)
		}
	})
}

func TestDelayOfOneKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewKafkaProxy()
		p.Add(KafkaRule{Fault: DelayReply, Delay: 50 * time.Millisecond, Spread: 50 * time.Millisecond, Times: -1,
			Keys: []kmsg.Key{kmsg.EndTxn}})
		client, server := carryPipes(t, p)
		for _, key := range []kmsg.Key{kmsg.Heartbeat, kmsg.EndTxn, kmsg.AddPartitionsToTxn, kmsg.EndTxn} {
			_, took := exchange(t, client, server, key)
			if late := took >= 50*time.Millisecond && took < 100*time.Millisecond; late != (key == kmsg.EndTxn) || !late &&
				took != 0 {
				t.Errorf("a reply to %s took %s", key.Name(), took)
			}
		}
	})
}

func TestRefusesWhatIsNotKafka(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := carryPipes(t, NewKafkaProxy())
		go func() { _, _ = client.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc")) }() // TLS
		if n, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the server read %d bytes, %v", n, err)
		}
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is still there")
		}
	})
}
