package kafkaclient

import "slices"

// Topics names the topics of a stream by role. An empty name is an unused role.
type Topics struct {
	Events, DeadLetters, Checkpoints string
	// Jobs holds the plans of jobs and the checkpoints of their windows.
	Jobs string
	// Attest has the records of the stream's attestation.
	Attest string
}

// Published lists the topics of events and dead letters.
func (t Topics) Published() []string { return named(t.Events, t.DeadLetters) }

// Needed lists the topics that the stream requires.
func (t Topics) Needed() []string { return named(t.Events, t.DeadLetters, t.Checkpoints) }

// All also lists the topics that the first job and the first attestation create.
func (t Topics) All() []string {
	return named(t.Events, t.DeadLetters, t.Checkpoints, t.Jobs, t.Attest)
}

func named(all ...string) []string {
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// Described are a stream's described topics by role, nil where unused or not
// requested.
type Described struct {
	Events, DeadLetters, Checkpoints, Jobs, Attest *Topic
}

// Describe assigns described topics to their roles.
func (t Topics) Describe(found []Topic, err error) (Described, error) {
	var d Described
	for i := range found {
		switch f := &found[i]; f.Name {
		case t.Events:
			d.Events = f
		case t.DeadLetters:
			d.DeadLetters = f
		case t.Checkpoints:
			d.Checkpoints = f
		case t.Jobs:
			d.Jobs = f
		case t.Attest:
			d.Attest = f
		}
	}
	return d, err
}

// Published lists the topics of events and dead letters.
func (d *Described) Published() []*Topic { return present(d.Events, d.DeadLetters) }

// Needed lists the topics that the stream requires.
func (d *Described) Needed() []*Topic {
	return present(d.Events, d.DeadLetters, d.Checkpoints)
}

func present(all ...*Topic) []*Topic {
	return slices.DeleteFunc(all, func(t *Topic) bool { return t == nil })
}
