package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// proc is one of several processes on the topic and store of a harness.
type proc struct {
	r      *harness
	owner  *bridgetest.Owner
	bridge *engine.Engine
	stop   context.CancelFunc
	ended  chan error
	over   bool
}

// spawn starts a process of a group. All share the harness's source.
func (r *harness) spawn(group *bridgetest.Group, instance string) *proc {
	r.t.Helper()
	return r.spawnWith(group, instance, r.source)
}

// spawnWith is spawn with another source.
func (r *harness) spawnWith(group *bridgetest.Group, instance string, source bridge.Source) *proc {
	r.t.Helper()
	if r.turn == nil {
		r.turn = make(chan struct{}, 1)
	}
	p := &proc{r: r, owner: group.Open(instance), ended: make(chan error, 1)}
	cfg := r.cfg
	if instance != "" {
		cfg.Owner = instance
	}
	e := must.Get(engine.New(cfg, engine.Ports{
		Source: turns{r.turn, source}, Sink: r.topic.Open("events"), Store: r.store, Owner: p.owner, Observer: r,
	}))(r.t)
	ctx, stop := context.WithCancel(r.t.Context())
	p.bridge, p.stop = e, stop
	r.procs = append(r.procs, p)
	go func() { p.ended <- e.Run(ctx) }()
	return p
}

// end stops the process in order, unless it has ended. The bubble does so too.
func (p *proc) end() {
	p.r.t.Helper()
	if p.stop(); p.over {
		return
	}
	p.over = true
	must.Do(p.r.t, <-p.ended)
	p.owner.Close()
}

// result is what a bounded run has returned.
func (p *proc) result() error {
	p.r.t.Helper()
	defer p.stop()
	p.over = true
	select {
	case err := <-p.ended:
		return err
	default:
		p.r.t.Error("the run has not ended")
		p.stop()
		return <-p.ended
	}
}

func (p *proc) want(state bridge.State, reason bridge.Reason, leader bool) {
	p.r.t.Helper()
	if s := p.bridge.Status(); s.State != state || s.Reason != reason || s.Leader != leader {
		p.r.t.Errorf("process is %s %s, leader %v: %q; want %s %s, leader %v", s.State, s.Reason, s.Leader, s.Error, state,
			reason, leader)
	}
}

// bothModes is inModes with servers that take their time.
func bothModes(t *testing.T, test func(r *harness)) {
	t.Helper()
	t.Parallel()
	inModes(t, bridgetest.Export{Latency: 10 * time.Millisecond}, func(r *harness) {
		r.topic.Latency = 10 * time.Millisecond
		test(r)
	})
}

