package cursorstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"

	"exportbridge/bridge"
)

// EntryAt returns the newest entry of the current branch committed at or before
// t, or bridge.ErrNoEntry, and the next newer one, nil if there is none.
func (h *history) EntryAt(ctx context.Context, t time.Time) (e bridge.Entry, next *bridge.Entry, err error) {
	op := fmt.Sprintf("history entry of %s at %s", h.name, t.UTC().Format(time.RFC3339))
	branch, _, err := h.branch(ctx)
	if err != nil {
		return e, nil, fmt.Errorf("%s: %w", op, err)
	}
	i := slices.IndexFunc(branch, func(n node) bool { return n.at <= t.UnixMilli() })
	switch {
	case i >= 0:
		return h.neighbors(ctx, branch, i)
	case len(branch) > 0:
		oldest := time.UnixMilli(branch[len(branch)-1].at).UTC()
		return e, nil, fmt.Errorf("%s: %w: the current branch begins at %s", op, bridge.ErrNoEntry,
			oldest.Format(time.RFC3339))
	}
	return e, nil, fmt.Errorf("%s: %w", op, bridge.ErrNoEntry)
}

// neighbors returns the first of the branch's entries from i on that still exists, and
// the next newer one, nil if there is none.
func (h *history) neighbors(ctx context.Context, branch []node, i int) (e bridge.Entry, next *bridge.Entry, err error) {
	if e, err = h.first(ctx, branch[i:]); err != nil {
		return e, nil, err
	}
	newer := slices.Clone(branch[:i])
	slices.Reverse(newer)
	switch found, err := h.first(ctx, newer); {
	case err == nil:
		return e, &found, nil
	case !errors.Is(err, bridge.ErrNoEntry):
		return e, nil, err
	}
	return e, nil, nil
}

// Back returns the newest entry of the current branch at least that many pages before page
// from, or bridge.ErrNoEntry, and the next newer one, nil if there is none. from is the page
// of the checkpoint that the caller has read: the stream may have advanced since.
func (h *history) Back(ctx context.Context, from, pages int64) (e bridge.Entry, next *bridge.Entry, err error) {
	op := fmt.Sprintf("history entry of %s %s back", h.name, pagesText(pages))
	branch, _, err := h.branch(ctx)
	if err != nil {
		return e, nil, fmt.Errorf("%s: %w", op, err)
	}
	// Along a branch the pages never grow towards the past.
	var oldest int64
	i, err := search(len(branch), func(i int) (bool, error) {
		e, err := h.first(ctx, branch[i:])
		oldest = e.Pages
		return e.Pages <= from-pages, err
	})
	switch {
	case err != nil:
		return e, nil, fmt.Errorf("%s: %w", op, err)
	case i == len(branch):
		return e, nil, fmt.Errorf("%s: %w: it goes back %s", op, bridge.ErrNoEntry, pagesText(from-oldest))
	}
	return h.neighbors(ctx, branch, i)
}

func pagesText(n int64) string {
	if n == 1 {
		return "1 page"
	}
	return fmt.Sprintf("%d pages", n)
}

// Find returns the newest entry that matches, on any branch, or bridge.ErrNoEntry. It reads
// all newer entries.
func (h *history) Find(ctx context.Context, match func(*bridge.Checkpoint) bool) (bridge.Entry, error) {
	op := "search the history of " + h.name
	nodes, err := h.index(ctx)
	if err != nil {
		return bridge.Entry{}, err
	}
	slices.Reverse(nodes)
	for step := range slices.Chunk(nodes, fetchStep) {
		entries, err := h.fetch(ctx, op, step)
		if err != nil {
			return bridge.Entry{}, err
		}
		for i := range entries {
			if match(&entries[i].Checkpoint) {
				return entries[i], nil
			}
		}
	}
	return bridge.Entry{}, fmt.Errorf("%s: %w", op, bridge.ErrNoEntry)
}

// Before implements bridge.History: the newest entry on the current branch, below
// the version of c, that matches.
func (h *history) Before(
	ctx context.Context, c bridge.Checkpoint, matches func(*bridge.Checkpoint) bool,
) (bridge.Checkpoint, error) {
	op := fmt.Sprintf("cursor of %s before %s", h.name, c.Version)
	branch, now, err := h.branch(ctx)
	if err != nil {
		return bridge.Checkpoint{}, fmt.Errorf("%s: %w", op, err)
	}
	if now.Epoch != c.Epoch { // as after a fail-over, until the store has caught up
		return bridge.Checkpoint{}, fmt.Errorf("%s: the store is at %s", op, now.Version)
	}
	for step := range slices.Chunk(branch, fetchStep) {
		entries, err := h.fetch(ctx, op, step)
		if err != nil {
			return bridge.Checkpoint{}, err
		}
		for _, e := range entries {
			if e.Version.Compare(c.Version) < 0 && matches(&e.Checkpoint) {
				return e.Checkpoint, nil
			}
		}
	}
	return bridge.Checkpoint{}, fmt.Errorf("%s: %w", op, bridge.ErrNoCheckpoint)
}

