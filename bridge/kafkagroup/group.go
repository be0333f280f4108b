package kafkagroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// foreignGroup is the code of the fault of a group with foreign members, foreignHint its hint.
const (
	foreignGroup = "foreign_group"
	foreignHint  = "set another BRIDGE_GROUP: other consumers use this one"
)

const (
	// coordinatorRetry is the wait before the next request to a coordinator that is not
	// available yet.
	coordinatorRetry = 250 * time.Millisecond
	// probeTimeout bounds a group description.
	probeTimeout = 4 * time.Second
)

// Membership configures the membership of this process in the streams' groups.
type Membership struct {
	Group          string        `env:"BRIDGE_GROUP" desc:"processes with the same value share their streams; their consumer group is <group>.FLEET"`
	SessionTimeout time.Duration `env:"BRIDGE_SESSION_TIMEOUT" desc:"session timeout: time until the streams of a crashed process move to another"`
	OwnedBy        string        `env:"BRIDGE_OWNERSHIP" values:"group,stream" desc:"group: one consumer group, <group>.FLEET, shares the streams; stream: each stream has one of its own, <group>.<stream>; a later version will remove stream"`
	FleetMembers   int           `env:"BRIDGE_FLEET_MEMBERS" desc:"with BRIDGE_OWNERSHIP=group: the largest number of processes in the group at a time, during a rolling update too; the more there are, the fewer streams each may have: 5,213 with 32"`
	// InstanceID makes this process a static member, which gets its streams back at once
	// after a crash; empty for a dynamic member.
	InstanceID string
	// Process is the name of this process in its checkpoints and in Members; may be empty.
	// Program is its version.
	Process, Program string
	// LaneCapacity is the number of lanes of jobs that this process can run at a time in a
	// Fleet.
	LaneCapacity uint64
}

// The values of Membership.OwnedBy.
const (
	OwnedByGroup  = "group"
	OwnedByStream = "stream"
)

// DefaultMembership returns the default of every setting.
func DefaultMembership() Membership {
	return Membership{
		Group: "exportbridge", SessionTimeout: 10 * time.Second, OwnedBy: OwnedByGroup, FleetMembers: defaultMembers,
	}
}

const (
	minSession = time.Second
	maxSession = 5 * time.Minute
	// groupRecord is the default of message.max.bytes. Kafka stores the metadata and
	// assignments of all members of a group in one record.
	groupRecord = 1 << 20
	// memberBytes is the space of a member in the record besides its streams: for its names
	// and addresses, and for listedLanes.
	memberBytes = 4 << 10
	// streamBytes is the maximum space of a stream in the record: 5 for the hash, 2 bits
	// for its state, 1 for the assignment.
	streamBytes    = 5.5
	defaultMembers = 32
	maxMembers     = 200
)

// Validate reports all problems, each with its variable and an example.
func (m *Membership) Validate() error {
	p := new(bridge.Problems)
	p.Check(m.Group != "", "BRIDGE_GROUP", "is empty, for example exportbridge")
	p.Check(m.SessionTimeout >= minSession && m.SessionTimeout <= maxSession,
		"BRIDGE_SESSION_TIMEOUT", "must be %s to %s, for example 10s", minSession, maxSession)
	p.Check(m.OwnedBy == OwnedByGroup || m.OwnedBy == OwnedByStream,
		"BRIDGE_OWNERSHIP", "is %q, not group or stream", m.OwnedBy)
	p.Check(m.FleetMembers >= 1 && m.FleetMembers <= maxMembers,
		"BRIDGE_FLEET_MEMBERS", "must be 1 to %d, for example %d", maxMembers, defaultMembers)
	return p.Err()
}

// MaxStreams returns the number of streams that a process in a Fleet of FleetMembers may
// have: those that fit into its share of the group's record.
func (m *Membership) MaxStreams() int {
	share := groupRecord / cmp.Or(m.FleetMembers, defaultMembers)
	return int(float64(share-memberBytes) / streamBytes)
}

// CheckStreams returns a Problem if a process of a Fleet cannot have n streams.
func (m *Membership) CheckStreams(n int) error {
	most := m.MaxStreams()
	if n <= most {
		return nil
	}
	return bridge.Problemf("BRIDGE_FLEET_MEMBERS", "is %d, which allows %d streams per process, not %d; set it "+
		"to the largest number of processes in the group, or divide the streams among several BRIDGE_GROUPs",
		m.FleetMembers, most, n)
}

