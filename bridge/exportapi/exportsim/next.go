package exportsim

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// header returns the headers of a page that have the cursor or the links.
func (p *pages) header(q query, cursor string, named bool) http.Header {
	f := &p.form
	switch {
	case f.CursorIn == inHeader && named:
		return http.Header{http.CanonicalHeaderKey(f.CursorField): {cursor}}
	case f.CursorIn != inLink:
		return nil
	}
	var links []string
	for _, relation := range f.Links {
		target := ""
		switch {
		case relation == "self":
			target = p.urlOf(q, q.resource.path, q.raw)
		case relation == "first":
			target = p.url(q, "")
		case named:
			target = p.url(q, cursor)
		}
		if target != "" {
			links = append(links, "<"+target+`>; rel="`+relation+`"`)
		}
	}
	if !f.LinkLines && len(links) > 0 {
		links = []string{strings.Join(links, ", ")}
	}
	return http.Header{"Link": links}
}

// url returns the URL of the page at a cursor, or of the first page: the request with
// another cursor. The same cursor gives the same URL.
func (p *pages) url(q query, cursor string) string {
	f := &p.form
	raw := q.raw
	if cursor == "" || cursor != q.cursor {
		values := maps.Clone(q.values)
		values.Del(f.CursorParam)
		if cursor != "" {
			values.Set(f.CursorParam, cursor)
		}
		raw = values.Encode()
	}
	return p.urlOf(q, cmp.Or(f.NextPath, q.resource.path), raw)
}

func (p *pages) urlOf(q query, path, raw string) string {
	u := url.URL{Path: p.config.BasePath + path, RawQuery: raw}
	if p.form.RelativeNext {
		return u.String()
	}
	return q.host + u.String()
}

func hostOf(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// member is a value in the page, and appends itself.
type member struct {
	at     []string // names from the top
	append func(to []byte) []byte
}

// pointer splits the name of a member or a JSON pointer into names.
func pointer(field string) []string {
	return strings.Split(strings.TrimPrefix(field, "/"), "/")
}

// appendObject appends an object that has the members at their places.
func appendObject(to []byte, members []member) []byte {
	to = append(to, '{')
	done := map[string]bool{}
	for _, m := range members {
		name := m.at[0]
		if done[name] {
			continue
		}
		if len(done) > 0 {
			to = append(to, ',')
		}
		done[name] = true
		to = append(append(append(to, '"'), name...), `":`...)
		if len(m.at) == 1 {
			to = m.append(to)
			continue
		}
		var below []member
		for _, other := range members {
			if other.at[0] == name {
				below = append(below, member{other.at[1:], other.append})
			}
		}
		to = appendObject(to, below)
	}
	return append(to, '}')
}
