package process

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// floodWindow is how long equal messages are folded into one.
	floodWindow = 10 * time.Second
	// floodAfter is the number of messages of a window that are printed at once.
	floodAfter = 5
)

// logRepeated is the key of the number of messages that a folded one stands for.
const logRepeated = "repeated"

// folder is a slog.Handler that folds repeated messages. It prints the first few messages
// with the same text, level and stream. At the end of the window it prints the last one,
// with its own fields and a count. It prints every message of componentHTTP, because
// folding would hide the other callers.
type folder struct {
	next  slog.Handler
	owner string // values of stream and component that With has set
	whole bool   // With has set componentHTTP
	*floods
}

// floods is shared by a folder and all folders that With derives from it.
type floods struct {
	mu   sync.Mutex // guards open
	open map[string]*flood
}

// flood is one message in its window.
type flood struct {
	seen int
	// last prints the newest message that was held back, through the handler of that
	// message; nil if there is none.
	last    func() error
	pending int // number of messages held back
	end     *time.Timer
}

func newFolder(next slog.Handler) *folder {
	return &folder{next: next, floods: &floods{open: make(map[string]*flood)}}
}

// Enabled implements slog.Handler.
func (f *folder) Enabled(ctx context.Context, level slog.Level) bool {
	return f.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (f *folder) Handle(ctx context.Context, r slog.Record) error {
	if f.whole {
		return f.next.Handle(ctx, r)
	}
	key := fmt.Sprint(r.Level, f.ownerOf(r), " ", r.Message)
	f.mu.Lock()
	fl := f.open[key]
	if fl == nil {
		fl = &flood{end: time.AfterFunc(floodWindow, func() { f.over(key) })}
		f.open[key] = fl
	}
	if fl.seen++; fl.seen > floodAfter {
		fl.pending++
		kept := r.Clone()
		fl.last = func() error {
			kept.AddAttrs(slog.Int(logRepeated, fl.pending))
			return f.next.Handle(context.WithoutCancel(ctx), kept)
		}
		f.mu.Unlock()
		return nil
	}
	f.mu.Unlock()
	return f.next.Handle(ctx, r)
}

// over ends a window. If messages were held back, the next window begins folded.
func (f *floods) over(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl := f.open[key]
	switch {
	case fl == nil: // flush has ended the window
	case fl.last == nil:
		delete(f.open, key)
	default:
		_ = fl.last() // a failure of the log cannot be reported
		fl.last, fl.pending = nil, 0
		fl.end.Reset(floodWindow)
	}
}

// flush prints the messages that are held back, and ends all windows.
func (f *floods) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, fl := range f.open {
		fl.end.Stop()
		if fl.last != nil {
			_ = fl.last() // a failure of the log cannot be reported
		}
		delete(f.open, key)
	}
}

// WithAttrs implements slog.Handler.
func (f *folder) WithAttrs(attrs []slog.Attr) slog.Handler {
	whole := f.whole || slices.ContainsFunc(attrs, slog.String(logComponent, componentHTTP).Equal)
	return &folder{next: f.next.WithAttrs(attrs), owner: f.owner + ownerIn(attrs...), whole: whole, floods: f.floods}
}

// WithGroup implements slog.Handler.
func (f *folder) WithGroup(name string) slog.Handler {
	return &folder{next: f.next.WithGroup(name), owner: f.owner, whole: f.whole, floods: f.floods}
}

// ownerOf returns the stream and component of a message. Equal messages of different owners
// are not folded.
func (f *folder) ownerOf(r slog.Record) string {
	owner := f.owner
	r.Attrs(func(a slog.Attr) bool {
		owner += ownerIn(a)
		return true
	})
	return owner
}

func ownerIn(attrs ...slog.Attr) (owner string) {
	for _, a := range attrs {
		if a.Key == logStream || a.Key == logComponent {
			owner += " " + a.Value.String()
		}
	}
	return owner
}