// Group is the consumer group of the processes that can run a stream.
type Group struct {
	// Config configures the connection.
	kafkaclient.Config
	Membership
	// Stream is the name under which the stream is owned. CheckpointTopic has the partition
	// that represents the stream.
	Stream, CheckpointTopic string
	// GrantPrefix, if not empty, is the prefix of the groups that Grants covers.
	GrantPrefix string
	// Shared, if not nil, lends the client of Members.
	Shared *kafkaclient.Shared
	// Missing, if not nil, is called to create a missing checkpoint topic.
	Missing func(context.Context, *kafkaclient.Client) error
}

// Name returns the group's name.
func (g *Group) Name() string { return g.Group + "." + g.Stream }

// Members returns the owner of the stream and its standbys, in the stream's own group and
// in the Fleet's group. For a job, it returns the processes that run its lanes. Without
// members, no process runs the stream. A crashed process is listed until its session times
// out. Errors are Faults; foreign members are a Permanent one. Unresponsive brokers are not
// retried. It may be called at any time.
func (g *Group) Members(ctx context.Context) ([]bridge.Member, error) {
	client, release, err := g.Shared.Open(&g.Config)
	if err != nil {
		return nil, err
	}
	defer release()
	asking, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	members, err := g.members(asking, client)
	if err == nil {
		var all []listed
		all, err = g.fleet(asking, client)
		members = append(members, g.among(all)...)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("describe group %s: %w", g.Name(), ctx.Err())
	case err != nil:
		return nil, g.fault(err, client)
	}
	return members, nil
}

func (g *Group) members(ctx context.Context, client *kafkaclient.Client) ([]bridge.Member, error) {
	found, err := describeGroup(ctx, client, g.Name())
	switch {
	case errors.Is(err, kerr.GroupIDNotFound), err == nil && len(found.Members) == 0:
		return nil, hiddenMembers(ctx, client, g)[g.Name()]
	case err != nil:
		return nil, fmt.Errorf("describe group %s: %w", g.Name(), err)
	}
	if err := g.strangers(found); err != nil {
		return nil, err
	}
	var members []bridge.Member
	for i := range found.Members {
		m := &found.Members[i]
		found := memberOf(m, processName(m.ProtocolMetadata))
		found.Owner = g.assigned(m.MemberAssignment)
		members = append(members, found)
	}
	return members, nil
}

// strangers returns a Fault if a group has members that are no bridges.
func (g *Group) strangers(found *kmsg.DescribeGroupsResponseGroup) error {
	if found.ProtocolType != "" && found.ProtocolType != "consumer" {
		return g.foreign("its type is " + found.ProtocolType)
	}
	for i := range found.Members {
		if m := &found.Members[i]; !g.subscribes(m.ProtocolMetadata) {
			return g.foreign(fmt.Sprintf("client %s at %s does not subscribe to topic %s",
				m.ClientID, m.ClientHost, g.CheckpointTopic))
		}
	}
	return nil
}

func memberOf(m *kmsg.DescribeGroupsResponseGroupMember, process string) bridge.Member {
	found := bridge.Member{Process: process, ClientID: m.ClientID, Host: m.ClientHost}
	if m.InstanceID != nil {
		found.InstanceID = *m.InstanceID
	}
	return found
}

// describeGroup describes a group. A cluster that never had a group first creates the topic
// for groups, which takes a while.
func describeGroup(
	ctx context.Context, client *kafkaclient.Client, name string,
) (*kmsg.DescribeGroupsResponseGroup, error) {
	found, err := describeOnce(ctx, client, name)
	for ctx.Err() == nil &&
		(errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress)) {
		bridge.Sleep(ctx, coordinatorRetry)
		found, err = describeOnce(ctx, client, name)
	}
	return found, err
}

func describeOnce(
	ctx context.Context, client *kafkaclient.Client, name string,
) (*kmsg.DescribeGroupsResponseGroup, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{name}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("the brokers' answer has %d groups", len(resp.Groups))
	}
	return &resp.Groups[0], kerr.ErrorForCode(resp.Groups[0].ErrorCode)
}

