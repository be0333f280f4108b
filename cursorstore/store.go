package cursorstore

import (
	"context"
	"crypto/sha1" // the hash that Lua in Redis offers
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
)

//go:embed advance.lua
var advanceSource string

var advance = redis.NewScript(advanceSource)

// Store is one stream's part of Redis. It implements bridge.Store and bridge.Inbox. All
// methods except Next may be called concurrently.
type Store struct {
	stream
	history
	inbox
}

// stream is the common part of a Store: its keys and its checkpoint.
type stream struct {
	c    *Client
	name string
	keys keys
}

// Name returns the stream's name.
func (s *stream) Name() string { return s.name }

// Load returns the stored checkpoint, bridge.ErrNoCheckpoint if there is none,
// or bridge.ErrForeign if the value is foreign or of a newer format.
func (s *stream) Load(ctx context.Context) (bridge.Checkpoint, error) {
	op := "load checkpoint of " + s.name
	var fields map[string]string
	err := s.call(ctx, op, func(ctx context.Context) (err error) {
		fields, err = s.c.rdb.HGetAll(ctx, s.keys.checkpoint).Result()
		return err
	})
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	if len(fields) == 0 {
		return bridge.Checkpoint{}, fmt.Errorf("%s: %w at %s", op, bridge.ErrNoCheckpoint, s.keys.checkpoint)
	}
	c, err := s.decode(fields)
	if err != nil {
		return bridge.Checkpoint{}, fmt.Errorf("%s: %w", op, foreign(s.keys.checkpoint, err))
	}
	return c, nil
}

// decode reads a checkpoint, and checks that the JSON matches the fields that scripts
// compare.
func (s *stream) decode(fields map[string]string) (bridge.Checkpoint, error) {
	data, ok := fields[fieldData]
	if !ok {
		return bridge.Checkpoint{}, errors.New("hash without the fields of a checkpoint")
	}
	if v, err := strconv.Atoi(fields[fieldVersion]); err != nil || v > bridge.ListingFormat {
		return bridge.Checkpoint{}, fmt.Errorf("format version %q is not one up to %d", fields[fieldVersion],
			bridge.ListingFormat)
	}
	c, err := bridge.DecodeCheckpoint([]byte(data))
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	// The same sum as in the script. It detects edits, not attacks.
	sum := sha1.Sum([]byte(data))
	if fields[fieldSum] != hex.EncodeToString(sum[:]) {
		return bridge.Checkpoint{}, errors.New("checksum mismatch: the checkpoint was edited")
	}
	if fields[fieldEpoch] != decimal(c.Epoch) || fields[fieldSeq] != decimal(c.Seq) {
		return bridge.Checkpoint{}, fmt.Errorf("the fields say %s.%s, the JSON %s", fields[fieldEpoch], fields[fieldSeq],
			c.Version)
	}
	if c.Stream != s.name {
		return bridge.Checkpoint{}, fmt.Errorf("the checkpoint of stream %q", c.Stream)
	}
	return c, nil
}

// Advance replaces from by to in one script, by the contract of bridge.Store.
// The history takes one data commit per second, one per ten seconds while only
// the tail grows, and no heartbeats.
func (s *Store) Advance(ctx context.Context, from, to bridge.Checkpoint) error {
	op := fmt.Sprintf("store checkpoint %s of %s", to.Version, s.name)
	data, err := s.encode(to)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	root, err := s.parent(ctx, from, to)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	cursor := sha256.Sum256([]byte(to.Cursor)) // bridge.CursorHash abbreviates it
	reply, err := s.eval(ctx, op, advance, []string{s.keys.checkpoint, s.keys.history, s.keys.index},
		to.Format, decimal(to.Epoch), decimal(to.Seq), to.ChangeID(), hex.EncodeToString(cursor[:]), to.Session,
		decimal(to.WrittenAt), data, from.ChangeID(), historyClass(to.Kind), root, bridge.ListingFormat)
	if err != nil {
		return err
	}
	return s.outcome(op, reply)
}

// outcome converts the script's reply to the contract's error.
func (s *Store) outcome(op string, reply []string) error {
	detail := reply[len(reply)-1]
	switch reply[0] {
	case "applied":
		s.wrote()
		return nil
	case "same": // nothing was written
		return nil
	case "foreign":
		return fmt.Errorf("%s: %w", op, foreign(s.keys.checkpoint, errors.New(detail)))
	case "conflict":
		stored, err := bridge.DecodeCheckpoint([]byte(detail))
		if err != nil {
			return fmt.Errorf("%s: %w", op, foreign(s.keys.checkpoint, err))
		}
		return fmt.Errorf("%s: stored is %s, change %q, by %q at %s: %w", op, stored.Version, stored.ChangeID(), stored.Owner,
			time.UnixMilli(stored.WrittenAt).UTC().Format(time.RFC3339), bridge.ErrConflict)
	}
	return fmt.Errorf("%s: %w: %s", op, errReply, reply[0])
}

// encode rejects a checkpoint that could not be loaded unchanged.
func (s *Store) encode(c bridge.Checkpoint) ([]byte, error) {
	switch {
	case c.Stream != s.name:
		return nil, fmt.Errorf("checkpoint of stream %q in the store of %q", c.Stream, s.name)
	case c.Format != c.Origin.Format():
		return nil, fmt.Errorf("checkpoint of version %d", c.Format)
	case c.Epoch < 0 || c.Seq < 0 || c.WrittenAt < 0 || max(c.Epoch, c.Seq, c.WrittenAt) > bridge.MaxNumber:
		return nil, errors.New("epoch, seq or time is out of range")
	case !utf8.ValidString(c.Cursor):
		return nil, errors.New("cursor is not UTF-8 and would not survive JSON")
	}
	return c.Encode()
}

// historyClass returns how a commit enters the history: operator changes always, data at
// intervals, heartbeats never.
func historyClass(k bridge.Kind) string {
	switch k {
	case bridge.KindData:
		return "data"
	case bridge.KindHeartbeat:
		return "none"
	}
	return "note"
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
