package cursorstore

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
)

//go:embed inbox.lua
var inboxSource string

var inboxScript = redis.NewScript(inboxSource)

const (
	// nextInterval is the shortest time between two polls of the inboxes, nextEach that
	// time for each waiting stream: a process asks for a thousand inboxes a second at most.
	nextInterval = 250 * time.Millisecond
	nextEach     = time.Millisecond
	waitInterval = 150 * time.Millisecond
	// answerKept is the TTL of an answer, and how long a request outlives its
	// deadline if it is not read.
	answerKept = time.Hour
)

// inbox is the part of a Store that takes requests to the stream's owner.
type inbox struct{ stream }

// Request submits a command to the stream's owner, to be applied within ttl by
// Redis's clock; with a ttl of 0 the command's own Deadline applies. It is
// idempotent. While another request is pending it returns a
// *bridge.PendingError.
func (i *inbox) Request(ctx context.Context, c bridge.Command, ttl time.Duration) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("request of %s: %w: %w", i.name, bridge.ErrInvalidCommand, err)
	}
	op := fmt.Sprintf("request %s %s of %s", c.Kind, c.ID, i.name)
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	const tries = 3
	for range tries {
		reply, err := i.run(ctx, op, "request", c.ID, data, ttl.Milliseconds(), c.Deadline, answerKept.Milliseconds())
		if err != nil {
			return err
		}
		switch reply[0] {
		case "late":
			if err := i.expire(ctx, reply); err != nil {
				return fmt.Errorf("%s: %w", op, err)
			}
		case "taken", "overdue":
			err := i.taken(op, reply)
			if !errors.Is(err, bridge.ErrInvalidCommand) {
				return err
			}
			if o, dropErr := i.drop(ctx, reply[1], err); dropErr != nil || o.State == bridge.CommandClaimed {
				return errors.Join(err, dropErr)
			}
		default:
			return nil
		}
	}
	return fmt.Errorf("%s: superseded by other requests", op)
}

func (i *inbox) taken(op string, reply []string) error {
	if len(reply) < 6 {
		return fmt.Errorf("%s: %w", op, errReply)
	}
	other, err := i.command(reply[1], reply[4], reply[5])
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	at, _ := strconv.ParseInt(reply[2], 10, 64) // 0, long ago, if the value is foreign
	return fmt.Errorf("%s: %w", op, &bridge.PendingError{
		Command: other, Since: time.UnixMilli(at), Owner: reply[3], Overdue: reply[0] == "overdue",
	})
}

// Withdraw cancels an unclaimed request and returns its resulting state:
// CommandWithdrawn guarantees that it will not be applied.
func (i *inbox) Withdraw(ctx context.Context, id string) (bridge.CommandOutcome, error) {
	return i.ask(ctx, "withdraw", id, answerKept.Milliseconds())
}

// Outcome returns the state of a request.
func (i *inbox) Outcome(ctx context.Context, id string) (bridge.CommandOutcome, error) {
	return i.ask(ctx, "look", id)
}

// Wait waits for the answer to a request. It retries while Redis is
// unreachable, until ctx ends. A withdrawn request has no answer.
func (i *inbox) Wait(ctx context.Context, id string) (bridge.Answer, error) {
	var last error
	for {
		o, err := i.Outcome(ctx, id)
		switch {
		case ctx.Err() != nil:
			return bridge.Answer{}, errors.Join(fmt.Errorf("wait for the answer to %s: %w", id, ctx.Err()), last)
		case bridge.FaultOf(err).Class == bridge.Permanent:
			return bridge.Answer{}, err
		case o.State == bridge.CommandAnswered:
			return o.Answer, nil
		case o.State == bridge.CommandWithdrawn:
			return bridge.Answer{}, fmt.Errorf("wait for the answer to %s: it was withdrawn", id)
		}
		last = err
		bridge.Sleep(ctx, waitInterval)
	}
}

// Next waits for a command. It polls four times a second, with one request for all waiting
// streams of the Client. It answers expired and invalid commands itself. It returns errors of
// Redis at once, but never polls more often than every 250 ms.
func (i *inbox) Next(ctx context.Context) (bridge.Command, error) {
	op := "next command for " + i.name
	for {
		if err := i.c.polls.await(ctx, i); err != nil {
			return bridge.Command{}, err
		}
		reply, err := i.eval(ctx, op, inboxScript, []string{i.keys.request}, "next")
		switch {
		case err != nil:
			return bridge.Command{}, err
		case reply[0] == "late":
			if err := i.expire(ctx, reply); err != nil {
				return bridge.Command{}, err
			}
		case reply[0] == "pending" && len(reply) == 4:
			c, err := i.command(reply[1], reply[3], reply[2])
			if err != nil {
				_, dropErr := i.drop(ctx, reply[1], err)
				err = errors.Join(err, dropErr)
			}
			return c, err
		}
	}
}

