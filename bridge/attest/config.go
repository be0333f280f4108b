// Package attest keeps the standing proof of a stream. It lists each past period of the
// export again, compares the period with the topic, and publishes one record of the result.
// Each record has the hash of the record before, so that a reader notices a lost or changed
// record.
package attest

import (
	"time"

	"exportbridge/bridge"
)

// Config has the settings of the attestation of a stream. Start from DefaultConfig.
type Config struct {
	Period    time.Duration `env:"BRIDGE_ATTEST" stream:"yes" desc:"length of the periods that are listed again, compared with the topic and recorded in the topic <topic>.attest, once no event of the period can follow; 0 for none; a bounded run attests nothing" example:"1h"`
	RateLimit string        `env:"BRIDGE_ATTEST_RATE_LIMIT" stream:"yes" desc:"maximum rate of the requests for BRIDGE_ATTEST; at most half of EXPORT_RATE_LIMIT in any case" example:"10/s"`
	Repair    bool          `env:"BRIDGE_ATTEST_REPAIR" stream:"yes" desc:"publish missing events that BRIDGE_ATTEST finds, as exportbridge verify --repair does"`
}

// DefaultConfig returns the default of every setting.
func DefaultConfig() Config { return Config{RateLimit: "1/s"} }

// On reports whether the stream is attested.
func (c *Config) On() bool { return c.Period != 0 }

// The bounds of Config.Period.
const (
	minPeriod = time.Minute
	maxPeriod = 7 * 24 * time.Hour
)

// Validate reports all problems of the settings, except those of RateLimit.
func (c *Config) Validate() error {
	p := new(bridge.Problems)
	p.Check(!c.On() || c.Period >= minPeriod && c.Period <= maxPeriod && c.Period%time.Second == 0, "BRIDGE_ATTEST",
		"must be 0, or 1m to 168h in whole seconds, for example 1h")
	p.Check(!c.Repair || c.On(), "BRIDGE_ATTEST_REPAIR", "requires BRIDGE_ATTEST, for example 1h")
	return p.Err()
}
