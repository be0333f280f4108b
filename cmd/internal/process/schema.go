package process

import (
	"fmt"
	"log/slog"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/contract"
)

// checkerOf has a running stream compare its events with EVENT_SCHEMA, and logs the first
// differences. Without a schema, it returns nil.
func checkerOf(st *config.Stream, log *slog.Logger, all *streams) (*contract.Checker, error) {
	if st.Contract.Schema == "" {
		return nil, nil
	}
	checker, err := useChecker(st, &st.Export, func(d bridge.Difference) {
		log.Warn("events differ from EVENT_SCHEMA", "member", d.Place(), "difference", d.Text, logHint,
			all.advice("exportbridge schema check counts each difference", st.Name))
	})
	if err != nil {
		return nil, err
	}
	if without := checker.Status().Unchecked; len(without) > 0 {
		log.Info("EVENT_SCHEMA has no schema of these topics: their events are not compared", "topics",
			strings.Join(without, ", "))
	}
	return checker, nil
}

// CheckSchema has what publishes beside the running stream compare events with EVENT_SCHEMA, if
// those that differ are bad events. The routes are those of export.
func CheckSchema(st *config.Stream, export *exportapi.Config) error {
	export.Check = nil
	if !st.Kafka.DivertsMismatches() {
		return nil
	}
	_, err := useChecker(st, export, nil)
	return err
}

// useChecker has the events of export compared with the schemas of their topics.
func useChecker(
	st *config.Stream, export *exportapi.Config, found func(bridge.Difference),
) (*contract.Checker, error) {
	topics := append([]string{st.Kafka.Topic}, export.Routes.Topics...)
	checker, err := contract.NewChecker(&st.Contract, topics, found)
	if err != nil {
		return nil, fmt.Errorf("stream %s: EVENT_SCHEMA: %w", st.Name, err)
	}
	export.Check = checker.Check
	return checker, nil
}
