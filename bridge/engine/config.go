package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/budget"
	"exportbridge/bridge/engine/position"
)

// Config configures the engine for one stream. Start from DefaultConfig.
type Config struct {
	// Stream is the name of the stream, for Redis keys, headers and metric labels.
	Stream string
	// Mode is the delivery guarantee.
	Mode bridge.Mode
	// Origin is the query of the export, with Start resolved.
	Origin bridge.Origin
	// Topic is the topic of the events. A stream continues only in the topic of its
	// checkpoint, because two deployments may share a checkpoint topic by mistake. Empty
	// disables the check.
	Topic string
	// Routes is the Routes.Text of the Source. Checkpoints record it.
	Routes string
	// DivertAll diverts unreadable items to the dead letters even if all items are
	// unreadable. By default, such items block the stream.
	DivertAll bool
	// TopicIDs are the ids of topics, by name, when the job of a window begins; empty if
	// unknown.
	TopicIDs map[string]string
	// PageSize is the number of items requested per page. It bounds the tail.
	PageSize int
	// FetchTimeout bounds a call of Source.Fetch or Decode, without its deliberate
	// waits (bridge.Waiting). It is a last resort: set it longer than any timeout of
	// the Source. 0 is ten minutes.
	FetchTimeout time.Duration
	// RelativeStart is set if Origin.Start is relative to the current time, and so differs
	// between runs.
	RelativeStart bool
	// StrayCursor returns why a stored cursor cannot belong to the request of these
	// settings, or nil; a nil StrayCursor is no check.
	StrayCursor func(cursor string) error
	// Refuse returns why no request can ask for a position, or nil; a nil Refuse is no
	// check.
	Refuse func(at bridge.Position) error
	// LeakInCursor names the credential that a cursor contains, or ""; nil for no check.
	LeakInCursor func(cursor string) string
	// MarksEnd is set for a window if the live stream has seen that the API marks the end
	// of its results. Then empty pages do not end the window. See Checkpoint.MarksEnd.
	MarksEnd bool
	// CursorHeeded is set for a window if the API is known to heed the cursor. Otherwise a first page
	// that comes again, at its own cursor, blocks the window once its end has passed.
	CursorHeeded bool
	// EndExplicit is set if a member of each page says whether more pages follow. Then a
	// full page without a next one is the end of the results.
	EndExplicit bool
	// LookBack is how far before its watermark a stream may list an item again, if its
	// Origin.Follow is bridge.FollowWindows. ChangedIsNew makes an item with a known id and
	// time, but other bytes, a new event.
	LookBack     time.Duration
	ChangedIsNew bool
	// KeyPointer is the pointer to the key of an item, for a warning if no item has a key
	// there. It is empty if items need no key.
	KeyPointer string
	// Owner names this process in checkpoints and acknowledgements.
	Owner string
	// Limits bound the run; the zero value is unbounded.
	Limits Limits
	// Budget is the memory that the streams of a process share; nil is no limit.
	Budget *budget.Budget
	// Starts limits the sessions that the streams of a process begin at a time; nil is no
	// limit.
	Starts *Starts
	// Hints are the texts of the engine's hints. A hint without a text is shown as its
	// code.
	Hints bridge.HintTexts
	// Log receives one record per change of state; nil discards them.
	Log *slog.Logger

	PollInterval     time.Duration `env:"EXPORT_POLL_INTERVAL" stream:"yes" desc:"poll interval when caught up"`
	PollIntervalMax  time.Duration `env:"EXPORT_POLL_INTERVAL_MAX" stream:"yes" desc:"maximum poll interval, reached after some minutes without events; each stream has its own, at most a quarter shorter, so that streams do not poll in step"`
	PrefetchPages    int           `env:"EXPORT_PREFETCH_PAGES" stream:"yes" desc:"maximum number of pages fetched ahead of Kafka"`
	PrefetchBytes    int64         `env:"EXPORT_PREFETCH_BYTES" unit:"bytes" stream:"yes" desc:"maximum bytes of pages in memory, including their events; two pages are always allowed"`
	RetryMax         time.Duration `env:"EXPORT_RETRY_MAX_INTERVAL" stream:"yes" desc:"maximum retry back-off, with full jitter; Retry-After takes precedence"`
	EmptyPages       int           `env:"EXPORT_EMPTY_PAGES" stream:"yes" desc:"consecutive empty pages that end a bounded run or range, where the API has never marked the end of its results"`
	OnInvalidCursor  string        `env:"EXPORT_ON_INVALID_CURSOR" stream:"yes" values:"stop,previous,time" desc:"action when the API permanently rejects the cursor: stop, resume at a previous cursor of the history, or restart by time; events already in the topic are not published again"`
	OnSharedID       string        `env:"BRIDGE_ON_SHARED_ID" stream:"yes" values:"publish,bad-event" desc:"action for different items of a page with one id: publish all under that id, or treat all but the first as set by BRIDGE_ON_BAD_EVENT"`
	Overlap          time.Duration `env:"EXPORT_OVERLAP" stream:"yes" desc:"how far before the last event a restart by time begins, to include late events"`
	OnCheckpointLoss string        `env:"BRIDGE_ON_CHECKPOINT_LOSS" values:"kafka,redis,stop" desc:"action in exactly-once mode if Redis is ahead because Kafka lost data: resume from Kafka's checkpoint (duplicates), from Redis's (possible loss), or stop"`
	ShutdownTimeout  time.Duration `env:"BRIDGE_SHUTDOWN_TIMEOUT" desc:"maximum time for a shutdown to commit what is in flight; the process exits at most 3s later"`
}

