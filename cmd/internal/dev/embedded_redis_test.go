package dev

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestEmbeddedRedisKeepsItsData in a directory, all but what expires.
func TestEmbeddedRedisKeepsItsData(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	open := func() (*embeddedRedis, *redis.Client) {
		r, err := startEmbeddedRedis("127.0.0.1:0", dir)
		if err != nil {
			t.Fatal(err)
		}
		return r, redis.NewClient(&redis.Options{Addr: r.Addr})
	}
	r, c := open()
	c.Set(ctx, "s", "a\x00\u00e9", 0)
	c.HSet(ctx, "h", "f", "1", "g", "2")
	c.ZAdd(ctx, "z", redis.Z{Score: 1795266597160, Member: "0.5"})
	c.Set(ctx, "live", "x", 1e12)
	c.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	r, c = open()
	defer r.Close()
	defer c.Close()
	if got := c.Get(ctx, "s").Val(); got != "a\x00\u00e9" {
		t.Errorf("s = %q", got)
	}
	if got := c.HGetAll(ctx, "h").Val(); len(got) != 2 || got["g"] != "2" {
		t.Errorf("h = %v", got)
	}
	if got := c.ZScore(ctx, "z", "0.5").Val(); got != 1795266597160 {
		t.Errorf("z = %v", got)
	}
	if n := c.Exists(ctx, "live").Val(); n != 0 {
		t.Error("a key that expires was kept")
	}
}
