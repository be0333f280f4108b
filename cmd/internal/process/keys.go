package process

import (
	"context"
	"errors"
	"slices"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/seal"
	"exportbridge/cmd/internal/config"
)

// KeyConfig returns the configuration of the keys of a stream's encrypted values.
func KeyConfig(st *config.Stream) keyring.Config {
	master, _ := seal.ParseMaster(st.Export.Private.Master.Reveal()) // validated
	return keyring.Config{
		Kafka: st.Kafka.Config.Config, Topic: kafkasink.KeysTopic(st.Kafka.Topic), Master: master,
		Make:            st.Kafka.Needs().MakeKeys,
		TransactionalID: kafkasink.JobsTopic(st.Kafka.CheckpointTopic) + "." + st.Name + ".keys",
	}
}

// AllKeys returns KeyConfig of a stream with EVENT_ENCRYPT, and the same of the other topics of keys that a stream of
// these settings has had and that exist: each KAFKA_TOPIC has one, also after EVENT_ENCRYPT was turned off, and the newest
// checkpoint names former ones. With an error, some may be absent.
func AllKeys(ctx context.Context, s *config.Settings, st *config.Stream) (all []keyring.Config, err error) {
	names := []string{st.Kafka.Topic}
	if st.Export.Private.Encrypts() {
		all, names = append(all, KeyConfig(st)), nil
	}
	newest, err := bridge.Newest(ctx, st.Kafka.History())
	if err != nil && bridge.FaultOf(err).Class == bridge.Transient { // the brokers are away
		return all, err
	}
	errs := []error{err}
	for i := range newest.Topics {
		if t := &newest.Topics[i]; !t.DeadLetters && t.Name != st.Kafka.Topic {
			names = append(names, t.Name)
		}
	}
	for _, name := range names {
		if slices.ContainsFunc(s.Streams, func(o config.Stream) bool {
			return o.Kafka.Topic == name && o.Export.Private.Encrypts()
		}) {
			continue // the keys of another stream are left to that stream
		}
		cfg := KeyConfig(st)
		cfg.Topic = kafkasink.KeysTopic(name)
		there, err := st.Kafka.Exists(ctx, cfg.Topic)
		if there {
			all = append(all, cfg)
		}
		// A route needs no grant for keys. If its topic was KAFKA_TOPIC before, it has the grant.
		routed := slices.Contains(st.Export.Routes.Topics, name)
		if err != nil && (!routed || bridge.FaultOf(err).Reason != bridge.ReasonAuth) {
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// UseKeys lets the clients of a stream take the keys of encrypted values from a pool.
func UseKeys(st *config.Stream, pool *keyring.Pool) {
	if st.Export.Private.Encrypts() {
		st.Export.Keys = func() seal.Keys { return pool.Use(KeyConfig(st)) }
	}
}

// KeysOf lets a command use the keys of encrypted values. One that publishes nothing makes none.
func KeysOf(st *config.Stream, publishes bool) {
	st.Export.Keys = seal.None
	if publishes {
		UseKeys(st, new(keyring.Pool))
	} else if st.Export.Private.Encrypts() {
		cfg := KeyConfig(st)
		cfg.ReadOnly = true
		st.Export.Keys = func() seal.Keys { return keyring.New(cfg) }
	}
}
