package kafkagroup

import (
	"context"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup/units"
)

// Overview is what the coordinator knows about the processes with the same BRIDGE_GROUP and
// about their streams. No process is asked.
type Overview struct {
	// Group is the name of the group that shares the streams.
	Group string `json:"group"`
	// Generation is the generation of the group. Planned is when the leader assigned the
	// streams, by the leader's clock. Both are zero if they are not known, as in a group
	// without members.
	Generation int32     `json:"generation"`
	Planned    time.Time `json:"planned,omitzero"`
	// Processes are the members of the group, ordered by name. Streams are the requested
	// streams.
	Processes []GroupProcess `json:"processes"`
	Streams   []GroupStream  `json:"streams"`
}

// GroupProcess is a member of the group.
type GroupProcess struct {
	Name       string `json:"name"`
	Host       string `json:"host"`
	InstanceID string `json:"instance_id,omitempty"`
	Version    string `json:"version,omitempty"`
	// Capacity is the number of lanes of backfills and replays that the process can run at
	// a time, 0 in an old version. Lanes is the number that it runs. Load is 0.
	Capacity uint64 `json:"capacity"`
	Lanes    int    `json:"lanes"`
	Load     uint64 `json:"load"`
	// Owned and Listed count the streams that the process owns and those that it can run,
	// requested or not.
	Owned  int `json:"owned"`
	Listed int `json:"listed"`
	// Unknown is set if the member's data cannot be read, as during a rebalance.
	Unknown bool `json:"unknown,omitempty"`
}

// GroupStream is a stream in the group. Processes have the names of GroupProcess.
type GroupStream struct {
	Stream string `json:"stream"`
	Owner  string `json:"owner,omitempty"`
	// Releasing is set while the owner ends its work, so that another process can begin.
	Releasing bool `json:"releasing,omitempty"`
	// Standby are the processes that can run the stream. Declined are those that cannot run
	// it now.
	Standby  []string `json:"standby,omitempty"`
	Declined []string `json:"declined,omitempty"`
	// OwnGroup is a member of the stream's own group. It runs the stream, and all others
	// wait.
	OwnGroup string `json:"own_group,omitempty"`
	// Blocked is why no process may begin the stream: its own group has members that are no
	// bridges. Hint is what to do.
	Blocked string `json:"blocked,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Error is why it is unknown whether a process runs the stream.
	Error string `json:"error,omitempty"`
}

// Overview describes the group of all processes with g's BRIDGE_GROUP, and the states of
// the streams. Errors are Faults. Unresponsive brokers are not retried. It may be called at
// any time.
func (g *Group) Overview(ctx context.Context, streams []*Group) (Overview, error) {
	return kafkaclient.With(ctx, &g.Config, "", func(ctx context.Context, client *kafkaclient.Client) (Overview, error) {
		ctx, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
		defer cancel()
		members, err := g.fleet(ctx, client)
		if err != nil {
			return Overview{}, g.fault(err, client)
		}
		o := Overview{Group: g.fleetName(), Processes: []GroupProcess{}}
		for i := range members {
			o.add(&members[i])
		}
		slices.SortFunc(o.Processes, func(a, b GroupProcess) int { return strings.Compare(a.Name, b.Name) })
		found := singleGroups(ctx, client, streams)
		var empty []*Group // although they may have hidden members
		for i, s := range streams {
			if s.OwnedBy == OwnedByStream && found[i] == (single{}) {
				empty = append(empty, s)
			}
		}
		blocked := hiddenMembers(ctx, client, empty...) // asked once: there may be a thousand streams
		hidden := slices.ContainsFunc(members, func(l listed) bool { return l.unknown })
		for i, s := range streams {
			stream := streamOf(s.Stream, members)
			if err := blocked[s.Name()]; err != nil {
				found[i].err = err
			}
			fault := bridge.FaultOf(found[i].err)
			switch stream.OwnGroup = found[i].member; {
			case found[i].err != nil && fault.Code == foreignGroup:
				stream.Blocked, stream.Hint = fault.Error(), fault.Hint
			case found[i].err != nil:
				stream.Error = found[i].err.Error()
			case hidden && stream.Owner == "" && stream.OwnGroup == "":
				stream.Error = g.rebalancing().Error()
			}
			o.Streams = append(o.Streams, stream)
		}
		return o, nil
	})
}

func (o *Overview) add(m *listed) {
	if m.generation > o.Generation {
		o.Generation, o.Planned = m.generation, time.Unix(m.planned, 0).UTC()
	}
	p := GroupProcess{
		Name: m.Name(), Host: m.Host, InstanceID: m.InstanceID, Version: safeName([]byte(m.offer.Program)),
		Capacity: m.offer.Capacity, Load: m.offer.Load, Unknown: m.unknown,
	}
	for i, c := range m.offer.Claims {
		switch owns := m.owns(i); {
		case c.Unit.IsLane() && owns:
			p.Lanes++
		case c.Unit.IsLane():
		case owns:
			p.Owned++
			p.Listed++
		default:
			p.Listed++
		}
	}
	o.Processes = append(o.Processes, p)
}

func streamOf(name string, members []listed) GroupStream {
	s := GroupStream{Stream: name}
	for i := range members {
		m := &members[i]
		at, lists := m.claim(units.Stream(name))
		if !lists {
			continue
		}
		switch state := m.offer.Claims[at].State; {
		case m.owns(at):
			s.Owner, s.Releasing = m.Name(), m.given != nil && !m.given[at]
		case state == units.Declined:
			s.Declined = append(s.Declined, m.Name())
		default:
			s.Standby = append(s.Standby, m.Name())
		}
	}
	return s
}
