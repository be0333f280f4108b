package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
)

// request is how a command has a stream's owner change something.
type request struct {
	who     string // operator() if empty
	reason  string
	timeout time.Duration

	// The rest is only a command's.
	app    *app
	stream string
	json   *bool
}

// errRefused is an order that the owner of the stream has refused.
var errRefused = errors.New("refused")

func newRequest(a *app) request { return request{app: a, timeout: ackTimeout} }

// ackTimeout is how long a running bridge has to acknowledge a request.
const ackTimeout = 30 * time.Second

func (r *request) flags(cmd *cobra.Command) {
	r.app.takeSettings(cmd)
	r.json = takeJSON(cmd)
	f := cmd.Flags()
	takeStream(cmd, &r.stream)
	f.Var(parsed(&r.reason, parseReason, "WHY"), "reason", "`WHY`, for the history")
	f.Var(parsed(&r.timeout, parseTimeout, "DURATION"), "timeout", "wait for the running bridge to acknowledge (default 30s)")
}

// leastTimeout is the least time in which a bridge can be expected to answer.
const leastTimeout = time.Second

func parseTimeout(text string) (time.Duration, error) {
	d, err := config.ParseDuration(text)
	if err == nil && d < leastTimeout {
		err = fmt.Errorf("%s is too short, a bridge may take %s", d, leastTimeout)
	}
	return d, err
}

func parseReason(text string) (string, error) { return text, bridge.CheckReason(text) }

// command is a new one for the stream that stands at now.
func (r *request) command(kind bridge.Kind, now *bridge.Checkpoint) bridge.Command {
	who := r.who
	if who == "" {
		who = operator()
	}
	return bridge.Command{ID: strings.ToLower(rand.Text()[:6]), Kind: kind, BaseEpoch: now.Epoch, Who: who, Reason: r.reason}
}

// apply puts the request and waits until whoever owns the stream has applied
// it. Where nobody does, this process is the owner.
func (r *request) apply(ctx context.Context, p *position, cmd bridge.Command, now *bridge.Checkpoint) (bridge.Answer, error) {
	ask := r.await
	err := p.away
	if err == nil {
		err = r.put(ctx, p, &cmd, now)
	}
	switch _, pending := errors.AsType[*bridge.PendingError](err); {
	case !pending && isAway(err): // the request may be there all the same: its id says that it was applied
		p.away, ask = err, r.applyAlone
	case err != nil:
		return bridge.Answer{}, err
	}
	answer, err := ask(ctx, p, cmd)
	if err != nil {
		return answer, err
	}
	if !answer.Applied {
		hint := "exportbridge cursor show"
		if now.Zero() {
			hint = "Redis had lost its copy of the cursor, which is there again: the same command once more"
		}
		return answer, &exitError{code: exitFailed, err: fmt.Errorf("%w by %s: %s", errRefused, answer.By, answer.Detail), hint: hint}
	}
	return answer, nil
}

// put leaves the request. One in its way that a bridge claimed and did not
// answer by its deadline is settled first: by the bridge that runs the stream,
// or by this process where nobody does.
func (r *request) put(ctx context.Context, p *position, cmd *bridge.Command, now *bridge.Checkpoint) error {
	deadline := time.Now().Add(r.timeout)
	for {
		err := p.store.Request(ctx, *cmd, r.timeout)
		pending, ok := errors.AsType[*bridge.PendingError](err)
		switch {
		case err == nil:
			return nil
		case !ok:
			return hinted(err)
		case !pending.Overdue || ctx.Err() != nil || time.Now().After(deadline):
			return &exitError{code: exitFailed, err: pending, hint: "the same command again when that one is done, " +
				time.UnixMilli(pending.Command.Deadline).UTC().Format(time.RFC3339) + " at the latest: exportbridge cursor show"}
		}
		answer, err := r.settle(ctx, p, pending)
		if err != nil {
			return hinted(fmt.Errorf("%w; what became of it is not known: %w", pending, err))
		}
		if now.Mode == bridge.AtLeastOnce && !answer.Applied && answer.Place.Epoch == cmd.BaseEpoch+1 {
			cmd.BaseEpoch++ // that is how the answer is made to stay true; the stream is where it was
		}
	}
}

// settle waits a moment for the bridge that runs the stream to answer an
// overdue request. Where no process runs it, this one fences whoever had
// claimed the request, and answers it: applied, or expired.
func (r *request) settle(ctx context.Context, p *position, pending *bridge.PendingError) (bridge.Answer, error) {
	if answer, err := r.look(ctx, p, pending.Command.ID); err == nil {
		return answer, nil
	}
	if _, alive, err := p.store.Status(ctx); err != nil || alive {
		return bridge.Answer{}, nil //nolint:nilerr // Redis is asked again
	}
	switch free, err := p.unowned(ctx); {
	case err != nil:
		return bridge.Answer{}, err
	case !free:
		return bridge.Answer{}, nil
	}
	answer, err := r.applyOffline(ctx, p, pending.Command, p.store)
	if errors.Is(err, bridge.ErrFenced) {
		return bridge.Answer{}, nil // a bridge has started meanwhile: it will answer
	}
	return answer, err
}

