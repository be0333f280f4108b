package cursorstore

import "strings"

// A stream's keys share the braces, so that a cluster keeps them in one slot
// and one script may change them together:
//
//	<prefix>:{<stream>}:checkpoint     hash, the fields below
//	<prefix>:{<stream>}:history        hash, "epoch.seq" -> "<parent> <checkpoint JSON>"
//	<prefix>:{<stream>}:history:index  sorted set of "epoch.seq<mark>" by written_at
//	<prefix>:{<stream>}:request        hash: id, data, at, deadline, claimed, session
//	<prefix>:{<stream>}:answer:<id>    hash: state, data; an hour
//	<prefix>:{<stream>}:status         JSON; five seconds
//	<prefix>:check:<id>                written and removed by Check; ten seconds
//
// The checkpoint's fields beside the JSON are what advance.lua compares.
// Numbers are compared as decimal strings: Lua's are doubles and end at 2^53.
const (
	fieldVersion = "v"
	fieldEpoch   = "epoch"
	fieldSeq     = "seq"
	fieldData    = "data"
	fieldSum     = "sum"
)

// The marks of index entries select how they are thinned.
const (
	markGrowth = "~" // the same cursor again, with a longer tail
	markKept   = "!" // an operator's change, or an epoch's first or last entry
)

// noParent stands for the parent of an entry that has none.
const noParent = "-"

type keys struct {
	checkpoint, history, index, request, status, answers string
}

func keysOf(prefix, stream string) keys {
	base := prefix + ":{" + escaper.Replace(stream) + "}:"
	return keys{
		checkpoint: base + "checkpoint",
		history:    base + "history",
		index:      base + "history:index",
		request:    base + "request",
		status:     base + "status",
		answers:    base + "answer:",
	}
}

func (k keys) answer(id string) string { return k.answers + id }

// streamOf returns the stream of a key.
func streamOf(prefix, key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, prefix+":{")
	if !ok {
		return "", false
	}
	name, _, ok := strings.Cut(rest, "}:")
	return unescaper.Replace(name), ok
}

// Braces in the name would end the hash tag of the key.
var (
	escaper   = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	unescaper = strings.NewReplacer("%7B", "{", "%7D", "}", "%25", "%")
)
