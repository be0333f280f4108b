package kafkasink

import "github.com/twmb/franz-go/pkg/kgo"

// Consumer returns a client with the sink's brokers, TLS and credentials for
// reading its topics, read_committed unless opts say otherwise. The caller
// closes it. It shares nothing with the session that publishes.
func (s *Sink) Consumer(opts ...kgo.Opt) (*kgo.Client, error) {
	return s.newClient(newWatch(), append([]kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadCommitted())}, opts...)...)
}