// aliveInterval is how often a waiting command looks whether a bridge runs.
const aliveInterval = 500 * time.Millisecond

func (r *request) await(ctx context.Context, p *position, cmd bridge.Command) (bridge.Answer, error) {
	deadline := time.Now().Add(r.timeout)
	for {
		answer, err := r.look(ctx, p, cmd.ID)
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return r.giveUp(p, cmd, ctx.Err() != nil)
		}
		_, alive, err := p.store.Status(ctx)
		if err != nil || alive {
			continue
		}
		switch free, err := p.unowned(ctx); {
		case err != nil:
			return r.giveUpWith(p, cmd, err)
		case !free:
			continue
		}
		answer, err = r.applyOffline(ctx, p, cmd, p.store)
		if errors.Is(err, bridge.ErrFenced) {
			continue // a bridge has started meanwhile: it will answer
		}
		if err != nil {
			return r.giveUpWith(p, cmd, err)
		}
		return answer, nil
	}
}

// unowned reports whether no process has the stream. Redis shows none; Kafka's
// coordinator knows for certain.
func (p *position) unowned(ctx context.Context) (bool, error) {
	if config.IsEmbedded(&p.stream.Kafka) {
		return false, &exitError{
			code: exitUsage, err: errors.New("no bridge answers, and KAFKA_BROKERS=embedded is a Kafka inside another process"),
			hint: "the address that it printed, for example --kafka-brokers " + usualKafka,
		}
	}
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	members, err := p.stream.Kafka.Ownership().Members(ctx)
	if err != nil {
		return false, fmt.Errorf("no bridge answers, and whether one runs the stream is not known: %w", err)
	}
	return len(members) == 0, nil
}

// membersTimeout bounds the question who runs the stream.
const membersTimeout = 10 * time.Second

// look waits for the answer for a moment. Redis may refuse at once; then it
// waits all the same, so as not to ask in a hot loop.
func (r *request) look(ctx context.Context, p *position, id string) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, aliveInterval)
	defer cancel()
	answer, err := p.store.Wait(ctx, id)
	if err != nil {
		<-ctx.Done()
	}
	return answer, err
}

// applyOffline moves the stream itself, by the same steps as a running bridge:
// a session of its own, which fences whoever believes to own the stream,
// claim, commit, answer.
func (r *request) applyOffline(ctx context.Context, p *position, cmd bridge.Command, inbox bridge.Inbox) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	cfg := p.stream.Engine
	cfg.Owner = p.owner
	answer, err := bridge.Apply(ctx, cfg, bridge.Ports{Sink: p.sink, Store: p.store, Inbox: inbox}, cmd)
	if err == nil && answer.By == p.owner {
		answer.By = "this command (no bridge runs the stream)"
	}
	return answer, err
}

// giveUpWith takes the request back because of an error, and says which of the
// two happened.
func (r *request) giveUpWith(p *position, cmd bridge.Command, cause error) (bridge.Answer, error) {
	answer, err := r.giveUp(p, cmd, false)
	if err == nil {
		return answer, nil // it was applied all the same
	}
	return answer, hinted(cause)
}

// giveUp takes the request back, and says which of the two happened.
func (r *request) giveUp(p *position, cmd bridge.Command, interrupted bool) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	outcome, err := p.store.Withdraw(ctx, cmd.ID)
	if err != nil {
		return bridge.Answer{}, &exitError{code: exitFailed, err: fmt.Errorf("request %s is not acknowledged, and Redis does not answer: %w", cmd.ID, err), hint: "exportbridge cursor show"}
	}
	switch outcome.State {
	case bridge.RequestAnswered:
		return outcome.Answer, nil
	case bridge.RequestClaimed:
		return bridge.Answer{}, &exitError{
			code: exitFailed, err: fmt.Errorf("request %s is being applied by %s, which has not acknowledged it within %s", cmd.ID, outcome.Owner, r.timeout),
			hint: "exportbridge cursor show, to see whether it was applied",
		}
	}
	if interrupted {
		return bridge.Answer{}, &exitError{code: exitInterrupted, err: fmt.Errorf("interrupted: request %s is withdrawn, nothing was changed", cmd.ID)}
	}
	detail := ""
	if live, alive, err := p.store.Status(ctx); err == nil && alive {
		detail = fmt.Sprintf("; %s is %s", live.Owner, describeStatus(&live, time.Now()))
	}
	return bridge.Answer{}, &exitError{
		code: exitFailed, err: fmt.Errorf("no acknowledgement within %s: request %s is withdrawn, nothing was changed%s", r.timeout, cmd.ID, detail),
		hint: "exportbridge check, or a longer --timeout",
	}
}

// operator names who asks, for the history.
func operator() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
