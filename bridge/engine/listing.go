package engine

import (
	"context"
	"errors"

	"exportbridge/bridge"
)

// loadListing reads back what the topic holds of the items that the next windows may
// list. A listing begins, and a reset is placed, with the topics as they are: nothing
// was published since.
func (s *stream) loadListing(ctx context.Context) (bridge.PublishedIndex, error) {
	at := s.at.Position()
	w, ok := at.Watermark()
	switch l := s.at.Listing; {
	case !ok:
		return nil, &bridge.Fault{
			Class: bridge.Permanent, Code: "cursor", Reason: bridge.ReasonCursor, HintCode: bridge.HintFollow,
			Err: errors.New("the cursor is no watermark, which EXPORT_FOLLOW=windows requires"),
		}
	case l == nil:
		s.at.Listing = bridge.BeginListing(w.At, s.session.topics)
	case l.Again != 0 && l.Behind == nil:
		placed := *l
		placed.Behind = bridge.Extents(s.session.topics)
		s.at.Listing = &placed
	}
	l := s.at.Listing
	since := l.Since(w.At, s.e.cfg.LookBack)
	since.ByKey = !s.e.cfg.ChangedIsNew
	held, err := s.readPublished(ctx, since)
	if err != nil || l.Again == 0 {
		return held, err
	}
	since.Topics = l.Behind
	again, err := s.readPublished(ctx, since)
	return &resetIndex{from: l.Again, before: held, again: again}, err
}

// resetIndex is what a topic holds after a reset: of the items from a time on only what
// was published since.
type resetIndex struct {
	from          int64 // milliseconds since the epoch
	before, again bridge.PublishedIndex
}

// Match implements bridge.PublishedIndex.
func (h *resetIndex) Match(e *bridge.Event) bool {
	if e.Defect == bridge.DefectNone && e.Time >= h.from {
		return h.again.Match(e)
	}
	return h.before.Match(e)
}
