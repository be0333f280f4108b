package setup

import (
	"context"
	"fmt"
	"math"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// checkResumption says how a process that starts now would resume, if the checkpoint in Kafka and
// that of Redis, read before, do not simply agree.
func checkResumption(ctx context.Context, st *config.Stream, redis bridge.Checkpoint) []finding {
	kafka, err := st.Kafka.History().Since(ctx, redis.Version)
	if err != nil {
		return []finding{warn("cannot compare the checkpoint in Kafka with that of Redis: "+err.Error(),
			"check again, or raise --timeout")}
	}
	if kafka.Zero() && redis.Zero() {
		return checkLost(ctx, st.Kafka.Needs().Past.Holds, st.Kafka.History().Since)
	}
	at, lost, err := st.Engine.Resumption(kafka, redis)
	switch {
	case err != nil:
		return []finding{failure(err)}
	case lost == nil:
		return nil
	case at.Version == kafka.Version && !kafka.Zero():
		return []finding{warn(fmt.Sprintf("%s; a run resumes from Kafka's checkpoint %s, and later events may be published twice",
			lost, kafka.Version), cli.EngineHints[bridge.HintCheckpointBehind])}
	}
	return []finding{warn(fmt.Sprintf(
		"%s; a run resumes from the checkpoint of Redis, %s, and events that Kafka lost are not published again",
		lost, at.Version), cli.EngineHints[bridge.HintCheckpointBehind])}
}

// checkLost checks that a stream without a checkpoint is new. holds searches the topics for its
// events, since is CheckpointHistory.Since.
func checkLost(
	ctx context.Context, holds func(context.Context) (bool, error),
	since func(context.Context, bridge.Version) (bridge.Checkpoint, error),
) []finding {
	held, err := holds(ctx)
	if kafkaclient.IsMissing(err) {
		return nil // a run may create the topic
	}
	var first bridge.Checkpoint
	if held { // by a stream that began just now, or whose checkpoint an open transaction hides
		first, err = since(ctx, bridge.Version{Epoch: math.MaxInt64})
	}
	switch {
	case err != nil && (held || ctx.Err() != nil || bridge.FaultOf(err).HintCode == bridge.HintCheckpointUnknown):
		return []finding{info("whether the topic holds events of this stream, which has no checkpoint, is unknown",
			"raise --timeout to search longer; a run begins when its search is finished")}
	case err != nil:
		return []finding{failure(err)}
	case held && first.Zero():
		return []finding{failure(engine.CheckpointLost())}
	}
	return nil
}

// noCheckpoint makes any error a bridge.ErrNoCheckpoint.
func noCheckpoint(err error) error {
	if err != nil {
		return bridge.ErrNoCheckpoint
	}
	return nil
}
