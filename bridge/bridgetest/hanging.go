package bridgetest

import (
	"context"
	"sync/atomic"

	"exportbridge/bridge"
)

// Hanging is a Source whose calls run a hook first, which may hang; nil runs nothing.
// Both hooks get the context of the last call of Fetch. A call whose context has ended
// returns its error.
type Hanging struct {
	*Source
	InFetch, InDecode func(ctx context.Context)
	Calls             atomic.Int64 // of Fetch

	ctx atomic.Pointer[context.Context]
}

// Hang is a hook that returns when its context ends.
func Hang(ctx context.Context) { <-ctx.Done() }

// Fetch implements bridge.Source.
func (h *Hanging) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	h.Calls.Add(1)
	h.ctx.Store(&ctx)
	if h.InFetch != nil {
		h.InFetch(ctx)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return h.Source.Fetch(ctx, at)
}

// Decode implements bridge.Source.
func (h *Hanging) Decode(p *bridge.Page) error {
	if h.InDecode == nil {
		return h.Source.Decode(p)
	}
	ctx := *h.ctx.Load()
	h.InDecode(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return h.Source.Decode(p)
}