// A stream goes from one process to the other and back, with pages under way,
// and nothing is missing or comes twice.
func TestHandOver(t *testing.T) {
	bothModes(t, func(r *harness) {
		group := bridgetest.NewGroup(r.t)
		a, b := r.spawn(group, ""), r.spawn(group, "")
		for range 10 {
			r.source.Grow(55)
			r.after(37 * time.Millisecond) // in the midst of it
			if leaders := boolInt(a.bridge.Status().Leader) + boolInt(b.bridge.Status().Leader); leaders > 1 {
				r.t.Errorf("%d leaders", leaders)
			}
			group.Revoke()
		}
		r.after(time.Minute)
		r.wantOnce()
		first, second := a, b
		if b.bridge.Status().Leader {
			first, second = b, a
		}
		first.want(bridge.StateIdle, "", true)
		second.want(bridge.StateStandby, "", false)
		first.end()
		r.grow(20, 5*time.Second)
		r.wantOnce()
		second.want(bridge.StateIdle, "", true)
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A process that is cut off from the coordinator, but not from Kafka's other
// brokers, goes on until another one takes the stream. Then it stands by.
func TestZombie(t *testing.T) {
	bothModes(t, func(r *harness) {
		group := bridgetest.NewGroup(r.t)
		a := r.spawn(group, "")
		r.grow(30, 5*time.Second)
		b := r.spawn(group, "")
		heal := group.Isolate(a.owner)
		r.grow(30, 5*time.Second)
		a.want(bridge.StateIdle, "", true)
		r.source.Grow(1000) // the zombie has work when it is replaced
		r.after(15 * time.Second)
		b.want(bridge.StateIdle, "", true)
		a.want(bridge.StateStandby, "", false)
		heal()
		r.grow(30, time.Minute)
		if r.cfg.Mode == bridge.ExactlyOnce {
			r.wantOnce()
		} else {
			r.wantAll()
		}
	})
}

// The stream is lost between the fencing of the others and the reading of the
// checkpoint: the session is not begun.
func TestLostWhileRecovering(t *testing.T) {
	bothModes(t, func(r *harness) {
		group := bridgetest.NewGroup(r.t)
		group.FailConfirm(1, bridge.ErrNotOwner)
		group.FailConfirm(2, errors.New("coordinator not available"))
		r.source.Grow(30)
		a := r.spawn(group, "")
		r.after(5 * time.Second)
		r.wantEvents(0)
		r.after(time.Minute)
		r.wantOnce()
		a.want(bridge.StateIdle, "", true)
	})
}

// A process that another group has fenced off has the stream back within
// seconds of that group's end, also one that lasted.
func TestIntruderEnds(t *testing.T) {
	t.Parallel()
	for name, lasts := range map[string]time.Duration{"soon": 0, "late": 90 * time.Second, "after an hour": time.Hour} {
		exactRow(t, name, bridgetest.Export{Latency: 10 * time.Millisecond}, func(r *harness) {
			r.topic.Latency = 10 * time.Millisecond
			ours, theirs := bridgetest.NewGroup(r.t), bridgetest.NewGroup(r.t)
			ours.Rivals(theirs)
			a, b := r.spawn(ours, "a"), r.spawn(theirs, "b")
			for began := time.Now(); time.Since(began) < lasts ||
				a.bridge.Status().State != bridge.StateBlocked; r.after(3 * time.Second) {
				r.source.Grow(3)
				if b.bridge.Status().State == bridge.StateBlocked {
					a, b = b, a
				}
			}
			a.want(bridge.StateBlocked, bridge.ReasonOwner, true)
			if s := a.bridge.Status(); !strings.Contains(s.Error, "group") || s.Hint == "" {
				r.t.Errorf("it does not name the other group: %q, try %q", s.Error, s.Hint)
			}
			b.end()
			r.after(10 * time.Second)
			a.want(bridge.StateIdle, "", true)
			r.grow(30, 20*time.Second)
			r.wantOnce()
		})
	}
}

// Where the other process cannot be seen, the wait grows with the fight and not
// beyond it.
func TestUnseenIntruderEnds(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		a := r.spawn(bridgetest.NewGroup(r.t), "")
		r.fences(3, 20*time.Second)
		for a.bridge.Status().State != bridge.StateBlocked {
			r.after(time.Second)
		}
		r.after(25 * time.Second)
		a.want(bridge.StateIdle, "", true)
		r.wantOnce()
	})
}

// Every warning about a fencing says what to do.
func TestFencedHint(t *testing.T) {
	exactBubble(t, bridgetest.Export{PageSize: 100}, func(r *harness) {
		r.cfg.Hints = func(h bridge.Hint) string { return map[bridge.Hint]string{bridge.HintOwner: "part them"}[h] }
		r.spawn(bridgetest.NewGroup(r.t), "")
		r.fences(3, 20*time.Second)
		r.after(time.Second)
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, "level=WARN") && !strings.Contains(line, `hint="part them"`) {
				t.Errorf("no hint: %s", line)
			}
		}
	})
}

// Two groups that run the same stream do not fence each other for ever: both block.
func TestTwoGroups(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]bool{"that see each other": true, "that do not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			twoGroups(t, seen)
		})
	}
}

