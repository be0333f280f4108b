package command

import (
	"testing"

	"go.uber.org/goleak"

	"exportbridge/bridge/bridgetest/servers"
)

func TestMain(m *testing.M) {
	servers.Parallel(8)
	goleak.VerifyTestMain(m)
}
