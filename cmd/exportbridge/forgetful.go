package main

import (
	"context"

	"exportbridge/bridge"
)

// forgetful is a Store that keeps nothing: Kafka alone has the checkpoint.
type forgetful struct{}

func (forgetful) Load(context.Context) (bridge.Checkpoint, error) {
	return bridge.Checkpoint{}, bridge.ErrNoCheckpoint
}

func (forgetful) Advance(context.Context, bridge.Checkpoint, bridge.Checkpoint) error { return nil }
