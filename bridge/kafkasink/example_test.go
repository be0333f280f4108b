package kafkasink_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/kafkastream"
)

// invoices is an own Source: anything that returns a page for a cursor. This one has two
// items a page; its cursor is the number of the next item.
type invoices []string

// Fetch implements bridge.Source. A real one would ask a server, and return a
// *bridge.Fault that says what went wrong and whether to try again.
func (in invoices) Fetch(_ context.Context, at bridge.Position) (*bridge.Page, error) {
	from, _ := strconv.Atoi(at.Cursor) // the first page has no cursor
	now := time.Now()
	p := &bridge.Page{At: at, RequestedAt: now, ArrivedAt: now}
	if to := min(from+2, len(in)); to > from {
		p.Next = strconv.Itoa(to)
	}
	return p, nil
}

// Decode implements bridge.Source.
func (in invoices) Decode(p *bridge.Page) error {
	from, _ := strconv.Atoi(p.At.Cursor)
	for i, item := range in[from:min(from+2, len(in))] {
		p.Events = append(p.Events, bridge.Event{
			Raw: []byte(item), ID: []byte("invoice-" + strconv.Itoa(from+i)), Key: []byte("customer"),
			Time: time.Now().UnixMilli(), Index: i,
		})
	}
	p.Items = len(p.Events)
	return nil
}

// An own Source, published to Kafka in exactly-once mode: a second run resumes at the
// committed cursor.
func Example() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1)) // or the addresses of a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()

	kafka := kafkastream.DefaultConfig()
	kafka.Brokers, kafka.Topic, kafka.CreateTopics = cluster.ListenAddrs(), "invoices", true
	kafka.Stream, kafka.Resource, kafka.Mode = "invoices", "events", bridge.ExactlyOnce

	cfg := engine.DefaultConfig()
	cfg.Stream, cfg.Mode, cfg.PageSize = kafka.Stream, kafka.Mode, 2
	cfg.Origin, cfg.Limits = bridge.Origin{Resource: "invoices"}, engine.Limits{Once: true}

	for _, listed := range []invoices{{`{"total":10}`, `{"total":20}`, `{"total":30}`},
		{`{"total":10}`, `{"total":20}`, `{"total":30}`, `{"total":40}`}} {
		sink, err := kafka.Sink()
		if err != nil {
			fmt.Println(err)
			return
		}
		b, err := engine.New(cfg, engine.Ports{Source: listed, Sink: sink})
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := b.Run(context.Background()); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("published", b.Status().Published)
		sink.Close()
	}

	reader, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers...), kgo.ConsumeTopics("invoices"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()
	for n := 0; n < 4; {
		reader.PollFetches(context.Background()).EachRecord(func(r *kgo.Record) {
			fmt.Println(string(r.Key), string(r.Value))
			n++
		})
	}
	// Output:
	// published 3
	// published 1
	// customer {"total":10}
	// customer {"total":20}
	// customer {"total":30}
	// customer {"total":40}
}
