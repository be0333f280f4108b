package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// saveInterval is how much of the embedded Redis a crash may forget.
const saveInterval = time.Second

// redisSaver keeps the embedded Redis in a file, for the types that
// exportbridge uses. Keys that expire are left out: they say what is live.
type redisSaver struct {
	server *miniredis.Miniredis
	file   string
	last   string // what the file holds
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// savedRedis is the form of the file.
type savedRedis struct {
	Strings map[string]string             `json:"strings"`
	Hashes  map[string]map[string]string  `json:"hashes"`
	Sorted  map[string]map[string]float64 `json:"sorted"`
}

func (s *redisSaver) load() error {
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var saved savedRedis
	if err := json.Unmarshal(data, &saved); err != nil {
		return fmt.Errorf("read %s: %w", s.file, err)
	}
	for key, value := range saved.Strings {
		if err := s.server.Set(key, value); err != nil {
			return err
		}
	}
	for key, fields := range saved.Hashes {
		for field, value := range fields {
			s.server.HSet(key, field, value)
		}
	}
	for key, members := range saved.Sorted {
		for member, score := range members {
			if _, err := s.server.ZAdd(key, score, member); err != nil {
				return err
			}
		}
	}
	s.last = string(data)
	return nil
}

func (s *redisSaver) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() {
		tick := time.NewTicker(saveInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = s.save() // said by stop, if it lasts
			}
		}
	})
}

// stop saves for the last time.
func (s *redisSaver) stop() error {
	s.cancel()
	s.done.Wait()
	if err := s.save(); err != nil {
		return fmt.Errorf("save embedded Redis: %w", err)
	}
	return nil
}

// save writes the file anew, beside the old one first, so that a crash leaves
// one of the two.
func (s *redisSaver) save() error {
	data, err := json.Marshal(s.snapshot())
	if err != nil || string(data) == s.last {
		return err
	}
	// The keys are read one by one. Two equal readings in a row were not
	// disturbed by a commit; otherwise the next tick tries again.
	again, err := json.Marshal(s.snapshot())
	if err != nil || string(data) != string(again) {
		return err
	}
	beside := s.file + ".new"
	if err := os.WriteFile(beside, data, 0o600); err != nil {
		return err
	}
	if err := os.Rename(beside, s.file); err != nil {
		return err
	}
	s.last = string(data)
	return nil
}

// snapshot reads all keys; a commit may fall in between.
func (s *redisSaver) snapshot() savedRedis {
	saved := savedRedis{Strings: map[string]string{}, Hashes: map[string]map[string]string{}, Sorted: map[string]map[string]float64{}}
	for _, key := range s.server.Keys() {
		if s.server.TTL(key) > 0 {
			continue
		}
		switch s.server.Type(key) {
		case "string":
			saved.Strings[key], _ = s.server.Get(key) // gone meanwhile: an empty one does no harm
		case "hash":
			fields := map[string]string{}
			names, _ := s.server.HKeys(key) // gone meanwhile: no fields
			for _, field := range names {
				fields[field] = s.server.HGet(key, field)
			}
			saved.Hashes[key] = fields
		case "zset":
			saved.Sorted[key], _ = s.server.SortedSet(key) // gone meanwhile: no members
		}
	}
	return saved
}
