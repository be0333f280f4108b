package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"hash"
	"unicode/utf8"

	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/internal/spare"
	"exportbridge/bridge/seal"
)

// ErrUncertain means that a rule may not have found what it is for: a member occurs twice,
// a name or text does not decode exactly, or a value is of another kind than expected.
var ErrUncertain = errors.New("a rule cannot be applied with certainty")

// Redactor applies rules to items. One goroutine at a time may use it, but for Identify.
type Redactor struct {
	*Rules
	scan       scan.Scanner
	hashes     *hashes
	identities spare.List[hash.Hash]
	scratch    []byte // the memory of a text

	// The item that Apply works on: out has what precedes done.
	out  []byte
	done int

	// Key is that of the subject of the next item, nil without a subject. Known are the extents
	// of the next item. Replaced is set if a constant took the place of a value of the last item.
	Key      *seal.Key
	Known    scan.Known
	Replaced bool
	found    []byte // the subject
	// hashed are its hashed texts. another is set if other kinds of values were hashed.
	hashed  []Hashed
	another bool
}

// Hashed is a text without escapes at At in an item, whose hash is out[From:To].
type Hashed struct{ At, From, To int }

// Hashed returns the texts that the last Apply hashed, valid until the next one. ok is false
// if it also hashed a text with escapes, a number or a boolean.
func (r *Redactor) Hashed() (texts []Hashed, ok bool) { return r.hashed, !r.another }

// NewRedactor returns a Redactor for rules.
func NewRedactor(r *Rules) *Redactor {
	return &Redactor{Rules: r, hashes: newHashes(r.hashKey)}
}

// Apply appends an item without its private data. The item is valid JSON. On an error,
// which is ErrUncertain, dst is returned as it was.
func (r *Redactor) Apply(dst, item []byte) ([]byte, error) {
	r.hashed, r.another = r.hashed[:0], false
	if len(r.all) == 0 {
		return append(dst, item...), nil
	}
	defer func() { r.out = nil }()
	r.out, r.done, r.Replaced = dst, 0, false
	if !r.walk(item, r.root) {
		return dst, ErrUncertain
	}
	return append(r.out, item[r.done:]...), nil
}

// Subject returns the text of the subject of an item, valid until the next call. It is nil if
// the item has none, or not for certain. The item is valid JSON.
func (r *Redactor) Subject(item []byte) []byte {
	if r.found = nil; !r.walk(item, r.subject) {
		return nil
	}
	return r.found
}

// walk applies the rules on the members of an item. It reports whether that is certain.
func (r *Redactor) walk(item []byte, n *node) bool {
	r.scan.Know(item, r.Known)
	r.Known = scan.Known{} // another item has others
	defer r.scan.Reset(nil)
	i := scan.SkipSpace(item, 0)
	if r.scan.KindAt(i) != scan.Object {
		return false
	}
	_, ok := r.object(i, n)
	return ok
}

// object applies the rules on the members of the object at i.
func (r *Redactor) object(i int, n *node) (end int, ok bool) {
	i, step := r.scan.Open(i)
	first, before := i, i // the first member, and the end of the member before
	var seen uint64       // the children of n
	kept := false         // a member, so far
	for step == scan.More {
		start := i
		var of *node
		end, run := r.scan.SkipRun(i)
		if !run {
			if of, i, ok = r.name(i, n, &seen); !ok {
				return i, false
			}
		}
		drops := of != nil && of.action == drop
		if !drops && !kept {
			r.cut(first, start)
			kept = true
		}
		switch {
		case run:
			i, ok = end, true
		case of == nil || drops:
			i, ok = r.scan.Skip(i)
		default:
			i, ok = r.value(i, of)
		}
		if !ok {
			return i, false
		}
		if drops && kept {
			r.cut(before, i) // with the comma before it
		}
		before = i
		i, step = r.scan.Next(i, '}')
	}
	if !kept {
		r.cut(first, before)
	}
	return i, step == scan.Ended
}

// name reads the name of a member, and moves to its value. It returns the child of n with this
// name, nil if there is none. It is not ok if the object has had the child before.
func (r *Redactor) name(i int, n *node, seen *uint64) (of *node, value int, ok bool) {
	name, i, ok := r.scan.Name(i)
	if !ok {
		return nil, i, false
	}
	at, ok := n.find(name)
	if !ok || at >= 0 && *seen>>at&1 != 0 {
		return nil, i, false
	}
	if at >= 0 {
		*seen |= 1 << at
		of = n.children[at]
	}
	i, ok = scan.SkipColon(r.scan.Body, i)
	return of, i, ok
}

