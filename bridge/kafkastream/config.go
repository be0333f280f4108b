package kafkastream

import (
	"cmp"
	"context"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaadmin"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkarecord"
	"exportbridge/bridge/kafkasink"
)

// Config configures a stream in Kafka. Start from DefaultConfig.
type Config struct {
	// Membership configures the group of processes that share the stream, Layout how its
	// topics are created, Config how its events are published.
	kafkagroup.Membership
	kafkaadmin.Layout
	kafkasink.Config
}

// DefaultConfig returns the default of every setting. Stream, Resource, Topic
// and Mode have none.
func DefaultConfig() Config {
	return Config{kafkagroup.DefaultMembership(), kafkaadmin.DefaultLayout(), kafkasink.DefaultConfig()}
}

// Validate reports all problems of the settings, each with its variable and an
// example.
func (c *Config) Validate() error {
	p := new(bridge.Problems)
	p.Add(c.Config.Validate())
	p.Add(c.Layout.Validate())
	p.Add(c.Membership.Validate())
	return p.Err()
}

// Sink returns the stream's Sink. It does not connect.
func (c *Config) Sink() (*kafkasink.Sink, error) {
	own := *c
	own.Config = c.Wired()
	if err := own.Validate(); err != nil {
		return nil, err
	}
	return kafkasink.New(own.Config)
}

// Wired returns the configuration of the stream's Sink, jobs and repairs, with the port to
// the cluster. If no topics are created, an error of Known counts as no checkpoint.
func (c *Config) Wired() kafkasink.Config {
	own := c.Config
	own.Topic = cmp.Or(own.Topic, "export."+own.Stream)
	own.Cluster = &cluster{c.Membership, c.Layout}
	if known := c.Known; known != nil && !c.CreateTopics {
		own.Known = func(ctx context.Context) (bridge.Checkpoint, error) {
			found, err := known(ctx)
			if err != nil {
				err = bridge.ErrNoCheckpoint
			}
			return found, err
		}
	}
	return own
}

// OfWindow returns the configuration of a window of a job of the stream. It never
// creates topics: a lost checkpoint topic must not be recreated.
func (c *Config) OfWindow(w kafkasink.Window) Config {
	return (&cluster{c.Membership, c.Layout}).ofPart(c.Config.OfWindow(w))
}

// OfAttest returns the configuration of the stream's attestation.
func (c *Config) OfAttest() Config { return Config{c.Membership, c.Layout, c.Config.OfAttest()} }

// History returns the reader of the stream's checkpoints.
func (c *Config) History() *kafkasink.CheckpointHistory { return kafkasink.NewHistory(c.Wired()) }

// Published returns the reader of the stream's events and dead letters.
func (c *Config) Published() *kafkarecord.Published {
	own := c.Wired()
	return kafkarecord.NewPublished(own.Records())
}

// Ownership returns the group of the processes that can run the stream.
func (c *Config) Ownership() *kafkagroup.Group {
	g := c.group()
	if c.CreateTopics {
		g.Missing = c.Needs().MakeCheckpoints
	}
	return g
}

func (c *Config) group() *kafkagroup.Group {
	g := &kafkagroup.Group{
		Config: c.Config.Config, Membership: c.Membership,
		Stream: kafkasink.OwnedAs(c.Stream), CheckpointTopic: c.CheckpointTopic,
	}
	if c.Part != nil { // each job has a group of its own
		g.GrantPrefix = c.Group + "." + c.Part.Stream + "."
	}
	return g
}

// Needs returns the stream's requirements on the cluster.
func (c *Config) Needs() *kafkaadmin.Stream {
	own := c.Wired()
	return &kafkaadmin.Stream{
		Config: c.Config.Config, Layout: c.Layout, Name: c.Stream, Topics: own.Topics(),
		Rights: kafkaadmin.Rights{
			TransactionalID: c.TransactionalID(), Transactions: c.TransactionGrant(),
			Group: c.group().Grants(), CheckGroup: c.group().CheckGrants, JobGroups: c.Group + "." + c.Stream + ".",
		},
		Past: kafkaadmin.Past{
			Newest: kafkasink.NewHistory(own).Newest, Holds: kafkarecord.NewPublished(own.Records()).Holds,
		},
		Exactly: c.Mode == bridge.ExactlyOnce, PublishTime: c.PublishTime(), StopExpired: c.StopsExpired(),
	}
}
