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

// checkRedis looks whether Redis can be trusted with the cursor, and whether its
// checkpoints belong to the settings, unless the section about Kafka does.
func checkRedis(ctx context.Context, s *config.Settings, need config.Uses) []finding {
	client, err := cursorstore.Open(s.Cursor)
	if err != nil {
		return []finding{failure(err)}
	}
	defer client.Close()
	found := client.Check(ctx)
	var origins []finding
	if need&config.UsesKafka == 0 {
		origins = eachStream(ctx, s, func(ctx context.Context, st *config.Stream) []finding {
			at, _ := known(s, st.Name)(ctx) // what is wrong with Redis is said above
			return checkOrigin(at, st)
		})
	}
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	var all []finding
	for _, f := range found {
		if !late || f.Level != cursorstore.Fail {
			all = append(all, finding{Level: level(f.Level), Text: f.Text, Hint: f.Hint})
		}
	}
	if late {
		all = append(all, finding{Level: levelFail, Text: "Redis did not answer in time", Hint: "check the address in REDIS_URL, or raise --timeout"})
	}
	return append(all, origins...)
}

// checkOwners says who runs the streams now, from what they tell in Redis, or else from
// their groups in Kafka.
func checkOwners(ctx context.Context, s *config.Settings, need config.Uses) []finding {
	client, err := cursorstore.Open(s.Cursor)
	if err != nil {
		return []finding{{Level: levelInfo, Text: "unknown"}}
	}
	defer client.Close()
	return eachStream(ctx, s, func(ctx context.Context, st *config.Stream) []finding {
		status, live, err := client.Stream(st.Name).Status(ctx)
		switch {
		case errors.Is(err, bridge.ErrForeign):
			return []finding{failure(err)}
		case err != nil: // the section about Redis says why
			return []finding{{Level: levelInfo, Text: "unknown: Redis is unreachable"}}
		case !live:
			return []finding{unseen(ctx, st, need)}
		}
		return []finding{ownerOf(&status, time.Now())}
	})
}

// unseen says whether a stream without a status in Redis runs all the same.
func unseen(ctx context.Context, st *config.Stream, need config.Uses) finding {
	unknown := finding{Level: levelInfo, Text: "stream " + st.Name + " has no status in Redis; whether it runs is unknown"}
	if need&config.UsesKafka == 0 {
		return unknown
	}
	members, err := st.Kafka.Ownership().Members(ctx)
	switch {
	case err != nil: // the section about Kafka says why
		return unknown
	case len(members) == 0:
		return finding{Level: levelInfo, Text: "stream " + st.Name + " is not running"}
	}
	late := &control.UnseenOwnerError{Stream: st.Name, By: members[0]}
	return finding{Level: levelWarn, Text: late.Error(), Hint: cli.UnseenOwnerHint}
}

// ownerOf says what the owner of a stream is doing.
func ownerOf(status *bridge.Status, now time.Time) finding {
	text := fmt.Sprintf("%s, epoch %d, %s", status.Owner, status.Version.Epoch, status.State.Text())
	if status.Reason != "" {
		text += fmt.Sprintf(" (%s)", status.Reason)
	}
	if !status.Since.IsZero() {
		text += fmt.Sprintf(" for %s", cli.RoundDuration(now.Sub(status.Since)))
	}
	if status.Error == "" {
		return finding{Level: levelInfo, Text: text}
	}
	f := finding{Level: levelInfo, Text: text + ": " + status.Error, Hint: status.Hint}
	if status.State == bridge.StateBlocked {
		f.Level = levelWarn
	}
	return f
}
