package kafkagroup

import (
	"bytes"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
)

const (
	// nameMark precedes the name of a process at the end of its member's user data. No
	// topic name contains this mark, so the mark is not part of the balancer's data.
	nameMark = "exportbridge.process="
	// maxName bounds a name, in bytes.
	maxName = 128
)

// named is a balancer whose member data has the name of the process. The client id is the
// same for all processes, since quotas depend on it, and the address is often that of a
// node. Members of older versions read the user data up to the mark.
type named struct {
	kgo.GroupBalancer
	name string
}

// JoinGroupMetadata implements kgo.GroupBalancer.
func (b named) JoinGroupMetadata(topics []string, assigned map[string][]int32, generation int32) []byte {
	metadata := b.GroupBalancer.JoinGroupMetadata(topics, assigned, generation)
	var m kmsg.ConsumerMemberMetadata
	if b.name == "" || m.ReadFrom(metadata) != nil {
		return metadata
	}
	m.UserData = append(m.UserData, nameMark+b.name...)
	return m.AppendTo(nil)
}

// processName returns the name in a member's metadata, or "".
func processName(metadata []byte) string {
	var m kmsg.ConsumerMemberMetadata
	if m.ReadFrom(metadata) != nil {
		return ""
	}
	_, name, _ := bytes.Cut(m.UserData, []byte(nameMark))
	return safeName(name)
}

// safeName shortens a name to maxName bytes of UTF-8, without characters that mislead on a
// terminal: any client that may join the group can have written it.
func safeName(name []byte) string {
	return strings.Map(func(r rune) rune {
		if bridge.Misleads(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(name[:min(len(name), maxName)]), ""))
}
