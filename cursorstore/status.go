package cursorstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
)

// StatusTTL is the lifetime of a status. A running bridge writes it more often.
const StatusTTL = 5 * time.Second

// EncodedStatus is a status to publish. It keeps its encoding for the next time.
type EncodedStatus struct {
	bridge.Status
	data []byte
}

// PutStatuses publishes the live status of each stream for StatusTTL, in few requests. A
// standby's status never replaces the owner's. A fenced bridge's status never replaces that of
// another bridge, unless the other one is fenced too. StateStopped deletes the status, unless
// another process has taken over the stream. After an error, it continues with the other streams.
func (c *Client) PutStatuses(ctx context.Context, statuses []*EncodedStatus) error {
	var all []*operation
	var errs []error
	for _, st := range statuses {
		o, err := c.Stream(st.Stream).putting(st)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, o)
	}
	c.together(ctx, all...)
	for _, o := range all {
		errs = append(errs, o.put())
	}
	return errors.Join(errs...)
}

// putting returns the operation that publishes a status, or removes it.
func (s *Store) putting(st *EncodedStatus) (*operation, error) {
	o := &operation{of: &s.stream, what: "put status of " + s.name}
	if st.data == nil {
		data, err := json.Marshal(&st.Status)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.what, err)
		}
		st.data = data
	}
	script, args := putStatus, []any{st.data, "owner", StatusTTL.Milliseconds(), st.Owner}
	switch {
	case st.State == bridge.StateStopped:
		// Without a status, the script only reads, which tells nothing about writes.
		script, args, o.quiet = removeStatus, []any{st.Owner}, true
	case !st.Leader:
		args[1] = "standby"
	case st.Fenced():
		args[1] = "fenced"
	}
	o.send = func(ctx context.Context, to redis.Cmdable, load bool) redis.Cmder {
		if load {
			return script.Eval(ctx, to, []string{s.keys.status}, args...)
		}
		return script.EvalSha(ctx, to, []string{s.keys.status}, args...)
	}
	return o, nil
}

// put returns the error of an operation. If the server has stored the status, put notes that
// writes work.
func (o *operation) put() error {
	if reply, ok := o.sent.(*redis.Cmd); ok && o.err == nil {
		if written, _ := reply.Int(); written > 0 { // 0: the status of another process stays
			o.of.wrote()
		}
	}
	return o.err
}

// putStatus stores a status and returns 1. It returns 0 and stores nothing if the status is a
// standby's and an owner's exists, or if it is a fenced bridge's and that of another, working
// bridge exists: the status names the bridge that can apply requests.
var putStatus = redis.NewScript(`
local data = redis.call('GET', KEYS[1])
local known, status = pcall(cjson.decode, data or '')
if known and type(status) == 'table' and status.leader == true then
  local fenced = status.state == 'blocked' and status.reason == 'owner'
  if ARGV[2] == 'standby' then return 0 end
  if ARGV[2] == 'fenced' and not fenced and status.owner ~= ARGV[4] then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1`)

// removeStatus deletes the status if it is the owner's, and returns the number of deleted
// keys.
var removeStatus = redis.NewScript(`
local data = redis.call('GET', KEYS[1])
if not data then return 0 end
local known, status = pcall(cjson.decode, data)
if known and type(status) == 'table' and status.owner ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`)

// Status returns the live status, and false if none was written within
// StatusTTL: no bridge runs the stream, or it cannot reach Redis.
func (s *Store) Status(ctx context.Context) (bridge.Status, bool, error) {
	op := "status of " + s.name
	var data []byte
	err := s.call(ctx, op, func(ctx context.Context) (err error) {
		data, err = s.c.rdb.Get(ctx, s.keys.status).Bytes()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	if err != nil || data == nil {
		return bridge.Status{}, false, err
	}
	var st bridge.Status
	if err := json.Unmarshal(data, &st); err != nil {
		return bridge.Status{}, false, fmt.Errorf("%s: %w", op, foreign(s.keys.status, err))
	}
	return st, true, nil
}

var clock = redis.NewScript(`return redis.call('TIME')`)

// Now returns the time of the Redis node that holds the stream, which request
// deadlines refer to.
func (i *inbox) Now(ctx context.Context) (time.Time, error) {
	op := "time of redis for " + i.name
	// A script, because a script runs on the stream's own node of a cluster.
	reply, err := i.eval(ctx, op, clock, []string{i.keys.request})
	if err != nil {
		return time.Time{}, err
	}
	if len(reply) != 2 {
		return time.Time{}, fmt.Errorf("%s: %w", op, errReply)
	}
	seconds, err := strconv.ParseInt(reply[0], 10, 64)
	micros, err2 := strconv.ParseInt(reply[1], 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", op, err)
	}
	return time.Unix(seconds, micros*1000), nil
}
