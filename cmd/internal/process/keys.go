package process

import (
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

// UseKeys lets the clients of a stream take the keys of encrypted values from a pool.
func UseKeys(st *config.Stream, pool *keyring.Pool) {
	if st.Export.Private.Encrypts() {
		st.Export.Keys = func() seal.Keys { return pool.Use(KeyConfig(st)) }
	}
}

// KeysOf lets a command that publishes use the keys of encrypted values. Others withhold them.
func KeysOf(st *config.Stream, publishes bool) {
	st.Export.Keys = seal.None
	if publishes {
		UseKeys(st, new(keyring.Pool))
	}
}
