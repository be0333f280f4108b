package windows

import (
	"time"

	"exportbridge/bridge"
)

// clock is the API's: its Date header less the duration of the request. Without one, and
// where that is ahead, it is this machine's: a clock that is wrong must not settle what
// is to come.
type clock struct {
	ahead time.Duration // of this machine's
	known bool          // a response has come
	byAPI bool
	last  time.Time // the Date of the last response, zero without one
}

func (c *clock) now() time.Time { return time.Now().Add(min(0, c.ahead)) }

// saw takes the time of a page.
func (c *clock) saw(p *bridge.Page) {
	c.known, c.last = true, p.ServerTime
	if c.byAPI = !p.ServerTime.IsZero(); c.byAPI {
		c.ahead = p.AsOf().Sub(p.ArrivedAt)
	}
}
