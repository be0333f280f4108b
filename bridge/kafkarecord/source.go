package kafkarecord

import (
	"cmp"
	"net/url"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// Naming says what ce_source is.
type Naming struct {
	// Source, if not empty, is ce_source. Otherwise ce_source is made of the metadata and
	// Resource, or of Stream if there is no metadata.
	Source, Resource, Stream string
}

// Of returns ce_source, a URI reference.
func (n *Naming) Of(id bridge.SourceIdentity) string {
	return cmp.Or(n.Source, n.described(id))
}

// described returns ce_source by the metadata. Sessions and users belong to a workspace,
// events to an application.
func (n *Naming) described(id bridge.SourceIdentity) string {
	if id.Application == "" && n.Resource != "events" {
		id.Application = id.Workspace
	}
	if id.Organization == "" || id.Application == "" {
		return n.unnamed()
	}
	return "/" + url.PathEscape(id.Organization) + "/" + url.PathEscape(id.Application) + "/" + url.PathEscape(n.Resource)
}

// unnamed returns ce_source for an export whose owner is unknown.
func (n *Naming) unnamed() string { return "/" + url.PathEscape(n.Stream) }

// sources are the values of ce_source in the records of one source: with the present
// settings, without KAFKA_CE_SOURCE, and without metadata.
type sources struct{ current, described, unnamed string }

func (n *Naming) sourcesOf(id bridge.SourceIdentity) sources {
	return sources{n.Of(id), n.described(id), n.unnamed()}
}

// mayHave reports whether a record may be of the source.
func (s *sources) mayHave(r *kgo.Record) bool {
	of, named := headerOf(r, HeaderSource)
	return !named || string(of) == s.current || string(of) == s.described
}

// isOthers reports whether a record names another source. It is false if the record or the
// stream names none. KAFKA_CE_SOURCE names the stream's.
func (s *sources) isOthers(r *kgo.Record) bool {
	of, _ := headerOf(r, HeaderSource)
	return (s.described != s.unnamed || s.current != s.unnamed) && string(of) != s.unnamed && !s.mayHave(r)
}
