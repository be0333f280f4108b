package bridge

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// TopicState identifies a topic of a Sink and its extent at some time. Its size is
// bounded, so that every checkpoint can hold it. Offsets only grow: a smaller end of the
// topic or of a partition reveals a truncated log, another ID a recreated topic.
type TopicState struct {
	Name string `json:"name"`
	// ID is the topic id from the server. It changes when the topic is recreated. It is
	// empty if the server has no topic ids.
	ID string `json:"id,omitempty"`
	// DeadLetters is true for the dead-letter topic.
	DeadLetters bool `json:"letters,omitempty"`
	// Former is true for a topic of events or dead letters to which the stream no longer
	// publishes. The topic may have been deleted.
	Former bool `json:"former,omitempty"`
	// Partitions is the number of partitions. GrewFrom is the number before GrewAt, in
	// milliseconds since the epoch, across which the order per key does not hold. GrewAt is
	// 0 if partitions were never added.
	Partitions int   `json:"partitions"`
	GrewFrom   int   `json:"grew_from,omitempty"`
	GrewAt     int64 `json:"grew_at,omitempty"`
	// End is a lower bound of the sum of the partitions' end offsets. Start is the sum of
	// their start offsets. KeepsAll is true if retention is unlimited: only then must Start
	// not rise.
	End      int64 `json:"end"`
	Start    int64 `json:"start,omitempty"`
	KeepsAll bool  `json:"keeps_all,omitempty"`
	// Ends are lower bounds of the partitions' end offsets.
	Ends Ends `json:"ends,omitempty"`
	// Lost is the number of offsets that the end of the log has lost, until an operator accepts
	// the loss: other writers may fill the log up again. Older versions drop it.
	Lost int64 `json:"lost,omitempty"`
}

// CodeTopicLost is the Code of the Fault that TopicsLost returns.
const CodeTopicLost = "topic_lost"

// Implies reports whether, according to c, the topic has or had records of the stream.
// letters is true for a dead-letter topic.
func (c *Checkpoint) Implies(topic string, letters bool) bool {
	if t := FindTopic(c.Topics, topic); t != nil {
		return !t.Former && (t.End > 0 || !letters && c.Events > 0)
	}
	// A checkpoint of an older version has only the number of events.
	return len(c.Topics) == 0 && !letters && c.Events > 0 && (c.Topic == "" || c.Topic == topic)
}

