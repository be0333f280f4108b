package config

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

// validate validates the settings that all streams share.
func (s *Settings) validate(need Uses) (p bridge.Problems) {
	p.Add(s.HTTP.Validate())
	p.Add(s.Registry.Validate())
	p.Check(s.Memory > 0, memoryVariable, "must be above 0, for example %s", formatBytes(defaultProcess.Memory))
	if need&UsesCursor != 0 {
		p.Add(s.Cursor.Validate())
	}
	return p
}

// validate validates the settings of a stream.
func (st *Stream) validate(need Uses) (p bridge.Problems) {
	if need&UsesExport != 0 {
		p.Add(st.Engine.Validate())
		p.Add(st.Export.Validate())
		if need&WithoutKey != 0 {
			unused := exportSecrets()
			p = slices.DeleteFunc(p, func(wrong bridge.Problem) bool { return unused[wrong.Variable] != "" })
		}
		p.Check(!st.Export.Undated() || st.Engine.OnInvalidCursor != "time", "EXPORT_ON_INVALID_CURSOR",
			"is time, but EXPORT_ITEM_TIME says that items have no time to restart from, for example previous")
		o := st.Engine.Origin
		p.Check(o.End == 0 || o.Start < o.End, "EXPORT_END", "must be after EXPORT_START")
		noEnd, noStart := st.Export.Bounded(), st.Export.Starts()
		p.Check(o.End == 0 || noEnd == nil, "EXPORT_END", "is set, but %v", noEnd)
		p.Check(o.Start == 0 || noStart == nil || st.Windows.Windows(), "EXPORT_START",
			"is set, but %v; set EXPORT_START=earliest", noStart)
		if !st.Windows.Windows() && noStart == nil {
			asked := st.Export.Refuse(bridge.Position{Start: o.Start, End: o.End})
			p.Check(asked == nil, "EXPORT_PARAMS", "must suit a stream by its cursor, but %v; set EXPORT_START to a time, "+
				"give each of {start} and {end} a parameter of its own, or set EXPORT_FOLLOW=windows, whose requests have both",
				asked)
		}
		p.Check(st.Engine.OnInvalidCursor != "time" || noStart == nil, "EXPORT_ON_INVALID_CURSOR", "is time, but %v", noStart)
		p.Add(st.Windows.Validate())
		if st.Windows.Windows() {
			p.Add(st.checkWindows())
		}
		p.Add(st.checkAttest())
	}
	if need&UsesKafka != 0 {
		p.Add(st.Kafka.Validate())
		topics := st.Kafka.Topics()
		p.Add(st.Contract.Validate(topics.OfEvents()))
		p.Check(st.Contract.Schema != "" || !st.Kafka.DivertsMismatches(), "BRIDGE_ON_SCHEMA_MISMATCH",
			"is bad-event, but events have no schema; set EVENT_SCHEMA_FILE=events.schema.json, see exportbridge schema infer")
	}
	return p
}

// checkAttest reports the settings of the attestation that are wrong, or do not fit the others.
func (st *Stream) checkAttest() error {
	var p bridge.Problems
	p.Add(st.Attest.Validate())
	_, err := exportapi.ParseRate(st.Attest.RateLimit)
	p.Check(err == nil && st.Attest.RateLimit != "", "BRIDGE_ATTEST_RATE_LIMIT",
		"%q is no rate, for example 1/s", st.Attest.RateLimit)
	if !st.Attest.On() {
		return p.Err()
	}
	unlisted := cmp.Or(st.Export.Bounded(), st.Export.Starts())
	p.Check(unlisted == nil, "BRIDGE_ATTEST", "lists past periods again, but %v; set it to 0", unlisted)
	p.Check(!st.Export.Undated(), "BRIDGE_ATTEST",
		"compares periods, but EXPORT_ITEM_TIME says that items have no time; set it to 0")
	p.Check(st.Engine.Origin.End == 0, "BRIDGE_ATTEST",
		"must be 0 with EXPORT_END, where the stream ends; exportbridge verify compares a range")
	return p.Err()
}

// AttestDelay is how long after the end of a period an event of the period may still come.
func (st *Stream) AttestDelay() time.Duration {
	if st.Windows.Windows() {
		return st.Windows.Reach()
	}
	return st.Engine.Overlap
}

// checkWindows reports the settings that do not fit windows.
func (st *Stream) checkWindows() error {
	var p bridge.Problems
	refused := st.Export.Refuse(st.Windows.Range(1, 2))
	p.Check(refused == nil, "EXPORT_FOLLOW", "is windows, but %v", refused)
	p.Check(st.Engine.Origin.Start != 0, "EXPORT_START", "must be a time with EXPORT_FOLLOW=windows, for example -90d")
	p.Check(st.Engine.Origin.End == 0, "EXPORT_END",
		"must be empty with EXPORT_FOLLOW=windows; exportbridge backfill publishes a range")
	p.Check(!st.Export.Undated(), "EXPORT_FOLLOW",
		"is windows, but EXPORT_ITEM_TIME says that items have no time to sort them by")
	p.Check(!strings.HasSuffix(st.Kafka.Redacted, bridge.IDsChanged), "EVENT_HASH",
		"must not change ids with EXPORT_FOLLOW=windows: records are recognized by ce_id and ce_time")
	p.Check(st.Kafka.Headers == "cloudevents", "BRIDGE_HEADERS",
		"must be cloudevents with EXPORT_FOLLOW=windows: records are recognized by ce_id and ce_time")
	return p.Err()
}