// hiddenMembers looks for consumers of the KIP-848 protocol, which a bridge never uses. To
// classic members, a group of such consumers looks empty, and assigns nothing. It returns, by
// name, the Faults of the groups that have some, or the error of ctx.
func hiddenMembers(ctx context.Context, client *kafkaclient.Client, groups ...*Group) map[string]error {
	if len(groups) == 0 {
		return nil
	}
	req, found := kmsg.NewPtrConsumerGroupDescribeRequest(), make(map[string]error)
	for _, g := range groups {
		req.Groups = append(req.Groups, g.Name())
	}
	hidden := make(map[string]*kmsg.ConsumerGroupDescribeResponseGroupMember)
	for _, part := range client.RequestSharded(ctx, req) {
		if part.Err != nil {
			continue // brokers without this request have no such consumers
		}
		for _, g := range part.Resp.(*kmsg.ConsumerGroupDescribeResponse).Groups {
			if len(g.Members) > 0 {
				hidden[g.Group] = &g.Members[0]
			}
		}
	}
	for _, g := range groups {
		if m := hidden[g.Name()]; m != nil {
			found[g.Name()] = g.foreign(fmt.Sprintf("client %s at %s uses the consumer protocol of KIP-848", m.ClientID,
				m.ClientHost))
		} else if ctx.Err() != nil {
			found[g.Name()] = ctx.Err()
		}
	}
	return found
}

func (g *Group) foreign(what string) *bridge.Fault {
	return bridge.Blockf(foreignGroup, bridge.ReasonOwner, foreignHint, "group %s has foreign members: %s", g.Name(), what)
}

// subscribes reports whether a member subscribes to the checkpoint topic. It returns true
// if the subscription is unknown, as during a rebalance.
func (g *Group) subscribes(metadata []byte) bool {
	if len(metadata) == 0 {
		return true
	}
	var m kmsg.ConsumerMemberMetadata
	return m.ReadFrom(metadata) == nil && slices.Contains(m.Topics, g.CheckpointTopic)
}

// assigned reports whether an assignment contains the stream's partition.
func (g *Group) assigned(assignment []byte) bool {
	var a kmsg.ConsumerMemberAssignment
	if len(assignment) == 0 || a.ReadFrom(assignment) != nil {
		return false
	}
	return slices.ContainsFunc(a.Topics, func(t kmsg.ConsumerMemberAssignmentTopic) bool {
		return t.Topic == g.CheckpointTopic && slices.Contains(t.Partitions, kafkaclient.CheckpointPartition(g.Stream))
	})
}

// fault classifies an error of the stream's group for the engine.
func (g *Group) fault(err error, client *kafkaclient.Client) *bridge.Fault {
	if f, ok := errors.AsType[*bridge.Fault](err); ok {
		return f
	}
	f := client.Explain(err, g.CheckpointTopic)
	block := func(reason bridge.Reason, hint string) {
		f.Class, f.Reason, f.Hint = bridge.Permanent, reason, hint
		f.Err = fmt.Errorf("group %s: %w", g.Name(), err)
	}
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		hint := g.Grants()
		if g.Stream == fleetStream {
			hint = "run this, or set BRIDGE_OWNERSHIP=stream until the group is granted: " + hint
		}
		block(bridge.ReasonAuth, hint)
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		block(bridge.ReasonOwner, foreignHint)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		block(bridge.ReasonConfig, fmt.Sprintf(
			"BRIDGE_SESSION_TIMEOUT=%s is outside the brokers' limits: "+
				"group.min.session.timeout.ms (6s by default) to group.max.session.timeout.ms (30m)", g.SessionTimeout))
	case errors.Is(err, kerr.InvalidGroupID):
		block(bridge.ReasonConfig, "check BRIDGE_GROUP")
	case errors.Is(err, kerr.GroupMaxSizeReached):
		block(bridge.ReasonOwner, "the group exceeds the brokers' group.max.size")
	}
	return f
}

// ofJob reports whether the group is that of a job, or of a part of a job.
func (g *Group) ofJob() bool { return g.GrantPrefix != "" }

