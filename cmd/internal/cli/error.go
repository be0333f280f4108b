package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/cmd/internal/config"
)

// Error is an error that decides the exit code and may tell people what to
// do about it.
type Error struct {
	Code int
	Err  error
	Hint string // printed after "Try:", "" for none
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// WrongUsage is the error of a command that was called wrongly, with a call
// that works as its hint.
func WrongUsage(hint, format string, args ...any) error {
	return &Error{Code: ExitUsage, Err: fmt.Errorf(format, args...), Hint: hint}
}

// Failed is an error with ExitFailed and a hint.
func Failed(hint, format string, args ...any) error {
	return &Error{Code: ExitFailed, Err: fmt.Errorf(format, args...), Hint: hint}
}

// Explain gives an error of an adapter its exit code and its hint.
func Explain(err error) error {
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok {
		return ReadError(err, "repeat the command; check the brokers with exportbridge check")
	}
	code := ExitFailed
	if fault.Reason == bridge.ReasonAuth {
		code = ExitRefused
	}
	return &Error{Code: code, Err: err, Hint: cmp.Or(fault.Hint, EngineHints[fault.Advice])}
}

// MissingTopic is the hint about a topic that does not exist, and that setting names.
func MissingTopic(setting string) string {
	return "check the name, " + setting + "; if it is right: exportbridge topics create --execute"
}

// UnseenOwnerHint is the hint about an owner that does not report to this Redis.
const UnseenOwnerHint = "set REDIS_URL, with its database, and CURSOR_PREFIX as for that process; if they are the same, check whether it can reach Redis"

// similarTimeout bounds the look for a similar topic.
const similarTimeout = 5 * time.Second

// WithSimilar returns the setting that names a missing topic, with the existing topic
// of the most similar name, if there is one.
func WithSimilar(ctx context.Context, kafka *kafkaclient.Config, setting, topic string) string {
	ctx, cancel := context.WithTimeout(ctx, similarTimeout)
	defer cancel()
	names, err := kafka.TopicNames(ctx)
	if near := config.Nearest(topic, names); err == nil && near != "" {
		setting += " (similar: " + near + ")"
	}
	return setting
}

// ReadError gives an error of reading a topic its exit code and its hint; again
// says how to read what could not be read in time.
func ReadError(err error, again string) error {
	if _, known := errors.AsType[*Error](err); known || errors.Is(err, context.Canceled) {
		return err
	}
	switch _, incomplete := errors.AsType[*kafkaclient.IncompleteError](err); {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return &Error{Code: ExitRefused, Err: err, Hint: "exportbridge topics plan --acls"}
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return &Error{Code: ExitFailed, Err: err, Hint: MissingTopic("KAFKA_TOPIC")}
	case incomplete:
		return &Error{Code: ExitFailed, Err: err, Hint: again}
	}
	return err
}
