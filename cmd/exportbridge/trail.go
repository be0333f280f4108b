package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/config"
)

// trailTimeout bounds how long the checkpoint topic is read where Redis does
// not have what is asked for.
const trailTimeout = 30 * time.Second

// found is the checkpoint of a stream and where it was found.
type found struct {
	bridge.Checkpoint
	// note says why it is the checkpoint topic's; empty where Redis has it.
	note string
}

// find returns the stream's checkpoint: Redis's, or the checkpoint topic's where
// Redis has none or does not answer.
func (p *position) find(ctx context.Context) (found, error) {
	c, err := p.load(ctx)
	if err == nil || p.kafkaIsHidden() {
		return found{Checkpoint: c}, err
	}
	if fault, ok := errors.AsType[*bridge.Fault](err); ok && fault.Class == bridge.Permanent {
		return found{}, err // it answered, and a setting is wrong
	}
	ctx, cancel := context.WithTimeout(ctx, trailTimeout)
	defer cancel()
	newest, trailErr := newestOf(ctx, p.sink)
	switch {
	case trailErr != nil:
		return found{}, also(err, "the checkpoint topic cannot be read either: "+trailErr.Error())
	case newest.Zero():
		return found{}, err
	}
	return found{Checkpoint: newest, note: "from the checkpoint topic: " + cut(err.Error(), 120)}, nil
}

// newestOf returns the stream's checkpoint as the checkpoint topic has it; the
// zero value where there is none.
func newestOf(ctx context.Context, sink *kafkasink.Sink) (newest bridge.Checkpoint, err error) {
	err = sink.Trail(ctx, func(c bridge.Checkpoint) bool {
		newest = c
		return false
	})
	return newest, err
}

// also adds what else is known to an error, and keeps its hint.
func also(err error, what string) error {
	known, ok := errors.AsType[*exitError](err)
	if !ok {
		return fmt.Errorf("%w; %s", err, what)
	}
	return &exitError{code: known.code, err: fmt.Errorf("%w; %s", known.err, what), hint: known.hint}
}

// kafkaIsHidden reports whether this process cannot read the stream's Kafka.
func (p *position) kafkaIsHidden() bool {
	return p.sink == nil || config.IsEmbedded(&p.stream.Kafka)
}

// past is a part of a stream's history.
type past struct {
	entries []bridge.Entry // newest first
	inRedis int            // so many of them are Redis's, the others Kafka's
	note    string         // what is Kafka's, and what is missing
}

// history returns the entries of Redis, and from the checkpoint topic those
// before them: Redis was emptied, or is away, or the stream is young. A limit
// of 0 is all.
func (p *position) history(ctx context.Context, q bridge.HistoryQuery) (past, error) {
	entries, err := p.store.History(ctx, q)
	if err == nil && q.Limit > 0 && len(entries) >= q.Limit || p.kafkaIsHidden() {
		return past{entries: entries, inRedis: len(entries)}, err
	}
	ctx, cancel := context.WithTimeout(ctx, trailTimeout)
	defer cancel()
	inRedis := len(entries)
	trailErr := p.sink.Trail(ctx, func(c bridge.Checkpoint) bool {
		switch {
		case !q.Since.IsZero() && c.WrittenAt < q.Since.UnixMilli():
			return false
		case c.Kind == bridge.KindHeartbeat, inRedis > 0 && c.Place.Compare(entries[inRedis-1].Place) >= 0:
			return true
		}
		entries = append(entries, bridge.Entry{Checkpoint: c})
		return q.Limit == 0 || len(entries) < q.Limit
	})
	note := ""
	switch more := len(entries) - inRedis; {
	case trailErr != nil && err != nil:
		return past{}, also(hinted(err), "the checkpoint topic cannot be read either: "+trailErr.Error())
	case trailErr != nil:
		note = "the checkpoint topic cannot be read, this is what Redis has: " + cut(trailErr.Error(), 120)
	case err != nil:
		note = "Redis does not answer, this is what the checkpoint topic has: " + cut(err.Error(), 120)
	case more > 0:
		note = fmt.Sprintf("the last %d are from the checkpoint topic, Redis has none before", more)
	}
	return past{entries, inRedis, note}, nil
}

// standing returns the checkpoint that a move is made from: Redis's, or the
// checkpoint topic's where Redis lost its copy or does not answer, or none at
// all. The bridge may be blocked because there is none any more.
func (p *position) standing(ctx context.Context) (bridge.Checkpoint, error) {
	c, err := p.store.Load(ctx)
	switch {
	case isAway(err) && !p.kafkaIsHidden():
		p.away = err
	case !errors.Is(err, bridge.ErrNoCheckpoint):
		return c, hinted(err)
	case p.kafkaIsHidden():
		return bridge.Checkpoint{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, trailTimeout)
	defer cancel()
	c, trailErr := newestOf(ctx, p.sink)
	switch {
	case trailErr != nil && p.away != nil:
		return c, also(hinted(err), "the checkpoint topic cannot be read either: "+trailErr.Error())
	case trailErr != nil:
		return c, fmt.Errorf("redis has no checkpoint of stream %s, and the checkpoint topic cannot be read: %w", p.store.Name(), trailErr)
	case p.away != nil && c.Zero():
		return c, also(hinted(err), "the checkpoint topic has no checkpoint of stream "+p.store.Name())
	}
	return c, nil
}

// matcher says whether a commit is the one that is looked for, and whether to
// look at older ones.
type matcher func(bridge.Checkpoint) (match, more bool)

// older looks for an entry in the checkpoint topic that Redis does not have.
// The error is noEntry where the topic does not have it either.
func (p *position) older(ctx context.Context, noEntry error, is matcher) (bridge.Entry, error) {
	if p.kafkaIsHidden() {
		return bridge.Entry{}, noEntry
	}
	ctx, cancel := context.WithTimeout(ctx, trailTimeout)
	defer cancel()
	e, ok := bridge.Entry{}, false
	err := p.sink.Trail(ctx, func(c bridge.Checkpoint) bool {
		match, more := is(c)
		if match {
			e.Checkpoint, ok = c, true
		}
		return more && !match
	})
	switch {
	case err != nil:
		return e, also(hinted(noEntry), "the checkpoint topic cannot be read: "+err.Error())
	case !ok:
		return e, noEntry
	}
	return e, nil
}

// isAt matches the newest commit at or before t.
func isAt(t time.Time) matcher {
	return func(c bridge.Checkpoint) (bool, bool) { return c.WrittenAt <= t.UnixMilli(), true }
}

// isEntry matches one commit.
func isEntry(at bridge.Place) matcher {
	return func(c bridge.Checkpoint) (bool, bool) { return c.Place == at, c.Place.Compare(at) > 0 }
}

// isBack matches the newest commit at least so many pages before now. Pauses do
// not end the way back; where a reset came from is another way.
func isBack(now bridge.Checkpoint, pages int64) matcher {
	epoch := now.Epoch
	return func(c bridge.Checkpoint) (bool, bool) {
		if c.Epoch < epoch {
			return false, false
		}
		if c.Seq == 0 && c.Change != nil && (c.Change.Kind == bridge.KindPause || c.Change.Kind == bridge.KindResume) {
			epoch = c.Change.From.Epoch
		}
		return c.Pages <= now.Pages-pages, true
	}
}
