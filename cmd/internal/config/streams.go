package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkagroup"
)

var streamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// streamNames returns the valid names. It rejects names that differ only in - and _, because
// they would share their variables.
func (l *loader) streamNames(names []string) []string {
	var good []string
	prefixes := make(map[string]string)
	for _, name := range names {
		twin, taken := prefixes[streamPrefix(name)]
		switch {
		case !streamName.MatchString(name):
			l.addStream(name, "%q is not a name of a-z, 0-9, _ and -, at most 63 long; commas are between names, "+
				"for example events,users", name)
		case taken && twin == name:
			l.addStream(name, "%q is listed twice, for example events,users", name)
		case taken:
			l.addStream(name, "%q and %q would share their variables %s..., rename one", twin, name, streamPrefix(name))
		default:
			prefixes[streamPrefix(name)] = name
			good = append(good, name)
		}
	}
	return good
}

// addStream records a problem of a stream, at its name in the file that BRIDGE_CONFIG names
// or else of BRIDGE_STREAMS.
func (l *loader) addStream(name, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if at := l.src.config.stream(name); at.Line > 0 {
		l.addAt(at, "", message)
		return
	}
	l.add("BRIDGE_STREAMS", "BRIDGE_STREAMS: "+message)
}

// checkTwins rejects two streams that would publish the same events to one topic. Routes of
// the two are not compared: a topic of both is rejected, whichever events they send to it.
func (l *loader) checkTwins(streams []Stream, need Uses) {
	if need&(UsesExport|UsesKafka|WithoutKey) != UsesExport|UsesKafka { // the key is a part of the source
		return
	}
	at := make([]struct{ host, path string }, len(streams)) // each once: thousands of streams are millions of pairs
	for i := range streams {
		at[i].host, at[i].path = streams[i].Export.Address()
		for j := range streams[:i] {
			a, b := &streams[j], &streams[i]
			if at[i].path != at[j].path || !a.sameSource(b, at[i].host == at[j].host) {
				continue
			}
			if a.Kafka.Topic == b.Kafka.Topic {
				l.addStream(b.Name, "streams %s and %s have the same source and topic, remove one or set %sKAFKA_TOPIC",
					a.Name, b.Name, streamPrefix(b.Name))
				continue
			}
			of, others := a.Kafka.Topics(), b.Kafka.Topics()
			if i := slices.IndexFunc(of.OfEvents(), others.HasEvents); i >= 0 {
				l.addStream(b.Name, "streams %s and %s have the same source, and both publish to topic %s, remove one or "+
					"set %sKAFKA_ROUTES", a.Name, b.Name, of.OfEvents()[i], streamPrefix(b.Name))
			}
		}
	}
}

// checkFleet rejects more streams than a process can have in its group.
func (l *loader) checkFleet(streams []Stream, need Uses) {
	if need&UsesKafka == 0 || len(streams) == 0 || streams[0].Kafka.OwnedBy != kafkagroup.OwnedByGroup {
		return
	}
	var p bridge.Problems
	p.Add(streams[0].Kafka.CheckStreams(len(streams)))
	l.check(map[string]bridge.Problems{"": p})
}

// sameSource compares all of two sources but their addresses.
func (st *Stream) sameSource(other *Stream, sameHost bool) bool {
	a, b := st.Export, other.Export
	sameHost = sameHost || a.Source != "" && a.Source == b.Source // which stands for the host alone
	return sameHost && a.Resource == b.Resource && a.APIKey == b.APIKey &&
		a.User == b.User && a.OAuth2ClientID == b.OAuth2ClientID && a.OAuth2TokenURL == b.OAuth2TokenURL &&
		slices.Equal(a.OAuth2Params, b.OAuth2Params) &&
		a.TLSCert == b.TLSCert && a.Headers == b.Headers && a.Params == b.Params &&
		slices.Equal(slices.Sorted(slices.Values(a.Events)), slices.Sorted(slices.Values(b.Events)))
}

// Owner returns the name of this process in checkpoints and answers.
func (p *Process) Owner() string {
	if p.InstanceID != "" {
		return p.InstanceID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "exportbridge"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
