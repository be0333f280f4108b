package process

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"exportbridge/bridge/engine"
	"exportbridge/cmd/internal/config"
)

// run is the run of a stream.
type run struct {
	started, over bool
	stop          context.CancelFunc // stops the run like a shutdown; nil until it has started
	err           error              // error of a run that has ended
	// after is the stream that this one replaces. The run begins when that stream has
	// ended.
	after *stream
}

// runner owns the set of running streams. Only its loop starts, stops and replaces streams.
// Streams are isolated: the end of one does not affect the others.
type runner struct {
	p       *Process
	ctx     context.Context
	group   sync.WaitGroup
	ended   chan *stream
	running int
	// leaving are removed streams that have not ended.
	leaving []*stream
}

// runStreams runs all streams until ctx ends or their bounded runs are done.
func (p *Process) runStreams(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	hosting, stopJobs := context.WithCancel(ctx)
	var helpers, jobs sync.WaitGroup
	var serving error
	helpers.Go(func() { returnMemory(background, p.budget) })
	helpers.Go(func() { p.tell(background) })
	helpers.Go(func() { p.thin(background) })
	if p.server != nil {
		jobs.Go(func() { p.jobs.Run(hosting) })
		helpers.Go(func() { p.watchJobs(hosting) }) // a shutdown ends its requests first
		helpers.Go(func() {
			if serving = p.server.Serve(background); serving != nil {
				p.log.Error("HTTP server failed", logError, serving)
			}
		})
	}
	laning, stopLanes := context.WithCancel(ctx)
	var lanes sync.WaitGroup
	if p.lanes != nil {
		lanes.Go(func() { p.lanes.Run(laning) })
	}
	loaded := make(chan loaded)
	if p.options.Reload != nil {
		first := watch{contents: p.settings.Contents()}
		helpers.Go(func() { p.options.Reload.run(hosting, first, loaded) })
	}
	r := &runner{p: p, ctx: ctx, ended: make(chan *stream)}
	err := r.run(loaded)
	stopLanes()
	lanes.Wait() // the lanes need the fleet
	if p.fleet != nil {
		leave(p.log, p.fleet.Close)
	}
	stopJobs()
	jobs.Wait()
	stop()
	helpers.Wait()
	return errors.Join(err, serving)
}

// run runs the streams, and follows the settings that are loaded.
func (r *runner) run(settings <-chan loaded) error {
	r.startDue()
	for r.running > 0 {
		select {
		case st := <-r.ended:
			r.end(st)
		case l := <-settings:
			r.p.report(r.reload(l))
		}
		r.startDue()
	}
	r.group.Wait()
	var errs []error
	for _, st := range r.p.streams.list() {
		errs = append(errs, st.run.err)
	}
	return errors.Join(errs...)
}

// startDue starts each stream whose predecessor has ended. A new stream waits for all
// removed streams, which may use the same topic.
func (r *runner) startDue() {
	for _, st := range r.p.streams.list() {
		switch {
		case st.run.started:
		case st.run.after != nil && !st.run.after.run.over:
		case st.run.after == nil && len(r.leaving) > 0:
		default:
			r.start(st)
		}
	}
}

// start runs a stream until the process ends or the stream is stopped.
func (r *runner) start(st *stream) {
	ctx, stop := context.WithCancel(r.ctx)
	st.run.started, st.run.stop, st.run.after = true, stop, nil
	r.p.adopt(st)
	r.running++
	// A stopped stream that waits for unreachable brokers does not hold up the end.
	onTime := engine.Overdue(ctx, st.shutdown+endTimeout/2, func() { st.owner.Abandon() })
	var attesting sync.WaitGroup
	if st.attest != nil {
		attesting.Go(func() { st.attest.Run(ctx) })
	}
	r.group.Go(func() {
		err := st.bridge.Run(ctx)
		if err != nil {
			r.p.log.Error("stream ended", logStream, st.name, logError, err)
		}
		st.leave(r.p.log)
		onTime()
		stop()
		attesting.Wait()
		if st.gone.Load() {
			r.p.release(st)
		}
		st.run.err = err // before the loop receives the stream
		r.ended <- st
	})
}

