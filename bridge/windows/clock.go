package windows

import (
	"time"

	"exportbridge/bridge"
)

// clock is the API's: its Date header less the duration of the request. Without one it
// is this machine's.
type clock struct {
	ahead time.Duration // of this machine's
	byAPI bool
}

func (c *clock) now() time.Time { return time.Now().Add(c.ahead) }

// saw takes the time of a page.
func (c *clock) saw(p *bridge.Page) {
	if c.byAPI = !p.ServerTime.IsZero(); c.byAPI {
		c.ahead = p.AsOf().Sub(p.ArrivedAt)
	}
}
