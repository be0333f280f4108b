package kafkagroup_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkagroup"
)

// TestMembersHaveNames: members of this version and of one that knows no names
// balance the stream with each other, whoever leads the group.
func TestMembersHaveNames(t *testing.T) {
	t.Parallel()
	p := newProcesses(t, kafkatest.Brokers(t), staying)
	const old = "" // is of a version without names
	open := func(name, instance string) {
		p.cfg.Process = name
		o := p.open(instance)
		o.Shorten(500 * time.Millisecond)
		begin(t, o)
	}
	balanced := kgo.Balancers(kgo.CooperativeStickyBalancer())
	first := consumer(t, p.cfg, kgo.ConsumeTopics(p.cfg.CheckpointTopic), balanced)
	wantNames(t, &p.cfg, old) // it leads the group
	open("host-1-17", "")
	wantNames(t, &p.cfg, old, "host-1-17")
	open("pod-2", "pod-2")
	wantNames(t, &p.cfg, old, "host-1-17", "pod-2")
	first.Close() // a new member leads
	wantNames(t, &p.cfg, "host-1-17", "pod-2")
	consumer(t, p.cfg, kgo.ConsumeTopics(p.cfg.CheckpointTopic), balanced)
	wantNames(t, &p.cfg, old, "host-1-17", "pod-2")
}

// wantNames waits until the stream's group has these members, of which one owns
// the stream.
func wantNames(t *testing.T, group *kafkagroup.Group, want ...string) {
	t.Helper()
	kafkatest.Eventually(t, "have the members "+strings.Join(want, ", "), func() (bool, error) {
		members, err := group.Members(t.Context())
		var have []string
		owners := 0
		for _, m := range members {
			have = append(have, m.Process)
			if m.Owner {
				owners++
			}
			if m.Process != "" && !strings.HasPrefix(m.String(), m.Process+" at ") {
				t.Errorf("%+v is shown as %q", m, m.String())
			}
		}
		slices.Sort(have)
		return slices.Equal(have, want) && owners == 1, err
	})
}

// TestNameInMetadata: what a member says otherwise is as without a name.
func TestNameInMetadata(t *testing.T) {
	t.Parallel()
	for _, plain := range []kgo.GroupBalancer{kgo.CooperativeStickyBalancer(), kgo.StickyBalancer(), kgo.RangeBalancer()} {
		join := func(b kgo.GroupBalancer) (m kmsg.ConsumerMemberMetadata) {
			t.Helper()
			must.Do(t, m.ReadFrom(b.JoinGroupMetadata([]string{"checkpoints"}, map[string][]int32{"checkpoints": {3, 4}}, 7)))
			return m
		}
		with, without := join(kafkagroup.Named(plain, "pod-2")), join(plain)
		if name := kafkagroup.ProcessName(with.AppendTo(nil)); name != "pod-2" {
			t.Errorf("%s: name %q", plain.ProtocolName(), name)
		}
		if name := kafkagroup.ProcessName(without.AppendTo(nil)); name != "" {
			t.Errorf("%s: name %q where none is", plain.ProtocolName(), name)
		}
		var read, want kmsg.StickyMemberMetadata
		if err := read.ReadFrom(with.UserData); err != nil && without.UserData != nil {
			t.Errorf("%s: the balancer's own data: %v", plain.ProtocolName(), err)
		}
		if err := want.ReadFrom(without.UserData); err == nil && !reflect.DeepEqual(read, want) {
			t.Errorf("%s: the balancer's own data are %+v, want %+v", plain.ProtocolName(), read, want)
		}
		with.UserData, without.UserData = nil, nil
		if !reflect.DeepEqual(with, without) {
			t.Errorf("%s: %+v, want %+v", plain.ProtocolName(), with, without)
		}
		if unnamed := join(kafkagroup.Named(plain, "")); !reflect.DeepEqual(unnamed, join(plain)) {
			t.Errorf("%s: without a name %+v", plain.ProtocolName(), unnamed)
		}
	}
}

// TestNameOfAnybody: whoever may join the group may say anything.
func TestNameOfAnybody(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"pod-2":                       "pod-2",
		"":                            "",
		"pod\x1b[2J\r\n-2":            "pod[2J-2",
		"\u202epod\u2028-2":           "pod-2",
		"pod\xff-2\xc3":               "pod-2",
		"Zoë's laptop":                "Zoë's laptop",
		strings.Repeat("x", 1<<20):    strings.Repeat("x", 128),
		strings.Repeat("é", 100):      strings.Repeat("é", 64),
		"x" + strings.Repeat("é", 99): "x" + strings.Repeat("é", 63),
	} {
		m := kmsg.NewConsumerMemberMetadata()
		m.UserData = []byte("\x00\x00exportbridge.process=" + said)
		got := kafkagroup.ProcessName(m.AppendTo(nil))
		if got != want || !utf8.ValidString(got) || strings.ContainsFunc(got, bridge.Misleads) {
			t.Errorf("%.40q is shown as %q, want %q", said, got, want)
		}
	}
	for _, broken := range []string{"", "x", "exportbridge.process=pod-2", "\x00\x01\xff\xff\xff\xff"} {
		if got := kafkagroup.ProcessName([]byte(broken)); got != "" {
			t.Errorf("%q has the name %q", broken, got)
		}
	}
}