// first returns the first of the entries that still exists.
func (h *history) first(ctx context.Context, nodes []node) (bridge.Entry, error) {
	for _, n := range nodes {
		e, err := h.Entry(ctx, n.version)
		if !errors.Is(err, bridge.ErrNoEntry) {
			return e, err
		}
	}
	return bridge.Entry{}, bridge.ErrNoEntry
}

// branch returns the current branch, newest first, and its checkpoint.
func (h *history) branch(ctx context.Context) ([]node, bridge.Checkpoint, error) {
	now, err := h.Load(ctx)
	if err != nil {
		return nil, now, err
	}
	nodes, err := h.index(ctx)
	if err != nil {
		return nil, now, err
	}
	var branch []node
	for at := now.Version; ; {
		part := epochUpTo(nodes, at)
		if len(part) == 0 {
			return branch, now, nil
		}
		for _, n := range slices.Backward(part) {
			branch = append(branch, n)
		}
		root, err := h.Entry(ctx, part[0].version)
		if err != nil {
			return nil, now, err
		}
		if root.Parent == nil || root.Parent.Epoch >= at.Epoch {
			return branch, now, nil
		}
		at = *root.Parent
	}
}

// index reads the whole index, ordered by version.
func (h *history) index(ctx context.Context) ([]node, error) {
	op := "history index of " + h.name
	var nodes []node
	for cursor := uint64(0); ; {
		var page []string // members and scores in turn
		err := h.call(ctx, op, func(ctx context.Context) (err error) {
			page, cursor, err = h.c.rdb.ZScan(ctx, h.keys.index, cursor, "", scanStep).Result()
			return err
		})
		if err != nil {
			return nil, err
		}
		for pair := range slices.Chunk(page, 2) {
			at, err := strconv.ParseFloat(pair[len(pair)-1], 64)
			n, err2 := parseNode(pair[0], at)
			if err := errors.Join(err, err2); err != nil {
				return nil, fmt.Errorf("%s: %w", op, foreign(h.keys.index, err))
			}
			nodes = append(nodes, n)
		}
		if cursor == 0 {
			break
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return a.version.Compare(b.version) })
	// A scan may bring a member twice.
	return slices.CompactFunc(nodes, func(a, b node) bool { return a.version == b.version }), nil
}

// epochUpTo returns the nodes of a version's epoch up to the version. nodes is ordered.
func epochUpTo(nodes []node, at bridge.Version) []node {
	byPlace := func(n node, p bridge.Version) int { return n.version.Compare(p) }
	first, _ := slices.BinarySearchFunc(nodes, bridge.Version{Epoch: at.Epoch}, byPlace)
	last, found := slices.BinarySearchFunc(nodes, at, byPlace)
	if found {
		last++
	}
	return nodes[first:last]
}

// parent returns the parent of the first entry of a new epoch: the commit that the epoch was
// reset to, which need not be an entry, or noParent. An epoch with another count has no
// parent, even at the same cursor.
func (h *history) parent(ctx context.Context, from, to bridge.Checkpoint) (string, error) {
	switch {
	case from.Zero() || from.Epoch == to.Epoch:
		return noParent, nil
	case to.Continues(&from):
		return from.String(), nil
	}
	if parent := to.MovedTo(); parent != nil {
		return parent.String(), nil
	}
	nodes, err := h.index(ctx)
	if err != nil {
		return "", err
	}
	for len(nodes) > 0 {
		epoch := epochUpTo(nodes, nodes[len(nodes)-1].version)
		nodes = nodes[:len(nodes)-len(epoch)]
		version, err := h.find(ctx, epoch, to)
		if err != nil || version != noParent {
			return version, err
		}
	}
	return noParent, nil
}

// find returns the newest entry of an epoch that c continues.
func (h *history) find(ctx context.Context, epoch []node, c bridge.Checkpoint) (string, error) {
	// Within an epoch the pages never fall; several entries may have the same number.
	end, err := search(len(epoch), func(i int) (bool, error) {
		e, err := h.first(ctx, epoch[i:])
		if errors.Is(err, bridge.ErrNoEntry) {
			return true, nil
		}
		return e.Pages > c.Pages, err
	})
	if err != nil {
		return "", err
	}
	for _, n := range slices.Backward(epoch[:end]) {
		e, err := h.Entry(ctx, n.version)
		switch {
		case errors.Is(err, bridge.ErrNoEntry): // thinned out since the index was read
		case err != nil:
			return "", err
		case e.Pages != c.Pages:
			return noParent, nil
		case e.Version != c.Version && c.Continues(&e.Checkpoint):
			return e.String(), nil
		}
	}
	return noParent, nil
}

// search is sort.Search with a predicate that may fail.
func search(n int, f func(int) (bool, error)) (int, error) {
	var failed error
	i := sort.Search(n, func(i int) bool {
		if failed != nil {
			return true
		}
		ok, err := f(i)
		failed = err
		return ok
	})
	return i, failed
}
