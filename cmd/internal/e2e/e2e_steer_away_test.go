//go:build unix

package e2e_test

import (
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2ESteerWithoutRedis: the stream can be looked at and moved while Redis is
// away, by the command itself. A bridge that runs cannot be asked then, and is
// left alone.
func TestE2ESteerWithoutRedis(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := newStage(t, startServers(t, owned{redis: true}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["REDIS_TIMEOUT"] = "50", "300ms"
	s.simulate()
	s.run("--max-events", "500").wantExit(0, stepTimeout)
	s.finish()
	before := s.checkpoint()

	up := s.servers.redisDown()
	const away = "Redis does not answer"
	p, _ := s.command(0, "cursor", "show")
	s.wantSaid(p, "entry "+before.Version.String(), "from the checkpoint topic")
	p, _ = s.command(0, "cursor", "list")
	s.wantSaid(p, before.Version.String(), "from the checkpoint topic")
	p, _ = s.command(0, "cursor", "history")
	s.wantSaid(p, before.Version.String(), away)
	for _, to := range [][]string{
		{"rewind", "--shift-by", "-5"}, {"rewind", "--by-duration", "1ms"}, {"rewind", "--to-entry", before.Version.String()},
		{"reset", "--to-earliest"}, {"reset", "--to-latest"}, {"reset", "--to-datetime", "-1h"},
		{"reset", "--to-cursor", "x"},
	} {
		p, _ = s.command(0, append([]string{"cursor"}, to...)...)
		s.wantSaid(p, "from   entry "+before.Version.String(), away, "dry run")
	}

	run := s.run()
	s.awaitState("idle")
	p, _ = s.command(1, "cursor", "rewind", "--shift-by", "-5", "--execute")
	s.wantSaid(p, away, "runs stream events", "stop that process")
	if s.published() > 0 {
		t.Errorf("a bridge was moved without a request: it has published %d events", s.published())
	}
	run.stop()

	p, _ = s.command(0, "cursor", "rewind", "--shift-by", "-5", "--reason", "by Kafka alone", "--execute")
	s.wantSaid(p, "acknowledged by this command (no bridge runs the stream)", "now at entry 1.0")
	p, _ = s.command(0, "pause", "--duration", "1h")
	s.wantSaid(p, "paused until", "now at entry 2.0")
	p, _ = s.command(0, "resume")
	s.wantSaid(p, "now at entry 3.0")
	up()
	s.finish() // Redis is behind, and follows
	now := s.checkpoint()
	back := s.historyOf(bridge.Version{Epoch: 3})
	if now.Epoch != 3 || back.Events >= before.Events || now.Events != before.Events {
		t.Errorf("the stream is at %s with %d events, after a rewind from %d to %d", now.Version, now.Events,
			before.Events, back.Events)
	}
	s.read().wantAll(n, int(before.Events-back.Events))

	// In at-least-once mode Redis holds the position.
	s.deliver(bridge.AtLeastOnce)
	s.finish()
	up = s.servers.redisDown()
	p, _ = s.command(1, "cursor", "reset", "--to-earliest", "--execute")
	s.wantSaid(p, away, "in at-least-once mode it has the position")
	up()
}
