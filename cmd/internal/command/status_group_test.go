package command

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkastream"
	"exportbridge/cmd/internal/cli"
)

// TestStatusOfTheGroup: status --group needs neither Redis nor the processes.
func TestStatusOfTheGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	delete(w.env, "REDIS_URL")
	w.env["BRIDGE_STREAMS"] = "events,users"
	show := func(args ...string) string {
		t.Helper()
		got := runProgram(t, w.env, append([]string{"status", "--group"}, args...)...)
		if got.code != cli.ExitOK || got.stderr != "" {
			t.Fatalf("status --group: %+v", got)
		}
		return got.stdout
	}
	wantLines(t, show(), []string{
		`^  group      exportbridge.FLEET, no processes$`, `^  waiting    events: no process lists it$`,
		`^             users: no process lists it$`,
	})
	cfg := kafkastream.DefaultConfig()
	cfg.Brokers, cfg.OwnedBy = strings.Split(w.env["KAFKA_BROKERS"], ","), kafkagroup.OwnedByGroup
	cfg.Process, cfg.Program = "pod-1", "1.2.3"
	cfg.Stream = "events"
	fleet := cfg.Ownership().Fleet()
	t.Cleanup(func() { _ = fleet.Close(context.Background()) })
	for _, name := range []string{"events", "others"} {
		cfg.Stream = name
		seat := must.Get(fleet.Owner(cfg.Ownership()))(t)
		t.Cleanup(func() { _ = seat.Close(context.Background()) })
		grant := must.Get(seat.Acquire(t.Context()))(t)
		t.Cleanup(grant.Release)
	}
	want := regexp.MustCompile(`(?m)^  group      exportbridge.FLEET, generation \d+, assigned \S+ ago
  processes  pod-1 at \S+, version 1.2.3, owns 2 of 2 streams: events, 1 not asked for
  waiting    users: no process lists it
$`)
	kafkatest.Eventually(t, "show the process", func() (bool, error) { return want.MatchString(show()), nil })
	var o kafkagroup.Overview
	if err := json.Unmarshal([]byte(show("--json", "--stream", "events")), &o); err != nil || len(o.Streams) != 1 ||
		o.Streams[0].Owner != "pod-1" || len(o.Processes) != 1 {
		t.Errorf("as JSON: %+v, %v", o, err)
	}
	if got := runProgram(t, w.env, "status", "--group", "--watch"); got.code != cli.ExitUsage {
		t.Errorf("with --watch: %+v", got)
	}
}

// TestWaitingRows: the rows name the processes, and what the streams wait for.
func TestWaitingRows(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]kafkagroup.GroupStream{
		"": {Owner: "a", Standby: []string{"b"}},
		"owned by old at 10.0.0.1 in group g.s; all others wait until it has left": {
			Owner: "a", OwnGroup: "old at 10.0.0.1 in group g.s"},
		"the others wait until a has released it":                {Owner: "a", Releasing: true},
		"not assigned yet; can run in a, b":                      {Standby: []string{"a", "b"}, Declined: []string{"c"}},
		"declined by a, b, which are blocked or ask again later": {Declined: []string{"a", "b"}},
		"no process lists it":                                    {},
		"unknown: group g.s: denied":                             {Owner: "a", Error: "group g.s: denied"},
	} {
		s.Stream = "s"
		got := ""
		for _, row := range waitingRows([]kafkagroup.GroupStream{s}) {
			got += row[1]
		}
		if want != "" {
			want = "s: " + want
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestGenerationText: the text names a group of the other BRIDGE_OWNERSHIP.
func TestGenerationText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	one := []kafkagroup.GroupProcess{{Name: "a"}}
	for want, o := range map[string]kafkagroup.Overview{
		"no processes: the streams have groups of their own (BRIDGE_OWNERSHIP=stream)": {
			Streams: []kafkagroup.GroupStream{{OwnGroup: "old"}}},
		"generation 7, assigned 1m0s ago": {Processes: one, Generation: 7, Planned: now.Add(-time.Minute)},
		"generation unknown: a rebalance is in progress, or the leader has an older version": {Processes: one},
	} {
		if got := generationText(&o, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestStatusOfAGroupWithStrangers: consumers that are no bridges block a stream, which status --group says, with what
// to do.
func TestStatusOfAGroupWithStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["BRIDGE_STREAMS"] = "events,users"
	w.env["BRIDGE_GROUP"] = "exportbridge"
	stranger := must.Get(kgo.NewClient(kgo.SeedBrokers(strings.Split(w.env["KAFKA_BROKERS"], ",")...),
		kgo.ConsumerGroup("exportbridge.events"), kgo.ConsumeTopics("export.events")))(t)
	t.Cleanup(stranger.Close)
	want := regexp.MustCompile(`(?m)^  group      exportbridge.FLEET, no processes
  blocked    events: group exportbridge.events has foreign members: client (.*\n +)*.*
  try        .*BRIDGE_GROUP(.*\n +)*.*
  waiting    users: no process lists it
$`)
	last := ""
	kafkatest.Eventually(t, "show the stranger", func() (bool, error) {
		last = runProgram(t, w.env, "status", "--group").stdout
		return strings.Contains(last, "foreign"), nil
	})
	if !want.MatchString(last) {
		t.Errorf("status --group says\n%s", last)
	}
	var o kafkagroup.Overview
	must.Do(t, json.Unmarshal([]byte(runProgram(t, w.env, "status", "--group", "--json").stdout), &o))
	if s := o.Streams[0]; s.Error != "" || !strings.Contains(s.Blocked, "foreign") || !strings.Contains(s.Hint, "BRIDGE_GROUP") {
		t.Errorf("as JSON: %+v", s)
	}
}

// TestStatusOfAHiddenGroup: the exit code says that a group cannot be described, also with --json.
func TestStatusOfAHiddenGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secureKafka(t, w.env, kfake.ACL{
		Resource: kmsg.ACLResourceTypeGroup, Name: "exportbridge.FLEET", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationAll, Allow: true,
	})
	for _, args := range [][]string{{"status", "--group"}, {"status", "--group", "--json"}} {
		got := runProgram(t, w.env, args...)
		if got.code != cli.ExitFailed || !strings.Contains(got.stdout, "GROUP_AUTHORIZATION_FAILED") ||
			!strings.Contains(got.stderr, "the status of stream events is incomplete: ") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
