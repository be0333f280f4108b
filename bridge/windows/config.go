package windows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

// Config has the settings for following a list. Start from DefaultConfig.
type Config struct {
	Follow    string        `env:"EXPORT_FOLLOW" stream:"yes" values:"cursor,windows" desc:"how the export is followed: by the API's cursor, which lists oldest first and stays valid, or by windows of time, for lists in any order"`
	LookBack  time.Duration `env:"EXPORT_LOOK_BACK" stream:"yes" desc:"how far back each window lists again, for events that the API shows late; only with EXPORT_FOLLOW=windows"`
	Late      string        `env:"EXPORT_LATE" stream:"yes" desc:"a longer look-back and how often it is listed, for events that the API shows much later; empty for none; only with EXPORT_FOLLOW=windows" example:"3h/15m"`
	Settle    time.Duration `env:"EXPORT_SETTLE" stream:"yes" desc:"how old an event is when its window is listed, by the API's clock; only with EXPORT_FOLLOW=windows"`
	MaxWindow time.Duration `env:"EXPORT_MAX_WINDOW" stream:"yes" desc:"longest range of one query, including the look-back: at most what the API lists, if it takes a start and an end; only with EXPORT_FOLLOW=windows"`
	OnChanged string        `env:"EXPORT_ON_CHANGED" stream:"yes" values:"ignore,publish" desc:"action for an item that is listed again with the same id and time, and other bytes; only with EXPORT_FOLLOW=windows"`

	// NoStart and NoEnd are set if the API does not accept this bound. NoEnd is also set
	// without a start.
	NoStart, NoEnd bool
	// PageSize is the number of items that a full page has, of the API and of the Lister.
	PageSize int
	// Numbered is set if pages have numbers or offsets: they move while they are read.
	// Overlaps is set if each page begins with the last item of the page before.
	Numbered, Overlaps bool
	// First is the number of the first page, or the first offset, if Numbered; if it is
	// empty, the first page is not checked.
	First string
	// EndExplicit is set if a page says whether more pages follow: a full page without a
	// next one is then the end of the listing.
	EndExplicit bool
	// MaxBytes bounds the new items of a window in memory, in bytes.
	MaxBytes int64
	// Timeout bounds one request, as engine.Config.FetchTimeout.
	Timeout time.Duration
	// Warn is called with a problem, and with what to do about it. It may be nil.
	Warn func(text, hint string)
	// Observe is called with each request that was sent. It may be nil.
	Observe func(bridge.Observation)
}

// The values of Config.Follow and OnChanged.
const (
	followCursor   = "cursor"
	changedIgnore  = "ignore"
	changedPublish = "publish"
)

// DefaultConfig returns the defaults of all settings.
func DefaultConfig() Config {
	return Config{Follow: followCursor, LookBack: 2 * time.Minute, Settle: time.Minute, MaxWindow: 30 * 24 * time.Hour,
		OnChanged: changedIgnore}
}

// Windows reports whether the stream follows windows.
func (c *Config) Windows() bool { return c.Follow == bridge.FollowWindows }

// Reach returns how far before the watermark items may be listed again. It includes Settle:
// an API that ignores the end of a range lists items earlier than their window, by at most
// Settle.
func (c *Config) Reach() time.Duration {
	late, _, _ := c.late()
	return max(c.LookBack, late) + c.Settle
}

// late reads Late: how far back a listing goes, and how often. The listing goes back two
// intervals further than Late, since an item waits for the next such listing, and polls
// and pages take time. Both results are 0 without Late.
func (c *Config) late() (back, every time.Duration, err error) {
	if c.Late == "" {
		return 0, 0, nil
	}
	within, often, _ := strings.Cut(c.Late, "/")
	if back, err = bridge.ParseDuration(within); err == nil {
		every, err = bridge.ParseDuration(often)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("one of them %w", err)
	case back > maxLookBack || back <= c.LookBack:
		err = errors.New("the range must be longer than EXPORT_LOOK_BACK, and at most 168h")
	case every < time.Minute || every > back:
		err = errors.New("the interval must be from 1m to the range")
	}
	if err != nil {
		return 0, 0, err
	}
	return back + 2*every, every, nil
}

// Newest is the longest range that ends now, but does not begin before start, in
// milliseconds since the epoch. It lacks the bounds that the API does not take.
func (c *Config) Newest(now time.Time, start int64) bridge.Position {
	end := floor(now.UnixMilli()) + unit
	return c.Range(max(start, end-c.MaxWindow.Milliseconds()), end)
}

// ChangedIsNew reports whether an item with a known id and time, and other bytes, is published.
func (c *Config) ChangedIsNew() bool { return c.OnChanged == changedPublish }

// maxLookBack keeps the published items that must be known within memory and retention.
const maxLookBack = 7 * 24 * time.Hour

// Validate reports everything that is wrong with the settings.
func (c *Config) Validate() error {
	var p bridge.Problems
	p.OneOf("EXPORT_FOLLOW", c.Follow, followCursor, bridge.FollowWindows)
	p.Check(c.LookBack >= 0 && c.LookBack <= maxLookBack, "EXPORT_LOOK_BACK", "must be from 0 to 168h, for example 2m")
	p.Check(c.Settle >= 0 && c.Settle <= maxLookBack, "EXPORT_SETTLE", "must be from 0 to 168h, for example 1m")
	_, _, err := c.late()
	p.Check(err == nil, "EXPORT_LATE", "must be a range and an interval, for example 3h/15m: %v", err)
	p.Check(c.MaxWindow >= time.Minute, "EXPORT_MAX_WINDOW", "must be at least 1m, for example 24h")
	p.OneOf("EXPORT_ON_CHANGED", c.OnChanged, changedIgnore, changedPublish)
	return p.Err()
}
