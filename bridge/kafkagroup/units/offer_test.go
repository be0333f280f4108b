package units_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge/kafkagroup/units"
)

func byUnit(a, b units.Claim) int { return cmp.Compare(a.Unit, b.Unit) }

func offer() units.Offer {
	o := units.Offer{Generation: 7, Flags: 1, Process: "pod-2", Program: "1.2.3", Capacity: 3, Load: 400}
	for i := range 9 {
		o.Claims = append(o.Claims, units.Claim{Unit: units.Stream(fmt.Sprint("s", i)), State: units.State(i % 4)})
	}
	slices.SortFunc(o.Claims, byUnit)
	return o
}

// TestStreamIsPublished: the hash is part of the format, which two versions share.
func TestStreamIsPublished(t *testing.T) {
	t.Parallel()
	if got := units.Stream("events"); got != 0x262eb273d7 {
		t.Errorf("the unit of stream events is %#x", uint64(got))
	}
}

func TestOfferIsReadBack(t *testing.T) {
	t.Parallel()
	for _, want := range []units.Offer{offer(), {Generation: -1}, {Claims: []units.Claim{}, Process: "x"}} {
		got, err := units.DecodeOffer(want.Append(nil))
		if want.Claims == nil {
			want.Claims = []units.Claim{}
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("read back %+v, %v; want %+v", got, err, want)
		}
	}
	long := units.Offer{Process: strings.Repeat("x", 1000)}
	if got, err := units.DecodeOffer(long.Append(nil)); err != nil || len(got.Process) != 128 {
		t.Errorf("a long name is read as %d bytes, %v", len(got.Process), err)
	}
}

// TestOfferOfALaterVersion: a version, classes and bytes that this version does not
// know are no mistake.
func TestOfferOfALaterVersion(t *testing.T) {
	t.Parallel()
	want := offer()
	encoded := want.Append(nil)
	encoded[3]++                                 // the version
	at := bytes.LastIndexByte(encoded[:40], 's') // the only class
	head, streams := encoded[:at-1], encoded[at:]
	later := slices.Concat(head, []byte{2, 'z', 3, 'x', 'y', 'z'}, streams, []byte("more"))
	got, err := units.DecodeOffer(later)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	none, err := units.DecodeOffer(slices.Concat(head, []byte{0}))
	if err != nil || none.Claims != nil {
		t.Errorf("without a class of streams: %+v, %v", none, err)
	}
}

func TestForeignData(t *testing.T) {
	t.Parallel()
	for _, foreign := range []string{"", "x", "\x00\x00\x00\x01\x00\x06events"} {
		if _, err := units.DecodeOffer([]byte(foreign)); !errors.Is(err, units.ErrForeign) {
			t.Errorf("offer %q: %v", foreign, err)
		}
		if _, err := units.DecodeAssignment([]byte(foreign)); !errors.Is(err, units.ErrForeign) {
			t.Errorf("assignment %q: %v", foreign, err)
		}
	}
	o := offer()
	for n := range o.Append(nil)[4:] {
		if got, err := units.DecodeOffer(o.Append(nil)[:4+n]); err == nil {
			t.Errorf("an offer cut to %d bytes is %+v", 4+n, got)
		}
	}
}

func TestAssignmentIsReadBack(t *testing.T) {
	t.Parallel()
	o := offer()
	want := units.Answer(o.Append(nil), &o, []bool{true, false, true, true, false, false, false, false, true})
	want.Generation, want.Planned = 1<<30, 1_800_000_000
	got, err := units.DecodeAssignment(append(want.Append(nil), "later"...))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read back %+v, %v; want %+v", got, err, want)
	}
	const since2 = 4 + 5 // the bytes of Generation and Planned, which the first version did not write
	encoded := want.Append(nil)
	want.Generation, want.Planned = 0, 0
	if got, err = units.DecodeAssignment(encoded[:len(encoded)-since2]); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("of an earlier leader: %+v, %v; want %+v", got, err, want)
	}
}

// FuzzOffer: whoever may join the group can write anything. What is read is a valid
// offer, and no larger than what was written.
func FuzzOffer(f *testing.F) {
	o := offer()
	f.Add(o.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := units.DecodeOffer(b)
		if err != nil {
			return
		}
		if len(o.Claims) > len(b) || !slices.IsSortedFunc(o.Claims, byUnit) {
			t.Fatalf("read %+v", o)
		}
		again, err := units.DecodeOffer(o.Append(nil))
		if o.Claims == nil {
			o.Claims = []units.Claim{}
		}
		if err != nil || !reflect.DeepEqual(again, o) {
			t.Fatalf("read %+v, then %+v, %v", o, again, err)
		}
		units.Plan([]units.Offer{o, o})
	})
}

func FuzzAssignment(f *testing.F) {
	o := offer()
	a := units.Answer(o.Append(nil), &o, make([]bool, len(o.Claims)))
	f.Add(a.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := units.DecodeAssignment(b)
		if err != nil {
			return
		}
		var m units.Member
		m.Add(units.Stream("events"))
		m.Offer()
		m.Apply(a, 1)
		again, err := units.DecodeAssignment(a.Append(nil))
		if err != nil || !slices.Equal(again.Given, a.Given) || again.List != a.List {
			t.Fatalf("read %+v, then %+v, %v", a, again, err)
		}
	})
}
