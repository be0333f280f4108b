package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
)

// failing is the number of the call that fails, 0 for none, and how.
type failing struct {
	at  int
	how bridgetest.Failure
}

// retryPlan is a schedule of two retries, and of a last one that nothing disturbs.
type retryPlan struct {
	fails [2]failing
	// what happens before call at of the first retry, or between the two if at is 0:
	// "remake" or "retention"; empty is nothing. then happens before the last one.
	what, then string
	at         int
	older      bool // the marks become those of an older version between the retries
}

// explored is a world whose port calls are counted.
type explored struct {
	*world
	plan   retryPlan
	round  int
	calls  int
	trace  []string
	failed bool           // a call of this round
	holds  map[string]int // how often the topic got an item, or was left to get it
	broken []string
}

// do runs a call of a port, which the plan may have fail.
func (x *explored) do(name string, call func() error) error {
	x.calls++
	x.trace = append(x.trace, name)
	if x.round == 0 && x.plan.at == x.calls {
		x.happen(x.plan.what, name)
	}
	if x.round > 1 || x.plan.fails[x.round].at != x.calls {
		return call()
	}
	x.failed = true
	if x.plan.fails[x.round].how == bridgetest.Persisted && name == "Publish" {
		_ = call() // it is the answer that fails
	}
	return &bridge.Fault{Class: bridge.Permanent, Err: bridgetest.ErrDown}
}

// ask is do with a result.
func ask[T any](x *explored, name string, call func() (T, error)) (T, error) {
	var v T
	err := x.do(name, func() (err error) { v, err = call(); return err })
	return v, err
}

func (x *explored) happen(what, before string) {
	x.trace = append(x.trace, "("+what+")")
	switch {
	case what == "remake" && before != "Ends" && before != "Read": // not here: a reader fails where its spans are gone
		x.events.Remake("second")
		clear(x.holds)
	case what == "retention":
		ends, _ := x.events.Ends(x.t.Context())
		x.events.Expire(time.Hour)
		x.events.Delete(0, ends[0])
	}
}

type failingEvents struct {
	*fakelog.Log
	x *explored
}

func (l failingEvents) Bounds(ctx context.Context) (map[int32]kafkaclient.Span, error) {
	return ask(l.x, "Bounds", func() (map[int32]kafkaclient.Span, error) { return l.Log.Bounds(ctx) })
}

func (l failingEvents) Ends(ctx context.Context) (map[int32]int64, error) {
	return ask(l.x, "Ends", func() (map[int32]int64, error) { return l.Log.Ends(ctx) })
}

func (l failingEvents) Read(ctx context.Context, spans map[int32]kafkaclient.Span,
	visit func(*kgo.Record) error) error {
	return l.x.do("Read", func() error { return l.Log.Read(ctx, spans, visit) })
}

func (l failingEvents) Kept(ctx context.Context) ([]kafkaclient.Kept, error) {
	return ask(l.x, "Kept", func() ([]kafkaclient.Kept, error) { return l.Log.Kept(ctx) })
}

type failingLetters struct {
	*fakelog.Log
	x *explored
}

func (l failingLetters) Bounds(ctx context.Context) (map[int32]kafkaclient.Span, error) {
	return ask(l.x, "Letters", func() (map[int32]kafkaclient.Span, error) { return l.Log.Bounds(ctx) })
}

func (l failingLetters) Read(ctx context.Context, spans map[int32]kafkaclient.Span,
	visit func(*kgo.Record) error) error {
	return l.x.do("Load", func() error { return l.Log.Read(ctx, spans, visit) })
}

type failingSource struct {
	*bridgetest.Source
	x *explored
}

func (s failingSource) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	return ask(s.x, "Fetch", func() (*bridge.Page, error) { return s.Source.Fetch(ctx, at) })
}

type failingPublisher struct {
	*publisher
	x *explored
}

func (p failingPublisher) Publish(ctx context.Context, page *bridge.Page, mark string,
	value []byte) (bridge.Receipt, error) {
	return ask(p.x, "Publish", func() (bridge.Receipt, error) {
		id, before := string(page.Events[0].ID), len(p.published)
		receipt, err := p.publisher.Publish(ctx, page, mark, value)
		if len(p.published) > before {
			if p.x.holds[id]++; p.x.holds[id] > 1 {
				p.x.broken = append(p.x.broken, id+" is published again")
			}
		}
		return receipt, err
	})
}

// run runs the plan and returns the calls of the first retry and, if rules are broken,
// which.
func (p retryPlan) run(t *testing.T) (first []string, broken string) {
	x := &explored{world: newWorld(t), plan: p, holds: make(map[string]int)}
	x.source.Append(item("a"), item("b"), item("c"))
	places := []deadletter.Place{ // two of a, of which one is published, and c where it was
		x.letter("a"), x.letter("b"), x.letter("a"), x.position(item("c"), "c", "", 2),
	}
	x.topic.Log = failingLetters{x.log, x}
	for x.round = range 3 {
		switch x.round {
		case 1:
			first = x.trace
			if p.older {
				x.publisher.forgetTopics()
			}
			if p.at == 0 {
				x.happen(p.what, "")
			}
		case 2:
			x.happen(p.then, "")
		}
		x.trace, x.calls, x.failed = append(x.trace, "|"), 0, false
		time.Sleep(time.Second) //nolint:forbidigo // virtual time: another mark has another one
		reported := 0
		x.publisher.open()
		r := x.retrying(func(one deadletter.Retried) error {
			if reported++; x.holds[one.ID] == 0 && one.ID != "" {
				x.broken = append(x.broken, fmt.Sprintf("round %d says %+v, and the topic never got it", x.round, one))
			}
			return nil
		})
		r.Source, r.Publisher = failingSource{x.source, x}, failingPublisher{x.publisher, x}
		r.Events = failingEvents{x.events, x}
		if err := r.Run(t.Context(), places); x.failed != errors.Is(err, bridgetest.ErrDown) || err != nil && !x.failed &&
			!strings.Contains(err.Error(), "recreated meanwhile") || err == nil && reported != len(places) {
			x.broken = append(x.broken, fmt.Sprintf("round %d ends with %v after %d letters", x.round, err, reported))
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		if x.holds[id] != 1 {
			x.broken = append(x.broken, fmt.Sprintf("%s was published %d times", id, x.holds[id]))
		}
	}
	if len(x.broken) == 0 {
		return first, ""
	}
	return first, fmt.Sprintf("%+v:\n%s\n%s", p, strings.Join(x.broken, "\n"), strings.Join(x.trace, " "))
}

// TestExploreRetry: after any failures and events, the topic has the event of each letter
// once.
func TestExploreRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, broken := retryPlan{}.run(t)
		if broken != "" {
			t.Fatal(broken)
		}
		calls = calls[1:]
		for at := range len(calls) + 1 {
			var all []retryPlan
			for _, what := range []string{"", "remake", "retention"} {
				for _, then := range []string{"", "retention"} {
					all = append(all, retryPlan{what: what, then: then, at: at})
				}
				for second := at % 3; second < 20; second += 3 {
					for how := range bridgetest.Persisted + 1 {
						fails := [2]failing{{at, how}, {second, how}}
						all = append(all, retryPlan{fails: fails, what: what}, retryPlan{fails: fails, what: what, older: true},
							retryPlan{fails: fails, older: true, then: what})
					}
				}
			}
			for _, p := range all {
				if _, broken := p.run(t); broken != "" {
					t.Fatal(broken)
				}
			}
		}
	})
}
