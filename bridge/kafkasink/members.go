package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// foreignHint is for a group that is not ours alone.
const foreignHint = "name another BRIDGE_GROUP: somebody else's consumers use this one"

// Member is a process in a stream's group.
type Member struct {
	// ClientID is its KAFKA_CLIENT_ID.
	ClientID string `json:"client_id"`
	// Host is the address that the brokers see.
	Host string `json:"host"`
	// InstanceID is its BRIDGE_INSTANCE_ID; empty if it has none.
	InstanceID string `json:"instance_id,omitempty"`
	// Owner: the coordinator has assigned the stream to it. For a moment,
	// while the group changes, nobody is.
	Owner bool `json:"owner"`
}

// Members returns the processes that run the stream or stand by for it. None
// means that nobody runs it, and a group that does not exist has none. A dead
// process is a member until its session times out. Errors are Faults;
// somebody else's consumers in the group are a Permanent one. Brokers that do
// not answer are not waited for. It may be called at any time.
func (s *Sink) Members(ctx context.Context) ([]Member, error) {
	client, err := s.cfg.Open()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	asking, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	members, err := s.members(asking, client)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("describe group %s: %w", s.group(), ctx.Err())
	case err != nil:
		return nil, s.groupFault(err, client)
	}
	return members, nil
}

func (s *Sink) members(ctx context.Context, client *kafkaclient.Client) ([]Member, error) {
	g, err := s.describeGroup(ctx, client)
	// A cluster that never had a group makes the place for them first.
	for ctx.Err() == nil && (errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress)) {
		kafkaclient.Pause(ctx, coordinatorRetry)
		g, err = s.describeGroup(ctx, client)
	}
	switch {
	case errors.Is(err, kerr.GroupIDNotFound), err == nil && len(g.Members) == 0:
		return nil, s.hiddenMembers(ctx, client)
	case err != nil:
		return nil, fmt.Errorf("describe group %s: %w", s.group(), err)
	case g.ProtocolType != "" && g.ProtocolType != "consumer":
		return nil, s.foreign("it is a group of type " + g.ProtocolType)
	}
	var members []Member
	for i := range g.Members {
		m := &g.Members[i]
		if !s.subscribes(m.ProtocolMetadata) {
			return nil, s.foreign(fmt.Sprintf("client %s at %s does not read topic %s", m.ClientID, m.ClientHost, s.cfg.CheckpointTopic))
		}
		found := Member{ClientID: m.ClientID, Host: m.ClientHost, Owner: s.assigned(m.MemberAssignment)}
		if m.InstanceID != nil {
			found.InstanceID = *m.InstanceID
		}
		members = append(members, found)
	}
	return members, nil
}

func (s *Sink) describeGroup(ctx context.Context, client *kafkaclient.Client) (*kmsg.DescribeGroupsResponseGroup, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{s.group()}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("the brokers' answer has %d groups", len(resp.Groups))
	}
	return &resp.Groups[0], kerr.ErrorForCode(resp.Groups[0].ErrorCode)
}

// hiddenMembers looks for consumers of the newer protocol, which a bridge never
// uses. To all others their group looks empty, and assigns nothing.
func (s *Sink) hiddenMembers(ctx context.Context, client *kafkaclient.Client) error {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{s.group()}
	resp, err := req.RequestWith(ctx, client)
	if err != nil || len(resp.Groups) != 1 || len(resp.Groups[0].Members) == 0 {
		return ctx.Err() // brokers that cannot tell have no such consumers
	}
	m := &resp.Groups[0].Members[0]
	return s.foreign(fmt.Sprintf("client %s at %s is a consumer of the newer protocol", m.ClientID, m.ClientHost))
}

func (s *Sink) foreign(what string) *bridge.Fault {
	return &bridge.Fault{
		Class: bridge.Permanent, Reason: bridge.ReasonOwner, Code: "foreign_group", Hint: foreignHint,
		Err: fmt.Errorf("group %s is not ours: %s", s.group(), what),
	}
}

// subscribes reports whether a member reads the checkpoint topic, or the
// coordinator does not say: while the group changes it knows nothing.
func (s *Sink) subscribes(metadata []byte) bool {
	if len(metadata) == 0 {
		return true
	}
	var m kmsg.ConsumerMemberMetadata
	return m.ReadFrom(metadata) == nil && slices.Contains(m.Topics, s.cfg.CheckpointTopic)
}

// assigned reports whether an assignment has the stream's partition.
func (s *Sink) assigned(assignment []byte) bool {
	var a kmsg.ConsumerMemberAssignment
	if len(assignment) == 0 || a.ReadFrom(assignment) != nil {
		return false
	}
	return slices.ContainsFunc(a.Topics, func(t kmsg.ConsumerMemberAssignmentTopic) bool {
		return t.Topic == s.cfg.CheckpointTopic && slices.Contains(t.Partitions, kafkaclient.CheckpointPartition(s.cfg.Stream))
	})
}

// String names the process for people.
func (m Member) String() string {
	if m.InstanceID != "" {
		return m.InstanceID + " at " + m.Host
	}
	return m.ClientID + " at " + m.Host
}
