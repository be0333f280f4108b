package schema

import (
	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/contract"
)

func newAsyncAPICommand(a *cli.App) *cobra.Command {
	var stream string
	var dead bool
	cmd := &cobra.Command{
		Use:   "asyncapi",
		Short: "Print an AsyncAPI document of the topics",
		Long: `Print an AsyncAPI 3 document of the streams as configured: topics, record keys,
headers and the JSON Schema of EVENT_SCHEMA_FILE, for consumers and code
generators. The command contacts no server.`,
		Example: `  exportbridge asyncapi -o asyncapi.yaml
  exportbridge asyncapi --event-schema "$(cat order.schema.json)" --json`,
		GroupID: cli.GroupPosition,
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	output := cli.TakeOutput(cmd)
	cli.TakeStreams(cmd, &stream)
	cmd.Flags().BoolVar(&dead, "dlq", false, "describe the dead-letter topics too")
	cmd.RunE = func(*cobra.Command, []string) error {
		s, err := a.StreamsSettings(0, stream)
		if err != nil {
			return err
		}
		kafka := &s.Streams[0].Kafka
		streams := make([]contract.Stream, len(s.Streams))
		for i := range s.Streams {
			st := &s.Streams[i]
			topics := st.Kafka.Topics()
			streams[i] = contract.Stream{
				Name: st.Name, Topic: st.Kafka.Topic, Routed: st.Export.Routes.Topics, Key: st.Kafka.Key, Headers: st.Kafka.Headers,
				Late: st.Windows.Windows(), Schema: st.Contract.Schema, AttestTopic: topics.Attest,
				Private: st.Export.Redacted() != "", Encrypted: st.Export.Private.Encrypt, KeysTopic: topics.Keys,
			}
			if dead {
				streams[i].DeadTopic = topics.DeadLetters
			}
		}
		document, err := contract.NewDocument(streams, contract.Cluster{Brokers: kafka.Brokers, TLS: kafka.TLSEnabled})
		if err != nil {
			return cli.WrongUsage("correct EVENT_SCHEMA_FILE", "%w", err)
		}
		if *asJSON {
			return printJSON(a, output, document)
		}
		text, err := document.YAML()
		if err != nil {
			return err
		}
		return a.PrintTo(output, text)
	}
	return cmd
}