// Grants returns the command that allows joining and describing the group and the Fleet's
// group.
func (g *Group) Grants() string {
	if g.ofJob() {
		return g.Grant("--operation Read --operation Describe --resource-pattern-type prefixed --group " + g.GrantPrefix)
	}
	grant := "--operation Read --operation Describe --group " + g.Name()
	if g.OwnedBy == OwnedByGroup && g.Stream != fleetStream {
		grant += " --group " + g.fleetName()
	}
	return g.Grant(grant)
}

// CheckGrants returns the name of the group that assigns the stream, and a Fault if this
// user may not join that group, or not describe the stream's own group. It joins nothing:
// a heartbeat requires the same right, also that of a member that the brokers do not know.
func (g *Group) CheckGrants(ctx context.Context, client *kafkaclient.Client) (joins string, err error) {
	joined := *g
	if g.OwnedBy == OwnedByGroup {
		joined.Stream = fleetStream
	}
	joins = joined.Name()
	if _, err = describeGroup(ctx, client, g.Name()); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return joins, g.fault(err, client)
	}
	e := &entry{group: joined, name: joins}
	err = e.beat(ctx, client, "", -1)
	if err != nil && !isNotMember(err) && !errors.Is(err, kerr.GroupIDNotFound) {
		return joins, joined.fault(err, client)
	}
	return joins, nil
}

// instanceID returns the instance id, nil if there is none.
func (g *Group) instanceID() *string {
	if g.InstanceID == "" {
		return nil
	}
	return new(g.InstanceID)
}

// RunElsewhere reports whether a group of another BRIDGE_GROUP may run the stream. If that
// is unknown, it returns true. A broker that is away coordinates no group.
func (g *Group) RunElsewhere(ctx context.Context) bool {
	run, err := kafkaclient.With(ctx, &g.Config, "", func(ctx context.Context, client *kafkaclient.Client) (bool, error) {
		names, err := g.others(ctx, client)
		if parts, ok := errors.AsType[*kadm.ShardErrors](err); ok && !parts.AllFailed && !slices.ContainsFunc(parts.Errs, answered) {
			err = nil
		}
		return len(names) > 0, err
	})
	return run || err != nil
}

// answered reports whether a broker answered with an error.
func answered(e kadm.ShardError) bool {
	_, ok := errors.AsType[*kerr.Error](e.Err)
	return ok
}

// others returns the groups with members for a stream or job of this name, as far as this
// user may see them.
func (g *Group) others(ctx context.Context, client *kafkaclient.Client) ([]string, error) {
	listing := ctx
	if end, ok := ctx.Deadline(); ok { // a broker that is away takes all of the time
		var cancel context.CancelFunc
		listing, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	groups, err := kadm.NewClient(client.Client).ListGroups(listing)
	var names []string
	for _, other := range groups.Sorted() {
		runs := strings.HasSuffix(other.Group, "."+g.Stream)
		if other.State == "Empty" || other.State == "Dead" {
			continue
		}
		if strings.HasSuffix(other.Group, "."+fleetStream) {
			all, unknown := membersOf(ctx, client, other.Group)
			if runs = len(g.among(all)) > 0; unknown != nil {
				err = unknown
			}
		}
		if runs {
			names = append(names, other.Group)
		}
	}
	return names, err
}

// rival returns a group of another BRIDGE_GROUP that has members on this stream's
// checkpoint topic, empty if none is known.
func (g *Group) rival(ctx context.Context, client *kafkaclient.Client) (string, error) {
	names, err := g.others(ctx, client)
	for _, name := range names {
		if name == g.Name() || name == g.fleetName() {
			continue
		}
		found, unknown := describeGroup(ctx, client, name)
		switch {
		case errors.Is(unknown, kerr.GroupIDNotFound), errors.Is(unknown, kerr.GroupAuthorizationFailed):
		case unknown != nil:
			err = unknown
		case slices.ContainsFunc(found.Members, func(m kmsg.DescribeGroupsResponseGroupMember) bool {
			return len(m.ProtocolMetadata) == 0
		}):
			err = fmt.Errorf("group %s rebalances: the topics of its members are unknown", name)
		case slices.ContainsFunc(found.Members, func(m kmsg.DescribeGroupsResponseGroupMember) bool {
			return g.subscribes(m.ProtocolMetadata)
		}):
			return "group " + name, nil
		}
	}
	return "", err
}