// release closes a stream that the process no longer has. Only the first call does anything.
func (p *Process) release(st *stream) {
	st.released.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), statusInterval)
		defer cancel()
		_ = p.redis.PutStatuses(ctx, reports(st.bridge.Status())) // removes the status at once, not when it expires
		st.close()
		p.log.Info("stream released", logStream, st.name)
	})
}

// end handles a stream whose run has ended.
func (r *runner) end(st *stream) {
	r.running--
	st.run.over = true
	r.leaving = slices.DeleteFunc(r.leaving, func(each *stream) bool { return each == st })
	if !st.gone.Load() {
		return
	}
	r.p.release(st) // the run may have ended by itself just before a reload
	if r.p.streams.named(st.name) == nil {
		r.p.metrics.RemoveStream(st.name)
	}
}

// reload replaces the streams by those of the settings. After an error, nothing has
// changed. Streams whose own settings are the same continue.
func (r *runner) reload(l loaded) error {
	if l.err != nil {
		return l.err
	}
	changes := r.p.settings.Changes(l.settings)
	if len(changes.Process) > 0 {
		return restartError(changes.Process)
	}
	pristine := unwired(l.settings)
	next, err := r.next(l.settings, &changes)
	if err != nil {
		return err
	}
	if err := r.p.operate(pristine); err != nil {
		closeAll(next)
		return err
	}
	r.replace(next)
	r.p.settings = pristine
	for _, line := range l.settings.Warnings {
		r.p.log.Warn("settings", "warning", line)
	}
	for i := range l.settings.Streams {
		if st := &l.settings.Streams[i]; changed(&changes, st.Name) {
			r.p.metrics.Safe(st.Name)
			r.p.announce(st)
		}
	}
	r.p.log.Info("settings reloaded", "added", strings.Join(changes.Added, ","),
		"removed", strings.Join(changes.Removed, ","), "restarted", changes.Restarted())
	return nil
}

func changed(c *config.Changes, name string) bool {
	return c.Changed[name] != nil || slices.Contains(c.Added, name)
}

// next returns the streams of the settings: those that continue, and new ones, which it
// wires.
func (r *runner) next(s *config.Settings, changes *config.Changes) (all []*stream, err error) {
	var wired []*stream
	for i := range s.Streams {
		name := s.Streams[i].Name
		if !changed(changes, name) {
			all = append(all, r.p.streams.named(name))
			continue
		}
		st, err := r.p.wire(&s.Streams[i])
		if err != nil {
			closeAll(wired)
			return nil, err
		}
		wired, all = append(wired, st), append(all, st)
	}
	return all, nil
}

func closeAll(streams []*stream) {
	for _, st := range streams {
		if !st.run.started {
			st.close()
		}
	}
}

// replace makes next the streams of the process. It stops those that are not in next: they
// commit the open batch, and release the stream.
func (r *runner) replace(next []*stream) {
	before := r.p.streams.list()
	r.p.streams.set(next)
	for _, st := range next {
		r.p.metrics.AddStream(st.name)
	}
	for _, old := range before {
		if slices.Contains(next, old) {
			continue
		}
		successor := r.p.streams.named(old.name)
		r.stop(old, successor)
	}
}

// stop ends a running stream. If there is a successor, it begins after that.
func (r *runner) stop(old, successor *stream) {
	old.gone.Store(true)
	name := old.name
	switch {
	case !old.run.started: // the stream still waited for another one
		old.close()
		old = old.run.after
	case old.run.over:
		r.p.release(old)
		old = nil
	default:
		old.run.stop()
	}
	switch {
	case successor != nil:
		successor.run.after = old
	case old != nil:
		r.leaving = append(r.leaving, old)
	default:
		r.p.metrics.RemoveStream(name)
	}
}