func twoGroups(t *testing.T, seen bool) {
	t.Helper()
	exactlyInBubble(t, bridgetest.Export{Latency: 10 * time.Millisecond}, func(r *harness) {
		r.topic.Latency = 10 * time.Millisecond
		ours, theirs := bridgetest.NewGroup(r.t), bridgetest.NewGroup(r.t)
		if seen {
			ours.Rivals(theirs)
		}
		a, b := r.spawn(ours, "a"), r.spawn(theirs, "b")
		for range 40 {
			r.grow(30, 2*time.Second)
		}
		blocked := 0
		for _, p := range []*proc{a, b} {
			if s := p.bridge.Status(); s.State == bridge.StateBlocked && s.Reason == bridge.ReasonOwner {
				blocked++
			}
		}
		if blocked == 0 {
			t.Errorf("nobody is blocked: %+v and %+v", a.bridge.Status(), b.bridge.Status())
		}
		before := r.topic.Recovers()
		for range 60 {
			r.grow(30, 10*time.Second)
		}
		if n := r.topic.Recovers() - before; n > 20 {
			t.Errorf("%d sessions in ten minutes: a fight", n)
		}
		r.wantOnce()
	})
}

// A process whose instance id another one has taken is blocked all the time, and
// has the stream back within seconds of the other one's end.
func TestOwnerRefuses(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		group := bridgetest.NewGroup(r.t)
		r.source.Grow(10)
		a := r.spawn(group, "pod-0")
		r.after(5 * time.Second)
		b := r.spawn(group, "pod-0") // the same id: takes the stream away
		r.after(5 * time.Second)
		b.want(bridge.StateIdle, "", true)
		r.source.Grow(10)
		for range 600 {
			a.want(bridge.StateBlocked, bridge.ReasonOwner, false)
			r.after(100 * time.Millisecond)
		}
		r.wantLogged("msg=blocked", 1)
		r.wantOnce()
		b.end()
		r.grow(10, 20*time.Second)
		a.want(bridge.StateIdle, "", true)
		r.wantOnce()
	})
}

// A blocked process that may join again, and is not the owner, stands by.
func TestRefusedOwnerStandsBy(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		group := bridgetest.NewGroup(r.t)
		a, b := r.spawn(group, "pod-0"), r.spawn(group, "pod-1")
		r.after(5 * time.Second)
		c := r.spawn(group, "pod-0")
		r.after(5 * time.Second)
		group.Give(b.owner)
		a.want(bridge.StateBlocked, bridge.ReasonOwner, false)
		c.end()
		r.after(20 * time.Second)
		a.want(bridge.StateStandby, "", false)
		b.want(bridge.StateIdle, "", true)
	})
}

// A bounded run does not stand by for ever.
func TestBoundedStandby(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		group := bridgetest.NewGroup(r.t)
		r.spawn(group, "")
		r.after(time.Second)
		r.cfg.Limits.Once = true
		b := r.spawn(group, "")
		r.after(2 * time.Minute)
		wantBlocked(t, b.result(), bridge.ReasonOwner)
	})
}

// The standby of a stream with an end waits until it can take the stream over.
func TestWindowStandby(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.Origin.End = time.Now().Add(time.Hour).UnixMilli()
		group := bridgetest.NewGroup(r.t)
		a := r.spawn(group, "")
		r.grow(10, 5*time.Second)
		b := r.spawn(group, "")
		r.after(5 * time.Minute)
		b.want(bridge.StateStandby, "", false)
		a.end()
		r.grow(10, time.Minute)
		b.want(bridge.StateIdle, "", true)
		r.after(time.Hour)
		must.Do(r.t, b.result())
		r.wantOnce()
	})
}

// A bounded run waits for a coordinator that does not answer: that is not
// another process.
func TestBoundedOutage(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		group := bridgetest.NewGroup(r.t)
		heal := group.Break()
		r.source.Grow(10)
		r.cfg.Limits.Once = true
		a := r.spawn(group, "")
		r.after(10 * time.Minute)
		heal()
		r.after(10 * time.Second)
		if err := a.result(); err != nil {
			t.Errorf("run ended with %v", err)
		}
		r.wantOnce()
	})
}

