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

// Error is an error with an exit code and a hint.
type Error struct {
	Code int
	Err  error
	Hint string // printed after "Try:", "" for none
	// Unsure says that a change may have been applied, also if the command was interrupted.
	Unsure bool
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// WrongUsage returns the error of a wrong call. The hint is a correct call.
func WrongUsage(hint, format string, args ...any) error {
	return Errorf(ExitUsage, hint, format, args...)
}

// Errorf returns an error with an exit code and a hint.
func Errorf(code int, hint, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...), Hint: hint}
}

// Explain adds the exit code and the hint to an adapter's error.
func Explain(err error) error {
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || errors.Is(err, context.Canceled) {
		return ReadError(err, "repeat the command; check the brokers with exportbridge check")
	}
	code := ExitFailed
	if fault.Reason == bridge.ReasonAuth {
		code = ExitRefused
	}
	return &Error{Code: code, Err: err, Hint: cmp.Or(fault.Hint, EngineHints[fault.HintCode])}
}

// MissingTopic returns the hint about a missing topic whose name is the value of setting.
func MissingTopic(setting string) string {
	return "check the name, " + setting + "; if it is right: exportbridge topics create --execute"
}

// UnseenOwnerHint is the hint about an owner that does not report to the Redis of this process.
const UnseenOwnerHint = "set REDIS_URL, with its database, and CURSOR_PREFIX as for that process; " +
	"if they are the same, check whether it can reach Redis"

// similarTimeout bounds the search for the name of a similar topic.
const similarTimeout = 5 * time.Second

// WithSimilar returns the setting of a missing topic. It adds the most similar name of an
// existing topic, if there is one.
func WithSimilar(ctx context.Context, kafka *kafkaclient.Config, setting, topic string) string {
	ctx, cancel := context.WithTimeout(ctx, similarTimeout)
	defer cancel()
	names, err := kafka.TopicNames(ctx)
	if near := config.Nearest(topic, names); err == nil && near != "" {
		setting += " (similar: " + near + ")"
	}
	return setting
}

// ReadError adds the exit code and the hint to an error of reading a topic. again is the
// hint about an incomplete read.
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
