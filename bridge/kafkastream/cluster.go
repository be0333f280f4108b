package kafkastream

import (
	"context"

	"exportbridge/bridge/kafkaadmin"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkarecord"
	"exportbridge/bridge/kafkasink"
)

// cluster is the port of a stream's sink, jobs and repairs to the cluster.
type cluster struct {
	kafkagroup.Membership
	kafkaadmin.Layout
}

var _ kafkasink.Cluster = (*cluster)(nil)

// of returns the whole configuration of a stream, or of a part of one.
func (c *cluster) of(own *kafkasink.Config) Config {
	if own.Part != nil {
		return c.ofPart(*own)
	}
	return Config{c.Membership, c.Layout, *own}
}

// ofPart returns the configuration of a part of a stream: it creates no topics, and after a
// crash any process may take the part over.
func (c *cluster) ofPart(own kafkasink.Config) Config {
	part := Config{c.Membership, c.Layout, own}
	part.CreateTopics, part.InstanceID = false, ""
	return part
}

// Ready implements kafkasink.Cluster.
func (c *cluster) Ready(
	ctx context.Context, client *kafkaclient.Client, own *kafkasink.Config, published *kafkarecord.Published,
) (kafkaclient.Described, error) {
	cfg := c.of(own)
	needs := cfg.Needs()
	needs.Past.Holds = published.Holds // an interrupted search continues
	return needs.Ready(ctx, client)
}

// MakeJobTopic implements kafkasink.Cluster.
func (c *cluster) MakeJobTopic(ctx context.Context, client *kafkaclient.Client, own *kafkasink.Config) error {
	cfg := c.of(own)
	return cfg.Needs().Make(ctx, client, own.CheckpointTopic)
}

// MayRun implements kafkasink.Cluster.
func (c *cluster) MayRun(ctx context.Context, own *kafkasink.Config) (bool, error) {
	cfg := c.of(own)
	group := cfg.Ownership()
	members, err := group.Members(ctx)
	return err == nil && (len(members) > 0 || group.RunElsewhere(ctx)), err
}
