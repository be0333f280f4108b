package bridgetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"exportbridge/bridge"
)

// Records returns the events in the topic, then the dead letters.
func (p *Topic) Records() []Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Record, 0, len(p.records))
	for _, letters := range []bool{false, true} {
		for i := range p.records {
			if (p.records[i].Defect != bridge.DefectNone) == letters {
				all = append(all, p.records[i])
			}
		}
	}
	return all
}

// Count returns how many events in the topic have this value.
func (p *Topic) Count(value []byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counted == 0 {
		p.values = make(map[string]int)
	}
	for ; p.counted < len(p.records); p.counted++ {
		if r := &p.records[p.counted]; r.Defect == bridge.DefectNone {
			p.values[string(r.Value)]++
		}
	}
	return p.values[string(value)]
}

// Recreate deletes the topic with its records and creates it again. The checkpoints stay.
// Earlier sessions can no longer publish.
func (p *Topic) Recreate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	p.records, p.ended, p.trimmed, p.counted = nil, 0, 0, 0
}

// Cut drops the newest n records and keeps the checkpoints.
func (p *Topic) Cut(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records, p.ended, p.counted = p.records[:len(p.records)-n], p.ended-n, 0
}

// Trim drops the oldest n records, as retention or a person can. finite is set if the topic
// has a retention that explains the loss.
func (p *Topic) Trim(n int, finite bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counted = 0
	p.records, p.trimmed, p.Finite = slices.Delete(p.records, 0, n), p.trimmed+n, finite
}

// Share adds n records of another stream, which only the extent of the topic shows.
func (p *Topic) Share(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended += n
}

// Grow adds a partition.
func (p *Topic) Grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.partitions++
}

// Rewrite replaces the newest checkpoint of a stream by c.
func (p *Topic) Rewrite(c bridge.Checkpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.kept) - 1; i >= 0; i-- {
		if p.kept[i].Checkpoint.Stream == c.Stream {
			p.kept[i].Checkpoint = c
			return
		}
	}
}

// states returns the state of the topic. The caller holds mu.
func (p *Topic) states() []bridge.TopicState {
	ends := bridge.EncodeEnds([]int64{int64(p.ended)})
	if p.NoEnds {
		ends = ""
	}
	return []bridge.TopicState{{
		Name: cmp.Or(p.Name, "events"), ID: fmt.Sprint("topic-", p.made), Partitions: p.partitions, End: int64(p.ended),
		Start: int64(p.trimmed), KeepsAll: !p.Finite,
		Ends: ends,
	}}
}

// Topics implements bridge.Sink.
func (s *Sink) Topics(ctx context.Context) ([]bridge.TopicState, error) {
	p := s.topic
	if err := p.reachable(ctx); err != nil {
		return nil, s.broken(fmt.Errorf("look at the topic: %w", err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !s.open:
		return nil, errors.New("look at the topic: no session")
	case s.made != p.made:
		s.open = false
		return nil, errReplaced
	}
	s.known = p.ended
	return p.states(), nil
}

// cutOff ends a session whose records were acknowledged below the known end of the topic.
// The records already sent occupy offsets. The caller holds mu.
func (s *Sink) cutOff(records []Record, lost int) error {
	p := s.topic
	s.open, p.ended = false, p.ended+len(records)
	if p.mode == bridge.AtLeastOnce {
		p.records = append(p.records, records...)
	}
	return fmt.Errorf("publish: %w", &bridge.CutOffError{Topic: "events", Offsets: int64(lost)})
}

// errReplaced means that the topic of the session was deleted.
var errReplaced = errors.New("the topic was recreated")
