package cursorstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
)

// fetchStep bounds the entries of one read. An entry with a long tail may have
// tens of kilobytes.
const fetchStep = 200

// history is the part of a Store that reads and thins the committed cursors.
type history struct {
	stream
	mu       sync.Mutex // serializes Thin and guards progress
	progress []progress // by tier
}

// History returns entries of all branches, newest first.
func (h *history) History(ctx context.Context, q bridge.HistoryQuery) ([]bridge.Entry, error) {
	op := "history of " + h.name
	limit := int64(q.Limit)
	if limit == 0 {
		limit = -1
	}
	since, before := "-inf", "+inf"
	if !q.Since.IsZero() {
		since = decimal(q.Since.UnixMilli())
	}
	if !q.Before.IsZero() {
		before = "(" + decimal(q.Before.UnixMilli())
	}
	var members []redis.Z
	err := h.call(ctx, op, func(ctx context.Context) (err error) {
		members, err = h.c.rdb.ZRevRangeByScoreWithScores(ctx, h.keys.index,
			&redis.ZRangeBy{Min: since, Max: before, Count: limit}).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	nodes, err := nodesOf(members)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, foreign(h.keys.index, err))
	}
	// Versions are in the order of commits, even where a clock went back.
	slices.SortFunc(nodes, func(a, b node) int { return b.version.Compare(a.version) })
	entries := make([]bridge.Entry, 0, len(nodes))
	for step := range slices.Chunk(nodes, fetchStep) {
		more, err := h.fetch(ctx, op, step)
		if err != nil {
			return nil, err
		}
		for i := range more {
			if q.Brief {
				more[i].Tail = nil
			}
		}
		entries = append(entries, more...)
	}
	return entries, nil
}

// Entry returns the entry of this version, or bridge.ErrNoEntry.
func (h *history) Entry(ctx context.Context, at bridge.Version) (bridge.Entry, error) {
	op := fmt.Sprintf("history entry %s of %s", at, h.name)
	entries, err := h.fetch(ctx, op, []node{{version: at}})
	if err != nil {
		return bridge.Entry{}, err
	}
	if len(entries) == 0 {
		return bridge.Entry{}, fmt.Errorf("%s: %w", op, bridge.ErrNoEntry)
	}
	return entries[0], nil
}

// fetch reads entries, without those deleted meanwhile.
func (h *history) fetch(ctx context.Context, op string, nodes []node) ([]bridge.Entry, error) {
	versions := make([]string, len(nodes))
	for i, n := range nodes {
		versions[i] = n.version.String()
	}
	var values []any
	err := h.call(ctx, op, func(ctx context.Context) (err error) {
		values, err = h.c.rdb.HMGet(ctx, h.keys.history, versions...).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	entries := make([]bridge.Entry, 0, len(values))
	for i, v := range values {
		text, ok := v.(string)
		if !ok {
			continue
		}
		e, err := decodeEntry(text)
		if err == nil && e.Version != nodes[i].version {
			err = fmt.Errorf("it holds %s", e.Version)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op, foreign(h.keys.history+" "+versions[i], err))
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func decodeEntry(text string) (bridge.Entry, error) {
	parent, data, _ := strings.Cut(text, " ")
	c, err := bridge.DecodeCheckpoint([]byte(data))
	if err != nil {
		return bridge.Entry{}, err
	}
	e := bridge.Entry{Checkpoint: c}
	if parent != noParent {
		version, err := bridge.ParseVersion(parent)
		if err != nil {
			return bridge.Entry{}, err
		}
		e.Parent = &version
	}
	return e, nil
}

// node is an entry of the index.
type node struct {
	version bridge.Version
	at      int64 // commit time in milliseconds since the epoch
	mark    string
}

func (n node) member() string { return n.version.String() + n.mark }

func nodesOf(members []redis.Z) ([]node, error) {
	nodes := make([]node, 0, len(members))
	for _, z := range members {
		member, ok := z.Member.(string)
		if !ok {
			return nil, fmt.Errorf("member %v", z.Member)
		}
		n, err := parseNode(member, z.Score)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// parseNode parses a member of the index and its score, a time.
func parseNode(member string, score float64) (n node, err error) {
	if !(math.Abs(score) <= bridge.MaxNumber) { // or not a number
		return n, fmt.Errorf("score %v is no time", score)
	}
	n.at = int64(score)
	for _, mark := range []string{markGrowth, markKept} {
		if rest, ok := strings.CutSuffix(member, mark); ok {
			n.mark, member = mark, rest
		}
	}
	n.version, err = bridge.ParseVersion(member)
	return n, err
}
