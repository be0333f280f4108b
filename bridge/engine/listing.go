package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
)

// loadPublished reads the topic back before an overlap is read, or windows are listed.
func (s *progress) loadPublished(ctx context.Context, e *Engine, topics []bridge.TopicState) (err error) {
	switch {
	case s.known.Published != nil:
	case e.cfg.listing():
		s.known.Published, err = s.loadListing(ctx, e, topics)
	case s.at.Overlaps() && e.ports.Published == nil:
		s.known.Published = nothing{}
	case s.at.Overlaps():
		since := bridge.Since{Time: time.UnixMilli(s.at.Overlap.From), Topics: s.at.OverlapTopics}
		s.known.Published, err = s.readPublished(ctx, e, since)
	}
	return err
}

// nothing is the index of a process that cannot read the topic: each event is published.
type nothing struct{}

// Match implements bridge.PublishedIndex.
func (nothing) Match(*bridge.Event) bool { return false }

// readPublished reads the topics of since, and those that the stream has or had since then.
func (s *progress) readPublished(ctx context.Context, e *Engine, since bridge.Since) (bridge.PublishedIndex, error) {
	if e.ports.Published == nil {
		return nil, errors.New("a stream that follows windows requires the port Published")
	}
	defer e.watchdog.wait()()
	since.Topics = bridge.AddTopics(since.Topics, s.at.Topics)
	held, err := e.ports.Published.Index(ctx, since, s.at.Source)
	if err != nil {
		return nil, fmt.Errorf("read the published events: %w", err)
	}
	return held, nil
}

// loadListing reads back which items of the next windows the topic holds. A new listing,
// and a listing after a reset, count from the present ends of the topics: nothing was
// published since they were created.
func (s *progress) loadListing(ctx context.Context, e *Engine,
	topics []bridge.TopicState) (bridge.PublishedIndex, error) {
	at := s.at.Position()
	w, ok := at.Watermark()
	switch l := s.at.Listing; {
	case !ok:
		return nil, bridge.BlockHintf("cursor", bridge.ReasonCursor, bridge.HintFollow,
			"the cursor is no watermark, which EXPORT_FOLLOW=windows requires")
	case l == nil:
		s.at.Listing = bridge.BeginListing(w.At, topics)
	case l.Again != 0 && l.Behind == nil:
		placed := *l
		placed.Behind = bridge.Extents(topics)
		s.at.Listing = &placed
	}
	l := s.at.Listing
	since := l.Since(w.At, e.cfg.LookBack)
	since.ByKey = !e.cfg.ChangedIsNew
	held, err := s.readPublished(ctx, e, since)
	if err != nil || l.Again == 0 {
		return held, err
	}
	since.Topics, since.EndsOnly = l.Behind, true
	again, err := s.readPublished(ctx, e, since)
	return &position.ResetIndex{From: l.Again, Before: held, Again: again}, err
}

// listingAfter returns the Listing after a reset to next. It is nil, so that a new listing
// begins, if the reset accepts another list, or a topic that lacks events: such a topic
// does not show which of the items before next were published.
func (s *session) listingAfter(was, next bridge.Checkpoint) *bridge.Listing {
	from, to := was.Position(), next.Position()
	before, known := from.Watermark()
	after, ok := to.Watermark()
	if !ok || !known || was.Topic != "" && was.Topic != next.Topic || !was.SameList(&next.Origin) ||
		s.topics == nil && bridge.TopicsLost(was, s.found) != nil {
		return nil
	}
	if was.Cursor != "" && was.Cursor == next.Cursor { // the items in the topic still count
		return was.Listing.WithGap(0)
	}
	// The stream may be ahead of its checkpoint by a heartbeat at most.
	return was.Listing.Reset(before, after, was.PositionTime+2*heartbeatInterval.Milliseconds(), s.e.cfg.LookBack)
}
