package kafkaclient

import "slices"

// Topics names the topics of a stream by role. An empty name is an unused role.
type Topics struct {
	// Events is the topic of the events without a route, Routed are those of routes.
	Events string
	Routed []string

	DeadLetters, Checkpoints string
	// Jobs holds the plans of jobs and the checkpoints of their windows.
	Jobs string
	// Attest has the records of the stream's attestation.
	Attest string
	// Keys has the keys of encrypted values.
	Keys string
}

// DeadTopic is the default dead-letter topic of a topic.
func DeadTopic(topic string) string { return "dlq." + topic }

// OfEvents lists the topics of events, Events first.
func (t *Topics) OfEvents() []string { return named(append([]string{t.Events}, t.Routed...)...) }

// HasEvents reports whether a topic is one of events.
func (t *Topics) HasEvents(topic string) bool {
	return topic == t.Events || slices.Contains(t.Routed, topic)
}

// Published lists the topics of events and dead letters.
func (t *Topics) Published() []string { return append(t.OfEvents(), named(t.DeadLetters)...) }

// Needed lists the topics that the stream requires.
func (t *Topics) Needed() []string { return append(t.Published(), named(t.Checkpoints)...) }

// Own lists the topics of Needed, and the topic of keys.
func (t *Topics) Own() []string { return append(t.Needed(), named(t.Keys)...) }

// All returns the topics of Own, and those that the first job and the first attestation create.
func (t *Topics) All() []string { return append(t.Own(), named(t.Jobs, t.Attest)...) }

func named(all ...string) []string {
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// Described are a stream's described topics by role, nil where unused or not
// requested. Routed is in the order of Topics.Routed.
type Described struct {
	Events                                       *Topic
	Routed                                       []*Topic
	DeadLetters, Checkpoints, Jobs, Attest, Keys *Topic
}

// Describe assigns described topics to their roles.
func (t *Topics) Describe(found []Topic, err error) (Described, error) {
	of := func(name string) *Topic {
		i := slices.IndexFunc(found, func(f Topic) bool { return f.Name == name })
		if name == "" || i < 0 {
			return nil
		}
		return &found[i]
	}
	d := Described{
		Events: of(t.Events), DeadLetters: of(t.DeadLetters), Checkpoints: of(t.Checkpoints), Jobs: of(t.Jobs),
		Attest: of(t.Attest), Keys: of(t.Keys),
	}
	for _, name := range t.Routed {
		d.Routed = append(d.Routed, of(name))
	}
	return d, err
}

// OfEvents lists the topics of events, Events first.
func (d *Described) OfEvents() []*Topic { return present(append([]*Topic{d.Events}, d.Routed...)...) }

// Published lists the topics of events and dead letters.
func (d *Described) Published() []*Topic { return append(d.OfEvents(), present(d.DeadLetters)...) }

// Needed returns the topics that the stream requires.
func (d *Described) Needed() []*Topic { return append(d.Published(), present(d.Checkpoints)...) }

// Recreated returns the topic of events that has another id in now, or nil.
func (d *Described) Recreated(now *Described) *Topic {
	for _, t := range d.OfEvents() {
		if !slices.ContainsFunc(now.OfEvents(), func(n *Topic) bool { return n.ID == t.ID && n.Name == t.Name }) {
			return t
		}
	}
	return nil
}

func present(all ...*Topic) []*Topic {
	return slices.DeleteFunc(all, func(t *Topic) bool { return t == nil })
}
