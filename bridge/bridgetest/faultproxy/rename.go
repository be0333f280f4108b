package faultproxy

import (
	"encoding/binary"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Before starts a proxy for a broker that advertises its own address, and returns the
// proxy's address. From then on, replies that list brokers name the proxy, so that all
// connections of a client lead through it. A reply that reports a moved partition keeps the
// new leader's address.
func (p *KafkaProxy) Before(broker string) (*net.TCPAddr, error) {
	p.renaming.Lock()
	defer p.renaming.Unlock()
	if front, ok := p.fronts[broker]; ok {
		return front, nil
	}
	front, err := p.Front(anyPort, broker)
	if err != nil {
		return nil, err
	}
	p.fronts[broker] = front.(*net.TCPAddr)
	return p.fronts[broker], nil
}

func (p *KafkaProxy) renames() bool {
	p.renaming.Lock()
	defer p.renaming.Unlock()
	return len(p.fronts) > 0
}

// rename replaces the brokers' addresses in a reply by those of the proxy.
func (p *KafkaProxy) rename(h *requestHeader, frame []byte) ([]byte, error) {
	if h.key != kmsg.Metadata && h.key != kmsg.FindCoordinator && h.key != kmsg.DescribeCluster || !p.renames() {
		return frame, nil
	}
	reply, err := h.decodeReply(frame)
	if err != nil {
		return nil, err
	}
	for _, a := range addressesIn(reply) {
		if *a.host == "" {
			continue // the reply names no coordinator
		}
		front, err := p.Before(net.JoinHostPort(*a.host, strconv.Itoa(int(*a.port))))
		if err != nil {
			return nil, err
		}
		*a.host, *a.port = front.IP.String(), int32(front.Port)
	}
	out := append(make([]byte, 4, len(frame)+64), frame[4:8]...)
	if reply.IsFlexible() {
		out = append(out, 0) // no tags
	}
	out = reply.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out, nil
}

// address is a broker's address in a reply.
type address struct {
	host *string
	port *int32
}

func addressesIn(reply kmsg.Response) (all []address) {
	switch r := reply.(type) {
	case *kmsg.MetadataResponse:
		for i := range r.Brokers {
			all = append(all, address{&r.Brokers[i].Host, &r.Brokers[i].Port})
		}
	case *kmsg.DescribeClusterResponse:
		for i := range r.Brokers {
			all = append(all, address{&r.Brokers[i].Host, &r.Brokers[i].Port})
		}
	case *kmsg.FindCoordinatorResponse:
		all = append(all, address{&r.Host, &r.Port}) // up to version 3
		for i := range r.Coordinators {
			all = append(all, address{&r.Coordinators[i].Host, &r.Coordinators[i].Port})
		}
	}
	return all
}
