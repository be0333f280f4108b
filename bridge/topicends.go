package bridge

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"
)

// MaxEnds bounds the partitions whose end offsets a checkpoint holds.
const MaxEnds = 256

// Ends are the end offsets of a topic's partitions, from partition 0 on, as base64 of
// variable-length integers: a few bytes per partition. Empty is unknown.
type Ends string

// EncodeEnds returns the offsets as Ends. More than 256 partitions give unknown Ends,
// because every checkpoint would be too large.
func EncodeEnds(offsets []int64) Ends {
	if len(offsets) > MaxEnds {
		return ""
	}
	b := make([]byte, 0, 4*len(offsets))
	for _, n := range offsets {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return Ends(base64.RawStdEncoding.EncodeToString(b))
}

// Offsets returns the offsets; none if they are unknown or damaged.
func (e Ends) Offsets() (offsets []int64) {
	b, err := base64.RawStdEncoding.DecodeString(string(e))
	if err != nil {
		return nil
	}
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > MaxNumber {
			return nil
		}
		offsets, b = append(offsets, int64(n)), b[size:]
	}
	return offsets
}

// Since is where the reading of published events begins. In each partition that is the
// first record of Time, or the end of the partition in Topics, whichever is first. The
// timestamp of a record is the time of its event, which may be hours before the publish
// time.
type Since struct {
	Time   time.Time
	Topics []TopicState
	// EndsOnly ignores Time. A topic that is not in Topics, or whose Ends are unknown, is
	// read whole. Records that were deleted after the ends are a Permanent Fault.
	EndsOnly bool
	// ByKey matches events by their ItemKey instead of their bytes, so that a changed item is
	// not another event. An event that is Shared must also have the bytes of the record.
	ByKey bool
}

// earlierTopics returns the topics of a and b, each in the earlier of its states.
func earlierTopics(a, b []TopicState) []TopicState {
	all := slices.Clone(a)
	for i := range b {
		switch have := FindTopic(all, b[i].Name); {
		case have == nil:
			all = append(all, b[i])
		case have.Ends == "" || b[i].Ends != "" && have.Same(&b[i]) && b[i].End < have.End:
			*have = b[i]
		}
	}
	return all
}

// AddTopics returns the topics of a, and those of b that a lacks. Their Ends are unknown.
func AddTopics(a, b []TopicState) []TopicState {
	all := slices.Clip(a)
	for _, t := range b {
		if FindTopic(a, t.Name) == nil {
			t.Ends = ""
			all = append(all, t)
		}
	}
	return all
}