// value applies the rules on a value that is kept.
func (r *Redactor) value(i int, n *node) (end int, ok bool) {
	if n.action != descend {
		return r.replace(i, n)
	}
	switch kind := r.scan.KindAt(i); {
	case kind == scan.Object && n.each == nil:
		return r.object(i, n)
	case kind == scan.Array && n.each != nil:
		i, step := r.scan.Open(i)
		for step == scan.More {
			if i, ok = r.value(i, n.each); !ok {
				return i, false
			}
			i, step = r.scan.Next(i, ']')
		}
		return i, step == scan.Ended
	}
	v, end, ok := r.scan.Read(i)
	return end, ok && isEmpty(v)
}

// isEmpty reports whether a value of an unexpected kind has nothing in it. Some programs
// write objects without members so.
func isEmpty(v scan.Value) bool {
	switch v.Kind {
	case scan.Null:
		return true
	case scan.String:
		return len(v.Raw) == 0
	case scan.Array, scan.Object:
		inside := scan.SkipSpace(v.Raw, 1)
		return inside == len(v.Raw)-1
	}
	return false
}

// replace replaces a value by its hash, or masks it. Null and an empty string stay.
func (r *Redactor) replace(i int, n *node) (end int, ok bool) {
	v, end, ok := r.scan.Read(i)
	switch {
	case !ok:
		return end, false
	case v.Kind == scan.Null, v.Kind == scan.String && len(v.Raw) == 0:
		return end, true
	case n.action == encrypted:
		if r.Key == nil {
			return end, false
		}
		r.Replaced = r.Replaced || !r.Key.Sealed()
		r.cut(i, end)
		r.out = r.Key.Append(r.out, n.pointer, r.scan.Body[i:end])
		return end, true
	case v.Kind == scan.Object, v.Kind == scan.Array, v.Kind == scan.Boolean && n.action != hashed:
		return end, false
	}
	text := v.Raw
	if v.Kind == scan.Escaped {
		if text, ok = scan.AppendUnescaped(r.scratch[:0], v.Raw); !ok {
			return end, false
		}
		r.scratch = text[:0]
	}
	if n.action == named {
		r.found = text
		return end, true
	}
	r.cut(i, end)
	r.out = append(r.out, '"')
	if n.action == hashed {
		from := len(r.out)
		r.out = r.hashes.append(r.out, text)
		r.hashed = append(r.hashed, Hashed{i + 1, from, len(r.out)})
		r.another = r.another || v.Kind != scan.String
	} else {
		r.out = appendMasked(r.out, text, n.keep)
	}
	r.out = append(r.out, '"')
	return end, true
}

// cut leaves out a part of the item, which comes after all that was cut before.
func (r *Redactor) cut(from, to int) {
	if from < to {
		r.out = append(r.out, r.scan.Body[r.done:from]...)
		r.done = to
	}
}

// asterisks are appended together: most texts need no more.
const asterisks = "****************************************************************"

// appendMasked appends a text inside a JSON string, with an asterisk for each character but
// the last ones: keep, at most half.
func appendMasked(to, text []byte, keep int) []byte {
	all := utf8.RuneCount(text)
	keep = min(keep, all/2)
	for hidden := all - keep; hidden > 0; hidden -= len(asterisks) {
		to = append(to, asterisks[:min(hidden, len(asterisks))]...)
	}
	shown := len(text)
	for keep > 0 {
		if shown--; utf8.RuneStart(text[shown]) {
			keep--
		}
	}
	for _, c := range text[shown:] {
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c < ' ':
			const digits = "0123456789abcdef"
			to = append(to, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			to = append(to, c)
		}
	}
	return to
}

// Identify returns the HMAC of a text with the key of identities. It may be called
// concurrently.
func (r *Redactor) Identify(text []byte) [sha256.Size]byte {
	h, ok := r.identities.Take(spare.Any)
	if !ok {
		h = hmac.New(sha256.New, r.identityKey)
	}
	defer r.identities.Give(h)
	h.Reset()
	_, _ = h.Write(text)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}