// DefaultConfig returns the defaults of all settings. Stream, Mode, Origin and
// PageSize have none.
func DefaultConfig() Config {
	return Config{
		PollInterval: time.Second, PollIntervalMax: time.Minute, PrefetchPages: 8, PrefetchBytes: 16 << 20,
		RetryMax: 30 * time.Second, EmptyPages: 5, OnInvalidCursor: invalidStop, OnSharedID: sharedPublish,
		Overlap:          time.Hour,
		OnCheckpointLoss: lossKafka, ShutdownTimeout: 25 * time.Second,
	}
}

// The values of Config.OnSharedID.
const (
	sharedPublish  = "publish"
	sharedBadEvent = "bad-event"
)

// The values of Config.OnCheckpointLoss.
const (
	lossKafka = "kafka"
	lossRedis = "redis"
	lossStop  = "stop"
)

// Limits bound a run.
type Limits struct {
	// Once ends the run when the export is drained.
	Once bool
	// MaxEvents ends the run at the first page boundary at or after this number of events;
	// 0 is no limit.
	MaxEvents int64
	// Until ends the run at the first page boundary at or after an event of this time, in
	// milliseconds since the epoch; 0 is no limit.
	Until int64
}

// Bounded reports whether there is a limit.
func (l Limits) Bounded() bool { return l.Once || l.MaxEvents > 0 || l.Until > 0 }

// usualPage is the API's largest page. It bounds a tail even if the configured page is
// smaller, because the tail may come from a run with larger pages.
const usualPage = 1000

// rules returns the settings that decide how pages are taken.
func (c *Config) rules() position.Rules {
	return position.Rules{
		PageSize: c.PageSize, TailLimit: position.TailFactor * max(c.PageSize, usualPage), End: c.Origin.End,
		EmptyPages: c.EmptyPages,
		MarksEnd:   c.MarksEnd, EndExplicit: c.EndExplicit, DivertAll: c.DivertAll,
		CursorHeeded: c.CursorHeeded,
		DivertShared: c.OnSharedID == sharedBadEvent, Overlap: c.Overlap,
		Listing: c.listing(), LookBack: c.LookBack,
	}
}

// listing reports whether the stream follows windows: its cursor is a
// bridge.Watermark.
func (c *Config) listing() bool { return c.Origin.Follow == bridge.FollowWindows }

// window reports whether the stream is a stateless window, which ends.
func (c *Config) window() bool { return c.Origin.End != 0 }

// bounded reports whether the run ends by itself.
func (c *Config) bounded() bool { return c.Limits.Bounded() || c.window() }

// ends reports whether the run ends at the end of the results. Where the API has never
// marked that end, EmptyPages empty pages in a row end the run.
func (c *Config) ends() bool { return c.window() || c.Limits.Once }

// exactlyOnce reports whether the sink commits the checkpoint. Otherwise the store does.
func (c *Config) exactlyOnce() bool { return c.Mode == bridge.ExactlyOnce }

// Validate reports all problems of the engine's settings: the fields that have a variable.
// New checks the other fields, which the caller fills.
func (c *Config) Validate() error {
	var p bridge.Problems
	p.Check(c.PollInterval > 0, "EXPORT_POLL_INTERVAL", "must be above 0, for example 1s")
	p.Check(c.PollIntervalMax >= c.PollInterval, "EXPORT_POLL_INTERVAL_MAX",
		"must be at least EXPORT_POLL_INTERVAL (%s)", c.PollInterval)
	p.Check(c.PrefetchPages >= 2, "EXPORT_PREFETCH_PAGES", "must be at least 2, for example 8")
	p.Check(c.PrefetchBytes > 0, "EXPORT_PREFETCH_BYTES", "must be above 0, for example 16MiB")
	p.Check(c.RetryMax >= time.Second, "EXPORT_RETRY_MAX_INTERVAL", "must be at least 1s, for example 30s")
	p.Check(c.EmptyPages >= 1, "EXPORT_EMPTY_PAGES", "must be at least 1, for example 5")
	p.OneOf("EXPORT_ON_INVALID_CURSOR", c.OnInvalidCursor, invalidStop, invalidPrevious, invalidTime)
	p.OneOf("BRIDGE_ON_SHARED_ID", c.OnSharedID, sharedPublish, sharedBadEvent)
	p.Check(c.Overlap >= 0, "EXPORT_OVERLAP", "must not be below 0, for example 1h")
	p.OneOf("BRIDGE_ON_CHECKPOINT_LOSS", c.OnCheckpointLoss, lossKafka, lossRedis, lossStop)
	p.Check(c.ShutdownTimeout > 0, "BRIDGE_SHUTDOWN_TIMEOUT", "must be above 0, for example 25s")
	return p.Err()
}

// complete reports the fields that the caller left out or filled wrongly.
func (c *Config) complete() error {
	switch {
	case c.Stream == "":
		return errors.New("the stream has no name")
	case c.Mode != bridge.AtLeastOnce && c.Mode != bridge.ExactlyOnce:
		return fmt.Errorf("unknown delivery mode %q", c.Mode)
	case c.Origin.Resource == "":
		return errors.New("the origin has no resource")
	case c.Origin.End != 0 && c.Origin.Start >= c.Origin.End:
		return errors.New("the origin ends before it starts")
	case c.PageSize < 1:
		return fmt.Errorf("page size %d is below 1", c.PageSize)
	}
	return nil
}

// words returns the program's text for a hint, or its code if there is none.
func (c *Config) words(h bridge.Hint) string { return cmp.Or(c.Hints.Of(h), string(h)) }

// hintOf returns the hint of a fault: that of the adapter, or else that of the program.
func (c *Config) hintOf(f *bridge.Fault) string {
	if f.Hint != "" {
		return f.Hint
	}
	return c.words(f.HintCode)
}