// A process that stands by stops at once.
func TestStopStandby(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		group := bridgetest.NewGroup(r.t)
		a := r.spawn(group, "")
		r.after(time.Second)
		b := r.spawn(group, "")
		r.after(time.Second)
		b.end()
		b.want(bridge.StateStopped, "", false)
		a.want(bridge.StateIdle, "", true)
	})
}

// A process that looks for another bridge, or for a standby, on a server that does
// not answer, stops at once.
func TestStopWhileLooking(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]error{"for a rival": nil, "for a standby": wrongKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := time.Duration(0); at < 15*time.Second; at += 500 * time.Millisecond {
				exactlyInBubble(t, bridgetest.Export{}, func(r *harness) {
					group := bridgetest.NewGroup(r.t)
					group.Mute = true
					source := bridge.Source(r.source)
					if refused != nil {
						source = refusing{r.source, refused}
					}
					a := r.spawnWith(group, "", source)
					r.fences(3, 20*time.Second)
					r.after(time.Second + at)
					began := time.Now()
					a.end()
					if took := time.Since(began); took > 0 {
						r.t.Errorf("stopped %s after the third fencing: took %s", time.Second+at, took)
					}
				})
			}
		})
	}
}

// A process whose own key is wrong lets another one run the stream; alone, it
// keeps it, and its operator can reach it.
func TestStepAside(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		group := bridgetest.NewGroup(r.t)
		a := r.spawnWith(group, "", refusing{r.source, wrongKey})
		r.after(10 * time.Minute)
		a.want(bridge.StateBlocked, bridge.ReasonAuth, true)
		b := r.spawn(group, "")
		r.grow(30, 2*time.Minute)
		a.want(bridge.StateBlocked, bridge.ReasonAuth, false)
		b.want(bridge.StateIdle, "", true)
		r.after(10 * time.Minute)
		r.wantOnce()
		a.want(bridge.StateStandby, "", false)
	})
}

var wrongKey = &bridge.Fault{
	Class: bridge.Permanent, Code: "401", Reason: bridge.ReasonAuth, Err: errors.New("401 Unauthorized"),
}

// refusing is a source whose key is wrong.
type refusing struct {
	bridge.Source
	err error
}

func (s refusing) Fetch(context.Context, bridge.Position) (*bridge.Page, error) { return nil, s.err }

// A process that is fenced twice within a minute, as by late requests of its own, resumes
// soon. A process that is fenced now and then, by commands or early take-overs, resumes
// each time, however long it runs.
func TestFencedNowAndThen(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		a := r.spawn(bridgetest.NewGroup(r.t), "")
		r.fences(2, 5*time.Second)
		r.after(20 * time.Second)
		a.want(bridge.StateIdle, "", true)
		for range 6 {
			r.fences(1, 3*time.Minute)
			r.after(40 * time.Second)
			a.want(bridge.StateIdle, "", true)
		}
		r.wantOnce()
	})
}

// A process that another one keeps fencing leaves the stream alone for longer
// and longer, up to five minutes.
func TestTruce(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		a := r.spawn(bridgetest.NewGroup(r.t), "")
		before, sessions := time.Now(), r.topic.Recovers()
		for time.Since(before) < time.Hour {
			r.after(time.Second)
			if s := a.bridge.Status(); s.State == bridge.StateIdle {
				r.fence()
				sessions++
			}
		}
		if n := r.topic.Recovers() - sessions; n < 12 || n > 20 {
			t.Errorf("%d sessions in an hour of a fight", n)
		}
		r.after(6 * time.Minute)
		r.wantOnce()
		a.want(bridge.StateIdle, "", true)
	})
}

// fences is fence n times, so far apart.
func (r *harness) fences(n int, apart time.Duration) {
	r.t.Helper()
	for range n {
		r.after(apart)
		r.fence()
	}
}

// fence begins a session of the stream, as a process outside the group does, and lets the
// owner notice.
func (r *harness) fence() {
	r.t.Helper()
	must.Get(r.topic.Open("events").Recover(r.t.Context(), nil))(r.t)
	r.source.Grow(30)
}
