package units_test

import (
	"encoding/hex"
	"reflect"
	"slices"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkagroup/units"
)

// What the first version, which knows no lanes, wrote: the offer of a process with streams
// events, held, and users, and the assignment of events to it.
const (
	oldOffer      = "78626f010000000400056f6c642d3005312e332e30000001730d029ecfc1c2a004b99888b34204"
	oldAssignment = "78626101030125666005b77501730202010000000580a4a7da06"
)

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	return must.Get(hex.DecodeString(text))(t)
}

// member returns a member that can run streams events and users and four lanes, two at a
// time, and its offer.
func member() (m *units.Member, offered units.Offer, encoded []byte) {
	m = &units.Member{Capacity: 2}
	for _, u := range []units.Unit{units.Stream("events"), units.Stream("users")} {
		m.Add(u)
	}
	for n := range 4 {
		m.Add(units.Lane("events.aaaaaa", n))
	}
	encoded = m.Offer()
	offered, _ = units.DecodeOffer(encoded)
	return m, offered, encoded
}

// TestLaneIsPublished: as TestStreamIsPublished.
func TestLaneIsPublished(t *testing.T) {
	t.Parallel()
	if got := units.Lane("events.k3xq7a", 2); got != 0x1787cf50da1 || !got.IsLane() || units.Stream("events").IsLane() {
		t.Errorf("the unit of a lane is %#x", uint64(got))
	}
}

// TestOldMember: a member of the first version is given streams, in bytes that it reads, and
// no lanes; a member beside it gets them.
func TestOldMember(t *testing.T) {
	t.Parallel()
	old, err := units.DecodeOffer(unhex(t, oldOffer))
	if err != nil || len(old.Claims) != 2 || old.Capacity != 0 {
		t.Fatalf("read %+v, %v", old, err)
	}
	if got := hex.EncodeToString(old.Append(nil)); got != oldOffer {
		t.Errorf("an offer without lanes is written as %s", got)
	}
	m, offered, encoded := member()
	plan := units.Plan([]units.Offer{old, offered})
	if count(plan[0]) != 1 || count(plan[1][:2]) != 1 || count(plan[1][2:]) != 2 {
		t.Errorf("plan %v", plan)
	}
	a := units.Answer(unhex(t, oldOffer), &old, []bool{true, false})
	a.Generation, a.Planned = 5, 1_800_000_000
	if got := hex.EncodeToString(a.Append(nil)); got != oldAssignment {
		t.Errorf("the old member is answered %s", got)
	}
	a = units.Answer(encoded, &offered, plan[1])
	read, err := units.DecodeAssignment(a.Append(nil))
	if err != nil || !reflect.DeepEqual(read, a) {
		t.Errorf("read back %+v, %v; want %+v", read, err, a)
	}
	if out := m.Apply(read, 5); len(out.Start) != 3 || out.Stale || out.Old || m.Changed() {
		t.Errorf("%+v, changed: %t", out, m.Changed())
	}
}

// TestOldLeader: a leader of the first version assigns streams and takes the lanes away,
// which is no reason to join again.
func TestOldLeader(t *testing.T) {
	t.Parallel()
	m, offered, encoded := member()
	m.Apply(units.Answer(encoded, &offered, units.Plan([]units.Offer{offered})[0]), 1)
	encoded = m.Offer()
	offered, _ = units.DecodeOffer(encoded)
	old := units.Answer(encoded, &offered, []bool{true, true, false, false, false, false})
	old.LaneList, old.GivenLanes = 0, nil // as a leader that skips the class
	out := m.Apply(old, 2)
	if len(out.Stop) != 2 || len(out.Start) > 0 || out.Stale || out.Old {
		t.Fatalf("%+v", out)
	}
	for _, u := range out.Stop {
		if !u.IsLane() {
			t.Errorf("unit %x stops", u)
		}
		m.Ended(u)
	}
	encoded = m.Offer()
	offered, _ = units.DecodeOffer(encoded)
	old = units.Answer(encoded, &offered, []bool{true, true, false, false, false, false})
	old.LaneList, old.GivenLanes = 0, nil
	if out = m.Apply(old, 3); len(out.Start)+len(out.Stop) > 0 || out.Stale || m.Changed() {
		t.Errorf("%+v, changed: %t", out, m.Changed())
	}
}

// TestAnswerToOtherLanes: an answer to the same streams and other lanes counts for the
// streams.
func TestAnswerToOtherLanes(t *testing.T) {
	t.Parallel()
	m, offered, encoded := member()
	a := units.Answer(encoded, &offered, []bool{true, true, true, true, true, true})
	m.Add(units.Lane("events.bbbbbb", 0))
	m.Offer()
	if out := m.Apply(a, 1); len(out.Start) != 2 || !out.Old || out.Stale {
		t.Errorf("%+v, want two streams and another join", out)
	}
}

// TestPlanFillsRoom: lanes go where there is room, first to those with few streams, and stay.
func TestPlanFillsRoom(t *testing.T) {
	t.Parallel()
	all := make([]units.Offer, 3)
	lanes := make([]units.Unit, 5)
	for n := range lanes {
		lanes[n] = units.Lane("job", n)
	}
	slices.Sort(lanes)
	for m := range all {
		all[m].Capacity = []uint64{1, 2, 0}[m]
		for _, u := range lanes {
			all[m].Claims = append(all[m].Claims, units.Claim{Unit: u})
		}
	}
	plan := units.Plan(all)
	if count(plan[0]) != 1 || count(plan[1]) != 2 || count(plan[2]) != 0 {
		t.Errorf("plan %v", plan)
	}
	for m := range all {
		for i := range plan[m] {
			if plan[m][i] {
				all[m].Claims[i].State = units.Held
			}
		}
	}
	if again := units.Plan(all); !reflect.DeepEqual(again, plan) {
		t.Errorf("plan %v, then %v", plan, again)
	}
	all[1].Capacity = 1 // as another process with its name
	if plan = units.Plan(all); count(plan[0]) != 1 || count(plan[1]) != 1 {
		t.Errorf("with less room: plan %v", plan)
	}
	free := []units.Offer{
		{Capacity: 4, Claims: []units.Claim{{Unit: 1, State: units.Held}, {Unit: lanes[0]}}},
		{Capacity: 4, Claims: []units.Claim{{Unit: lanes[0]}}},
	}
	if plan = units.Plan(free); plan[0][1] || !plan[1][0] {
		t.Errorf("a lane does not go to the process without a stream: plan %v", plan)
	}
}
