package kafkastream

import (
	"context"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkasink"
)

// Jobs are the jobs of a stream, with the processes that work on them. All methods
// may be called concurrently.
type Jobs struct {
	*kafkasink.Jobs
	cfg Config
}

// Jobs returns the jobs of the stream, like logs.Jobs.
func (c *Config) Jobs(logs *kafkasink.JobLogs) *Jobs { return &Jobs{logs.Jobs(c.Wired()), *c} }

// Owner returns the Owner of a job: one process at a time works on it. The caller
// closes it.
func (j *Jobs) Owner(id string) *kafkagroup.Owner { return j.group(id).Owner() }

// Members returns the processes of a job, like Group.Members. A crashed process is
// listed until its session times out.
func (j *Jobs) Members(ctx context.Context, id string) ([]bridge.Member, error) {
	return j.group(id).Members(ctx)
}

func (j *Jobs) group(id string) *kafkagroup.Group {
	g := j.cfg.group()
	g.Stream, g.CheckpointTopic = kafkasink.JobName(j.cfg.Stream, id), kafkasink.JobsTopic(j.cfg.CheckpointTopic)
	g.InstanceID, g.GrantPrefix = "", j.cfg.Group+"."+j.cfg.Stream+"."
	return g
}
