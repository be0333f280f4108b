package windows

import (
	"time"

	"exportbridge/bridge"
)

// clock is the earlier one of two clocks: the API's, by its Date header less the duration
// of the request, and this machine's. A clock that is ahead must not end windows that are
// still to come.
type clock struct {
	ahead time.Duration // the API's clock less this machine's
	least time.Duration // the least value of ahead in this search for items, at most 0
	known bool          // a response has come
	byAPI bool          // the last response had a Date
	last  time.Time     // the Date of the last response, zero without one
}

func (c *clock) now() time.Time { return time.Now().Add(min(0, c.ahead)) }

// oldest is now by the page of this search whose clock is the least.
func (c *clock) oldest() time.Time { return time.Now().Add(c.least) }

// response is the time of the last response, by its Date if it has one, in milliseconds since the
// epoch.
func (c *clock) response() int64 {
	if c.byAPI {
		return c.last.UnixMilli()
	}
	return time.Now().UnixMilli()
}

// saw sets the clock by a page.
func (c *clock) saw(p *bridge.Page) {
	c.known, c.last = true, p.ServerTime
	if c.byAPI = !p.ServerTime.IsZero(); c.byAPI {
		c.ahead = p.AsOf().Sub(p.ArrivedAt)
		c.least = min(c.least, c.ahead)
	}
}