// FindTopic returns the topic of that name in all, or nil.
func FindTopic(all []TopicState, name string) *TopicState {
	i := slices.IndexFunc(all, func(t TopicState) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// TopicsLost compares the topics found with those in c: same id, at least the same ends,
// and the same start unless retention deletes. A checkpoint of an older version only
// implies that the topic is not empty. TopicsLost returns nil, or a Fault that describes
// the loss.
func TopicsLost(c Checkpoint, found []TopicState) *Fault {
	for i := range found {
		t := &found[i]
		loss := ""
		switch was := FindTopic(c.Topics, t.Name); {
		case was != nil && c.Implies(t.Name, t.DeadLetters):
			loss = was.lossIn(t)
		case was == nil && c.Implies(t.Name, t.DeadLetters) && t.End == 0 && c.Events > deadLetterCount(found):
			loss = "has always been empty"
		}
		if loss == "" {
			continue
		}
		what := "records"
		switch {
		case t.DeadLetters:
			what = "dead letters"
		case c.Events > 0:
			what = fmt.Sprintf("%d events", c.Events)
		}
		return TopicFault("topic %s %s, but checkpoint %s records %s in it: some or all are lost",
			t.Name, loss, c.Version, what)
	}
	return nil
}

// TopicFault returns the fault of a stream whose topic lost events or was recreated. It is
// retried, because a broker that lags behind may briefly show a loss.
func TopicFault(format string, args ...any) *Fault {
	f := BlockHintf(CodeTopicLost, ReasonTopic, HintTopicLost, format, args...)
	f.Class = Malformed
	return f
}

// TopicRecreated returns a Fault if the topic with a name has another id than in known,
// otherwise nil.
func TopicRecreated(known []TopicState, name, id string) *Fault {
	was := FindTopic(known, name)
	if was == nil || was.Same(&TopicState{ID: id}) {
		return nil
	}
	return TopicFault("topic %s was deleted and recreated (id %s, previously %s), and the stream has not accepted it",
		name, id, was.ID)
}

// CutOffError means that a record was acknowledged below the topic's known end: the end of
// the log is lost.
type CutOffError struct {
	Topic string
	// Offsets is the minimum number of lost offsets.
	Offsets int64
}

func (e *CutOffError) Error() string {
	return fmt.Sprintf("topic %s was recreated or lost %d offsets", e.Topic, e.Offsets)
}

// deadLetterCount returns the maximum number of dead letters.
func deadLetterCount(found []TopicState) (n int64) {
	for i := range found {
		if found[i].DeadLetters {
			n += found[i].End
		}
	}
	return n
}

// Same reports whether found is the topic t. It returns true if an id is unknown.
func (t *TopicState) Same(found *TopicState) bool {
	return t.ID == "" || found.ID == "" || t.ID == found.ID
}

// lossIn describes what the topic found has lost since t, or returns "". Operators delete
// dead letters that they have handled, which is no loss.
func (t *TopicState) lossIn(found *TopicState) string {
	partition, cut := t.cutIn(found)
	switch {
	case !t.Same(found):
		return fmt.Sprintf("was deleted and recreated (id %s, previously %s)", found.ID, t.ID)
	case t.Lost > 0:
		return fmt.Sprintf("lost %d offsets at its end", t.Lost)
	case found.End < t.End:
		return fmt.Sprintf("ends %d offsets before its previous end", t.End-found.End)
	case cut > 0:
		return fmt.Sprintf("ends %d offsets before its previous end in partition %d", cut, partition)
	case t.KeepsAll && found.KeepsAll && found.Start > t.Start && !t.DeadLetters:
		return fmt.Sprintf("starts %d offsets later than before, although its retention is unlimited",
			found.Start-t.Start)
	}
	return ""
}

// cutIn returns a partition of found that ends before its end in t, and by how many offsets:
// the other partitions may have grown by more. cut is 0 if there is none, or if the ends are
// unknown.
func (t *TopicState) cutIn(found *TopicState) (partition int, cut int64) {
	was, now := t.Ends.Offsets(), found.Ends.Offsets()
	for i := range min(len(was), len(now)) {
		if now[i] < was[i] {
			return i, was[i] - now[i]
		}
	}
	return 0, 0
}

// WithLoss returns the topics in was, with what the topics found have lost of their ends. It
// returns nil if was records that already.
func WithLoss(was, found []TopicState) []TopicState {
	topics, news := slices.Clone(was), false
	for i := range topics {
		t := &topics[i]
		now := FindTopic(found, t.Name)
		if now == nil || t.Former || !t.Same(now) {
			continue
		}
		_, lost := t.cutIn(now)
		if now.Partitions >= t.Partitions || now.ID == "" { // else a broker that lags behind knows fewer
			lost = max(lost, t.End-now.End)
		}
		if lost > t.Lost {
			t.Lost, news = lost, true
		}
	}
	if !news {
		return nil
	}
	return topics
}

// CarryOver returns the topics found, merged with their earlier state, and the event
// topics with added partitions.
func CarryOver(was, found []TopicState) (next, grown []TopicState) {
	next = slices.Clone(found)
	for i := range next {
		t := &next[i]
		old := FindTopic(was, t.Name)
		if old == nil || !old.Same(t) {
			continue
		}
		t.End = max(t.End, old.End)
		if t.GrewFrom, t.GrewAt = old.GrewFrom, old.GrewAt; t.Partitions <= old.Partitions {
			t.Partitions = old.Partitions // a broker that lags behind may know fewer
			continue
		}
		if t.DeadLetters {
			continue // the order of dead letters does not matter
		}
		t.GrewFrom, t.GrewAt = old.Partitions, time.Now().UnixMilli()
		grown = append(grown, *t)
	}
	return WithFormer(was, next), grown
}

// maxFormer bounds the number of former topics, because every checkpoint names them.
const maxFormer = 32

// WithFormer returns the topics found, and the topics in was that are not among them.
func WithFormer(was, found []TopicState) []TopicState {
	all := slices.Clip(found)
	for i := range was {
		if t := was[i]; FindTopic(found, t.Name) == nil && len(all) < len(found)+maxFormer {
			t.Former = true
			all = append(all, t)
		}
	}
	return all
}

// Refound returns the topics in was, as they were found. None is added, and none becomes Former.
func Refound(was, found []TopicState) []TopicState {
	known := slices.Clone(was)
	for i := range known {
		if now := FindTopic(found, known[i].Name); now != nil {
			known[i] = *now
			known[i].Former = was[i].Former
		}
	}
	return known
}

// AsFound returns the known topics with the extent of the topics found. It accepts missing
// records, but not a recreated topic.
func AsFound(known, found []TopicState) []TopicState {
	known = slices.Clone(known)
	for i := range known {
		t := &known[i]
		if now := FindTopic(found, t.Name); now != nil && t.Same(now) {
			if _, cut := t.cutIn(now); cut > 0 || now.End < t.End {
				t.Ends = "" // it is unknown which partitions lost records
			}
			t.End, t.Start, t.KeepsAll, t.Lost = min(t.End, now.End), now.Start, now.KeepsAll, 0
		}
	}
	return known
}

// GrownText describes the topics with added partitions, or returns "".
func GrownText(topics []TopicState) string {
	var all []string
	for i := range topics {
		if t := &topics[i]; t.GrewFrom > 0 {
			all = append(all, fmt.Sprintf("topic %s has %d partitions; it had %d until %s: "+
				"the order per key does not hold across that time",
				t.Name, t.Partitions, t.GrewFrom, time.UnixMilli(t.GrewAt).UTC().Format(time.RFC3339)))
		}
	}
	return strings.Join(all, "; ")
}
