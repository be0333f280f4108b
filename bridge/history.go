package bridge

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrNoEntry means that the history has no entry like the one asked for.
var ErrNoEntry = errors.New("no such entry in the history")

// Entry is a committed checkpoint in the history. WrittenAt is when it was
// committed.
type Entry struct {
	Checkpoint
	// Parent is the entry that it was committed after: the one before it in
	// its epoch, or the one that its epoch was reset to. Nil where the stream
	// or its history begins, or the epoch began at a version that is not in the
	// history. It may have been thinned out since; then the one before it
	// takes its place.
	Parent *Version
}

// Target returns the entry as the target of a reset.
func (e *Entry) Target() Target {
	version := e.Version
	return Target{
		Cursor: e.Cursor, Tail: e.Tail, Carried: e.Carried, Start: e.Origin.Start,
		Events: e.Events, Pages: e.Pages, Entry: &version,
	}
}

// HistoryQuery selects history entries.
type HistoryQuery struct {
	// Since leaves out what was committed before; zero is all.
	Since time.Time
	// Limit is the number of entries at most; 0 is all.
	Limit int
}

// ParseVersion reads what Version.String returns: epoch, a dot, seq.
func ParseVersion(s string) (Version, error) {
	epoch, seq, _ := strings.Cut(s, ".")
	e, err := strconv.ParseInt(epoch, 10, 64)
	n, err2 := strconv.ParseInt(seq, 10, 64)
	if err != nil || err2 != nil || e < 0 || n < 0 || max(e, n) > MaxNumber {
		return Version{}, fmt.Errorf("%q is not EPOCH.SEQ, for example 3.1042", s)
	}
	return Version{Epoch: e, Seq: n}, nil
}
