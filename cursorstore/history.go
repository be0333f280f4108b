package cursorstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
)

// ErrNoEntry means that the history has no entry like the one asked for.
var ErrNoEntry = errors.New("no such entry in the history")

// Entry is a committed checkpoint in the history. WrittenAt is when it was
// committed.
type Entry struct {
	bridge.Checkpoint
	// Parent is the entry that it was committed after: the one before it in
	// its epoch, or the one that its epoch was reset to. Nil where the stream
	// or its history begins, or the epoch began at a place that is not in the
	// history. It may have been thinned out since; then the one before it
	// takes its place.
	Parent *bridge.Place
}

// Target returns the entry as the target of a reset.
func (e *Entry) Target() bridge.Target {
	place := e.Place
	return bridge.Target{
		Cursor: e.Cursor, Tail: e.Tail, Carried: e.Carried, Start: e.Origin.Start,
		Events: e.Events, Pages: e.Pages, Entry: &place,
	}
}

// Query selects history entries.
type Query struct {
	// Since leaves out what was committed before; zero is all.
	Since time.Time
	// Limit is the number of entries at most; 0 is all.
	Limit int
}

// fetchStep is how many entries are read at once. With long tails an entry
// may have tens of kilobytes.
const fetchStep = 200

// History returns entries of all branches, newest first.
func (s *Store) History(ctx context.Context, q Query) ([]Entry, error) {
	op := "history of " + s.name
	limit := int64(q.Limit)
	if limit == 0 {
		limit = -1
	}
	since := "-inf"
	if !q.Since.IsZero() {
		since = decimal(q.Since.UnixMilli())
	}
	var members []redis.Z
	err := s.c.call(ctx, op, func(ctx context.Context) (err error) {
		members, err = s.c.rdb.ZRevRangeByScoreWithScores(ctx, s.keys.index,
			&redis.ZRangeBy{Min: since, Max: "+inf", Count: limit}).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	nodes, err := nodesOf(members)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, foreign(s.keys.index, err))
	}
	// Places are in the order of commits, even where a clock went back.
	slices.SortFunc(nodes, func(a, b node) int { return b.place.Compare(a.place) })
	entries := make([]Entry, 0, len(nodes))
	for step := range slices.Chunk(nodes, fetchStep) {
		more, err := s.fetch(ctx, op, step)
		if err != nil {
			return nil, err
		}
		entries = append(entries, more...)
	}
	return entries, nil
}

// Entry returns the entry with this name, or ErrNoEntry.
func (s *Store) Entry(ctx context.Context, at bridge.Place) (Entry, error) {
	op := fmt.Sprintf("history entry %s of %s", at, s.name)
	entries, err := s.fetch(ctx, op, []node{{place: at}})
	if err != nil {
		return Entry{}, err
	}
	if len(entries) == 0 {
		return Entry{}, fmt.Errorf("%s: %w", op, ErrNoEntry)
	}
	return entries[0], nil
}

// fetch reads entries. Those that were thinned out meanwhile are left out.
func (s *Store) fetch(ctx context.Context, op string, nodes []node) ([]Entry, error) {
	places := make([]string, len(nodes))
	for i, n := range nodes {
		places[i] = n.place.String()
	}
	var values []any
	err := s.c.call(ctx, op, func(ctx context.Context) (err error) {
		values, err = s.c.rdb.HMGet(ctx, s.keys.history, places...).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(values))
	for i, v := range values {
		text, ok := v.(string)
		if !ok {
			continue
		}
		e, err := decodeEntry(text)
		if err == nil && e.Place != nodes[i].place {
			err = fmt.Errorf("it holds %s", e.Place)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op, foreign(s.keys.history+" "+places[i], err))
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func decodeEntry(text string) (Entry, error) {
	parent, data, _ := strings.Cut(text, " ")
	c, err := bridge.DecodeCheckpoint([]byte(data))
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Checkpoint: c}
	if parent != noParent {
		place, err := parsePlace(parent)
		if err != nil {
			return Entry{}, err
		}
		e.Parent = &place
	}
	return e, nil
}

// node is an entry as the index shows it.
type node struct {
	place bridge.Place
	at    int64 // when it was committed, in milliseconds since the epoch
	mark  string
}

func (n node) member() string { return n.place.String() + n.mark }

func nodesOf(members []redis.Z) ([]node, error) {
	nodes := make([]node, 0, len(members))
	for _, z := range members {
		member, ok := z.Member.(string)
		if !ok {
			return nil, fmt.Errorf("member %v", z.Member)
		}
		n, err := parseNode(member)
		if err != nil {
			return nil, err
		}
		if n.at, err = instantOf(z.Score); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// instantOf reads a score of the index.
func instantOf(score float64) (int64, error) {
	if !(math.Abs(score) <= bridge.MaxNumber) { // or not a number
		return 0, fmt.Errorf("score %v is no time", score)
	}
	return int64(score), nil
}

func parseNode(member string) (node, error) {
	n := node{}
	for _, mark := range []string{markGrowth, markKept} {
		if rest, ok := strings.CutSuffix(member, mark); ok {
			n.mark, member = mark, rest
		}
	}
	var err error
	n.place, err = parsePlace(member)
	return n, err
}

// ParsePlace reads the name of an entry: epoch, a dot, seq.
func ParsePlace(s string) (bridge.Place, error) {
	p, err := parsePlace(s)
	if err != nil {
		return p, fmt.Errorf("%w, for example 3.1042", err)
	}
	return p, nil
}

func parsePlace(s string) (bridge.Place, error) {
	epoch, seq, _ := strings.Cut(s, ".")
	e, err := strconv.ParseInt(epoch, 10, 64)
	n, err2 := strconv.ParseInt(seq, 10, 64)
	if err != nil || err2 != nil || e < 0 || n < 0 || max(e, n) > bridge.MaxNumber {
		return bridge.Place{}, fmt.Errorf("%q is not an epoch and a seq", s)
	}
	return bridge.Place{Epoch: e, Seq: n}, nil
}
