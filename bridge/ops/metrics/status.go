package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"exportbridge/bridge"
)

// statusCollector exposes statuses as gauges at scrape time.
type statusCollector struct {
	build     Build
	perStream bool
	statuses  func() []bridge.Status
	buildInfo, owned, ended, state, blocked, warning, epoch, up, position, lastEvent,
	lastCommit, lastPoll, caughtUp, pages, bytes, storeLag, attested, attestMissing, attestPending *prometheus.Desc
}

func newStatusCollector(build Build, perStream bool, statuses func() []bridge.Status) *statusCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return &statusCollector{
		build: build, perStream: perStream, statuses: statuses,
		buildInfo: desc("build_info",
			"1, labeled with version, revision and Go version.", "version", "revision", "goversion"),
		owned: desc("stream_owned", "1 while this process owns the stream, 0 on a standby.", "stream"),
		ended: desc("stream_ended", "1 once a stream with EXPORT_END has come to its end; absent before.", "stream"),
		state: desc("state",
			"1 for the current state of the stream, 0 for all others; idle is caught up, backoff is retrying.",
			"stream", "state"),
		blocked: desc("stream_blocked", "1 while the stream is blocked, labeled with the reason.", "stream", "reason"),
		warning: desc("stream_warning",
			"1 while something casts doubt on a healthy state, labeled with the code of the warning in status.",
			"stream", "code"),
		epoch: desc("epoch", "Epoch of the committed checkpoint. Increases with every reset.", "stream"),
		up: desc("dependency_up",
			"1 while the server accepts requests, 0 while it is unreachable or rejects them, "+
				"Redis also while it rejects writes only.",
			"stream", "dependency"),
		position:   desc("source_position_timestamp_seconds", "Time up to which the export is in Kafka.", "stream"),
		lastEvent:  desc("last_event_timestamp_seconds", "Time of the newest published event.", "stream"),
		lastCommit: desc("last_commit_timestamp_seconds", "Time of the last commit.", "stream"),
		lastPoll:   desc("last_poll_timestamp_seconds", "Time of the last response of the export API.", "stream"),
		caughtUp:   desc("caught_up", "1 if the last response was the end of the results.", "stream"),
		pages:      desc("prefetched_pages", "Pages fetched but not yet acknowledged by Kafka.", "stream"),
		bytes:      desc("prefetched_bytes", "Bytes fetched but not yet acknowledged by Kafka.", "stream"),
		storeLag:   desc("cursor_store_lag_pages", "Committed pages not yet written to Redis.", "stream", "store"),
		attested:   desc("attested_timestamp_seconds", "End of the last attested period.", "stream"),
		attestMissing: desc("attested_missing_events",
			"Events of the last attested period that were missing in the topic.", "stream"),
		attestPending: desc("attest_pending_periods",
			"Periods that the position has passed and that are not attested.", "stream"),
	}
}

func (c *statusCollector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

func (c *statusCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.buildInfo, 1, c.build.Version, c.build.Revision, c.build.GoVersion)
	var prefetched int64
	for _, s := range c.statuses() {
		for _, state := range bridge.States {
			if c.perStream || s.State == state {
				gauge(c.state, boolean(s.State == state), s.Stream, string(state))
			}
		}
		if s.State == bridge.StateBlocked {
			gauge(c.blocked, 1, s.Stream, string(s.Reason))
		}
		for name, d := range s.Dependencies {
			gauge(c.up, boolean(d.Up), s.Stream, name)
		}
		gauge(c.owned, boolean(s.Leader), s.Stream)
		if s.State == bridge.StateStopped && s.Ended != "" {
			gauge(c.ended, 1, s.Stream)
		}
		gauge(c.epoch, float64(s.Version.Epoch), s.Stream)
		if s.Leader { // a standby does not know the position
			if !s.Position.IsZero() || s.Events == 0 { // else unknown: no event has had a time since the last move
				gauge(c.position, seconds(s.Position), s.Stream)
			}
			gauge(c.lastEvent, seconds(s.LastEvent), s.Stream)
			gauge(c.lastCommit, seconds(s.LastCommit), s.Stream)
			gauge(c.lastPoll, seconds(s.LastPoll), s.Stream)
			if a := s.Attested; a != nil && a.Seq > 0 {
				gauge(c.attested, seconds(a.To), s.Stream)
				gauge(c.attestMissing, float64(a.Missing), s.Stream)
				gauge(c.attestPending, float64(a.Pending), s.Stream)
			}
			for _, w := range s.Warnings {
				gauge(c.warning, 1, s.Stream, w.Code)
			}
		}
		gauge(c.caughtUp, boolean(s.CaughtUp), s.Stream)
		gauge(c.pages, float64(s.PrefetchedPages), s.Stream)
		if prefetched += s.PrefetchedBytes; c.perStream {
			gauge(c.bytes, float64(s.PrefetchedBytes), s.Stream)
		}
		gauge(c.storeLag, float64(s.StoreLagPages), s.Stream, bridge.DependencyStore)
	}
	if !c.perStream {
		gauge(c.bytes, float64(prefetched), "")
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
