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

// Lane returns the Owner of lane n of a job in the fleet of this process. The caller closes
// it.
func (j *Jobs) Lane(f *kafkagroup.Fleet, id string, n int) (*kafkagroup.Seat, error) {
	return f.Lane(j.group(id), n)
}

// Lanes returns the processes that run lanes of a job, like Group.Lanes.
func (j *Jobs) Lanes(ctx context.Context, id string, n int) ([]bridge.Member, error) {
	return j.group(id).Lanes(ctx, n)
}

// Hosts returns the processes that can run lanes of the stream's jobs, like Group.LaneHosts.
func (j *Jobs) Hosts(ctx context.Context) ([]bridge.Member, error) {
	return j.cfg.group().LaneHosts(ctx)
}

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
