package command

import (
	"testing"

	"go.uber.org/goleak"

	"exportbridge/bridge/bridgetest/servers"
)

func TestMain(m *testing.M) {
	servers.Parallel(8)
	// It ends a second after its pool is closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
