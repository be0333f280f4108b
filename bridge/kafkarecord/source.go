package kafkarecord

import (
	"cmp"
	"net/url"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// Naming decides the value of ce_source.
type Naming struct {
	// Source, if not empty, is ce_source. Otherwise ce_source consists of the metadata and
	// Resource, or of Stream if there is no metadata.
	Source, Resource, Stream string
}

// Of returns ce_source, a URI reference.
func (n *Naming) Of(id bridge.SourceIdentity) string {
	return cmp.Or(n.Source, n.described(id))
}

// described returns the ce_source of the metadata. Sessions and users belong to a
// workspace, events to an application.
func (n *Naming) described(id bridge.SourceIdentity) string {
	if id.Application == "" && n.Resource != "events" {
		id.Application = id.Workspace
	}
	if id.Organization == "" || id.Application == "" {
		return n.unnamed()
	}
	return "/" + url.PathEscape(id.Organization) + "/" + url.PathEscape(id.Application) + "/" + url.PathEscape(n.Resource)
}

// unnamed returns the ce_source of an export whose owner is unknown.
func (n *Naming) unnamed() string { return "/" + url.PathEscape(n.Stream) }

// sources are the values of ce_source in the records of one source: by the present
// settings, by the metadata, and without metadata.
type sources struct{ current, described, unnamed string }

func (n *Naming) sourcesOf(id bridge.SourceIdentity) sources {
	return sources{n.Of(id), n.described(id), n.unnamed()}
}

// mayHave reports whether a record may come from the source.
func (s *sources) mayHave(r *kgo.Record) bool {
	of, named := headerOf(r, HeaderSource)
	return !named || string(of) == s.current || string(of) == s.described
}

// isOthers reports whether a record names another source. It returns false if the record or
// the stream names none. KAFKA_CE_SOURCE names that of the stream.
func (s *sources) isOthers(r *kgo.Record) bool {
	of, _ := headerOf(r, HeaderSource)
	return (s.described != s.unnamed || s.current != s.unnamed) && string(of) != s.unnamed && !s.mayHave(r)
}