// Claim implements bridge.Inbox.
func (i *inbox) Claim(ctx context.Context, c bridge.Command, by bridge.Claim) (bridge.Claimed, error) {
	op := fmt.Sprintf("claim request %s of %s", c.ID, i.name)
	reply, err := i.run(ctx, op, "claim", c.ID, by.Owner, by.Session, by.Over)
	switch {
	case err != nil:
		return bridge.Claimed{}, err
	case reply[0] == "late":
		return bridge.Claimed{Late: true}, nil
	case bridge.CommandState(reply[0]) == bridge.CommandClaimed && len(reply) == 3:
		return bridge.Claimed{By: reply[1]}, nil
	}
	return bridge.Claimed{}, nil
}

// Answer implements bridge.Inbox. The answer expires after an hour.
func (i *inbox) Answer(ctx context.Context, c bridge.Command, by bridge.Claim, a bridge.Answer) (bridge.Answer, error) {
	action := "refuse"
	if a.Applied {
		action = "answer"
	}
	o, err := i.settle(ctx, action, c.ID, a, by.Session, by.Over)
	if err == nil && o.State != bridge.CommandAnswered {
		err = fmt.Errorf("answer %s, which is %s: %w", c.ID, o.State, bridge.ErrConflict)
	}
	return o.Answer, err
}

// expire answers an unclaimed request past its deadline. reply is the script's: late, id,
// deadline, JSON.
func (i *inbox) expire(ctx context.Context, reply []string) error {
	if len(reply) < 3 {
		return fmt.Errorf("expire a request of %s: %w", i.name, errReply)
	}
	deadline, _ := strconv.ParseInt(reply[2], 10, 64) // 0, long ago, if the value is foreign
	answer := bridge.ExpiredAnswer("no owner claimed it before its deadline")
	answer.At = deadline
	_, err := i.settle(ctx, "expire", reply[1], answer)
	return err
}

// drop rejects an invalid request, unless a session has claimed it.
func (i *inbox) drop(ctx context.Context, id string, why error) (bridge.CommandOutcome, error) {
	return i.settle(ctx, "drop", id, bridge.Answer{Detail: why.Error(), At: time.Now().UnixMilli()})
}

// settle runs an action of the script that stores the answer to a request.
func (i *inbox) settle(
	ctx context.Context, action, id string, a bridge.Answer, args ...any,
) (bridge.CommandOutcome, error) {
	data, err := json.Marshal(a)
	if err != nil {
		return bridge.CommandOutcome{}, fmt.Errorf("%s request %s of %s: %w", action, id, i.name, err)
	}
	return i.ask(ctx, action, id, append([]any{data, answerKept.Milliseconds()}, args...)...)
}

// ask runs one action of the script on a request.
func (i *inbox) ask(ctx context.Context, action, id string, args ...any) (bridge.CommandOutcome, error) {
	op := fmt.Sprintf("%s request %s of %s", action, id, i.name)
	reply, err := i.run(ctx, op, action, id, args...)
	if err != nil {
		return bridge.CommandOutcome{}, err
	}
	o := bridge.CommandOutcome{State: bridge.CommandState(reply[0])}
	detail := reply[len(reply)-1]
	switch o.State {
	case bridge.CommandClaimed:
		o.Owner = detail
	case bridge.CommandAnswered:
		if err := json.Unmarshal([]byte(detail), &o.Answer); err != nil {
			return bridge.CommandOutcome{}, fmt.Errorf("%s: %w", op, foreign(i.keys.answer(id), err))
		}
	case bridge.CommandPending, bridge.CommandWithdrawn, bridge.CommandUnknown:
	default:
		return bridge.CommandOutcome{}, fmt.Errorf("%s: %w: %s", op, errReply, reply[0])
	}
	return o, nil
}

func (i *inbox) run(ctx context.Context, op, action, id string, args ...any) ([]string, error) {
	return i.eval(ctx, op, inboxScript, []string{i.keys.request, i.keys.answer(id)}, append([]any{action, id}, args...)...)
}

// command decodes a request and checks it. The deadline is stored separately, because Redis
// sets it.
func (i *inbox) command(id, data, deadline string) (bridge.Command, error) {
	var c bridge.Command
	err := json.Unmarshal([]byte(data), &c)
	if err == nil {
		c.Deadline, err = strconv.ParseInt(deadline, 10, 64)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("it is not a request of this version: %.200s", err.Error()) // which may quote a foreign value
	case c.ID != id:
		err = errors.New("its id differs from its key's")
	default:
		err = c.Validate()
	}
	if err != nil {
		return bridge.Command{}, fmt.Errorf("request %.20q of %s: %w: %w", id, i.name, bridge.ErrInvalidCommand, err)
	}
	return c, nil
}
