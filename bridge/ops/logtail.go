package ops

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// keptEntries is the number of log entries for a new client.
	keptEntries = 100
	// maxAttr bounds the text of an attribute, in bytes.
	maxAttr = 1000
)

// LogEntry is a log record.
type LogEntry struct {
	// Time, Level, Msg and Attrs are the record's.
	Time  time.Time      `json:"time"`
	Level string         `json:"level"`
	Msg   string         `json:"msg"`
	Attrs map[string]any `json:"attrs"`
}

// LogTail is a slog.Handler that passes records to another handler and keeps the last
// hundred of level info and above. A nil LogTail keeps nothing.
type LogTail struct {
	next  slog.Handler
	kept  *kept
	attrs []slog.Attr // of With
	group string      // the prefix of names, with its dot
}

// kept is shared by all handlers derived from one LogTail.
type kept struct {
	mu        sync.Mutex // guards all below
	entries   []LogEntry // the newest last
	followers map[chan LogEntry]struct{}
}

// NewLogTail returns a handler that passes records to next.
func NewLogTail(next slog.Handler) *LogTail {
	return &LogTail{next: next, kept: &kept{followers: make(map[chan LogEntry]struct{})}}
}

// Enabled implements slog.Handler. It also accepts records that only LogTail keeps.
func (t *LogTail) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || t.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (t *LogTail) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *t
	with.next = t.next.WithAttrs(attrs)
	with.attrs = slices.Clone(t.attrs)
	for _, a := range attrs {
		a.Key = t.group + a.Key
		with.attrs = append(with.attrs, a)
	}
	return &with
}

// WithGroup implements slog.Handler.
func (t *LogTail) WithGroup(name string) slog.Handler {
	if name == "" {
		return t
	}
	with := *t
	with.next = t.next.WithGroup(name)
	with.group += name + "."
	return &with
}

// Handle implements slog.Handler.
func (t *LogTail) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		t.kept.add(t.entry(r))
	}
	if !t.next.Enabled(ctx, r.Level) {
		return nil
	}
	return t.next.Handle(ctx, r)
}

func (t *LogTail) entry(r slog.Record) LogEntry {
	e := LogEntry{Time: r.Time.UTC(), Level: r.Level.String(), Msg: r.Message, Attrs: make(map[string]any)}
	for _, a := range t.attrs {
		e.set("", a)
	}
	r.Attrs(func(a slog.Attr) bool {
		e.set(t.group, a)
		return true
	})
	return e
}

// set adds an attribute. The group's name is the prefix of its attributes.
func (e *LogEntry) set(prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, inner := range v.Group() {
			e.set(prefix, inner)
		}
	case slog.KindBool, slog.KindInt64, slog.KindUint64:
		e.Attrs[prefix+a.Key] = v.Any()
	default:
		e.Attrs[prefix+a.Key] = cut(v.String(), maxAttr)
	}
}

// add keeps an entry and sends it to the followers. It disconnects slow ones.
func (k *kept) add(e LogEntry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.entries) == keptEntries {
		k.entries = slices.Delete(k.entries, 0, 1)
	}
	k.entries = append(k.entries, e)
	for c := range k.followers {
		select {
		case c <- e:
		default:
			delete(k.followers, c)
			close(c)
		}
	}
}

// follow returns the kept entries, and a channel of new ones until leave is called. The
// channel of a slow reader is closed.
func (t *LogTail) follow() (past []LogEntry, next <-chan LogEntry, leave func()) {
	if t == nil {
		return nil, nil, func() {}
	}
	k, c := t.kept, make(chan LogEntry, backlog)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.followers[c] = struct{}{}
	return slices.Clone(k.entries), c, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.followers, c)
	}
}
