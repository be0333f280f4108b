package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// checkRedis checks that Redis keeps the cursor. Without a section about Kafka, checkRedis
// also checks that the checkpoints belong to the settings.
func checkRedis(ctx context.Context, s *config.Settings, need config.Uses, timeout time.Duration) []finding {
	client, err := cli.OpenRedis(s)
	if err != nil {
		return []finding{failure(err)}
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found := client.Check(limited)
	late := errors.Is(limited.Err(), context.DeadlineExceeded)
	var origins []finding
	if need&config.UsesKafka == 0 {
		origins = eachStream(ctx, s, timeout, func(ctx context.Context, st *config.Stream) []finding {
			at, _ := known(s, st.Name)(ctx) // the findings have the error
			return checkOrigin(at, st)
		})
	}
	var all []finding
	for _, f := range found {
		if !late || f.Level != cursorstore.Fail {
			all = append(all, finding{Level: level(f.Level), Text: f.Text, Hint: f.Hint})
		}
	}
	if late {
		all = append(all, fail("Redis did not answer in time", "check the address in REDIS_URL, or raise --timeout"))
	}
	return append(all, origins...)
}

// checkOwners names the owners of the streams, from their status in Redis or else from
// their groups in Kafka.
func checkOwners(ctx context.Context, s *config.Settings, need config.Uses, timeout time.Duration) []finding {
	client, err := cli.OpenRedis(s)
	if err != nil {
		return []finding{info("unknown")}
	}
	defer client.Close()
	return eachStream(ctx, s, timeout, func(ctx context.Context, st *config.Stream) []finding {
		status, live, err := client.Stream(st.Name).Status(ctx)
		switch {
		case errors.Is(err, bridge.ErrForeign):
			return []finding{failure(err)}
		case err != nil: // the section about Redis has the error
			return []finding{info("unknown: Redis is unreachable")}
		case !live:
			return []finding{unseen(ctx, st, need)}
		}
		return []finding{ownerOf(&status, time.Now())}
	})
}

// unseen looks up in Kafka whether a stream without a status in Redis runs.
func unseen(ctx context.Context, st *config.Stream, need config.Uses) finding {
	unknown := info("stream " + st.Name + " has no status in Redis; whether it runs is unknown")
	if need&config.UsesKafka == 0 {
		return unknown
	}
	members, err := st.Kafka.Ownership().Members(ctx)
	switch {
	case err != nil: // the section about Kafka has the error
		return unknown
	case len(members) == 0:
		return info("stream " + st.Name + " is not running")
	}
	late := &control.UnseenOwnerError{Stream: st.Name, By: members[0]}
	return warn(late.Error(), cli.UnseenOwnerHint)
}

// ownerOf describes the owner of a stream.
func ownerOf(status *bridge.Status, now time.Time) finding {
	text := fmt.Sprintf("%s, epoch %d, %s", status.Owner, status.Version.Epoch, status.State.Text())
	if status.Reason != "" {
		text += fmt.Sprintf(" (%s)", status.Reason)
	}
	if !status.Since.IsZero() {
		text += fmt.Sprintf(" for %s", cli.RoundDuration(max(0, now.Sub(status.Since))))
	}
	if status.Error == "" {
		return info(text)
	}
	f := info(text+": "+status.Error, status.Hint)
	if status.State == bridge.StateBlocked {
		f.Level = levelWarn
	}
	return f
}
