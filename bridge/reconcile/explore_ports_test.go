package reconcile_test

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/reconcile"
)

// ask is do with a result.
func ask[T any](x *explored, name string, call func() (T, error)) (T, error) {
	var v T
	err := x.do(name, func() (err error) { v, err = call(); return err })
	return v, err
}

type failingSource struct {
	source
	x *explored
}

func (s failingSource) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	return ask(s.x, "Fetch", func() (*bridge.Page, error) { return s.source.Fetch(ctx, at) })
}

type failingLog struct {
	*fakelog.Log
	x *explored
}

func (l failingLog) Bounds(ctx context.Context) (map[int32]kafkaclient.Span, error) {
	return ask(l.x, "Bounds", func() (map[int32]kafkaclient.Span, error) { return l.Log.Bounds(ctx) })
}

func (l failingLog) Ends(ctx context.Context) (map[int32]int64, error) {
	return ask(l.x, "Ends", func() (map[int32]int64, error) { return l.Log.Ends(ctx) })
}

func (l failingLog) After(ctx context.Context, millis int64) (map[int32]int64, error) {
	return ask(l.x, "After", func() (map[int32]int64, error) { return l.Log.After(ctx, millis) })
}

func (l failingLog) Read(ctx context.Context, spans map[int32]kafkaclient.Span, visit func(*kgo.Record) error) error {
	return l.x.do("Read", func() error { return l.Log.Read(ctx, spans, visit) })
}

func (l failingLog) Kept(ctx context.Context) ([]kafkaclient.Kept, error) {
	return ask(l.x, "Kept", func() ([]kafkaclient.Kept, error) { return l.Log.Kept(ctx) })
}

type failingLive struct {
	*live
	x *explored
}

func (l failingLive) Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error {
	if x := l.x; !x.awaiting.IsZero() && time.Since(x.awaiting) > 4*time.Second {
		x.awaiting = time.Time{}
		x.happen("poll", "Walk")
	}
	return l.x.do("Walk", func() error { return l.live.Walk(ctx, visit) })
}

func (l failingLive) Running(ctx context.Context) (bool, error) {
	return ask(l.x, "Running", func() (bool, error) { return l.live.Running(ctx) })
}

func (l failingLive) Backfills(ctx context.Context) ([]reconcile.Backfill, error) {
	return ask(l.x, "Backfills", func() ([]reconcile.Backfill, error) { return l.live.Backfills(ctx) })
}

type failingPublisher struct {
	*publisher
	x *explored
}

func (p failingPublisher) Forget(ctx context.Context, names []string) error {
	return p.x.do("Forget", func() error { return p.publisher.Forget(ctx, names) })
}

func (p failingPublisher) Publish(ctx context.Context, page *bridge.Page, mark string,
	value []byte) (bridge.Receipt, error) {
	return ask(p.x, "Publish", func() (bridge.Receipt, error) {
		for i := range page.Events {
			id := string(page.Events[i].AppendRecordID(nil))
			if p.x.publish("a repair", id); p.x.pending[id] {
				p.x.broken = append(p.x.broken, "a repair publishes "+id+" before the stream has passed it")
			}
		}
		return p.publisher.Publish(ctx, page, mark, value)
	})
}
