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

// Recreate deletes the topic with its records and makes it again. The
// checkpoints stay. Sessions that began before publish no more.
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

// Trim drops the oldest n records, as retention does, or somebody. Finite says
// whether the topic has a retention that explains it.
func (p *Topic) Trim(n int, finite bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counted = 0
	p.records, p.trimmed, p.Finite = slices.Delete(p.records, 0, n), p.trimmed+n, finite
}

// Grow adds a partition.
func (p *Topic) Grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.partitions++
}

// Rewrite makes c the newest checkpoint of its stream, in place of that one.
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

// states returns the topic, by the caller holding mu.
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

// cutOff ends a session whose records were acknowledged below where the topic
// had reached. What was sent of them takes offsets. The caller holds mu.
func (s *Sink) cutOff(records []Record, lost int) error {
	p := s.topic
	s.open, p.ended = false, p.ended+len(records)
	if p.mode == bridge.AtLeastOnce {
		p.records = append(p.records, records...)
	}
	return fmt.Errorf("publish: %w", &bridge.CutOffError{Topic: "events", Offsets: int64(lost)})
}

// errReplaced: the topic of the session is gone.
var errReplaced = errors.New("the topic was recreated")
