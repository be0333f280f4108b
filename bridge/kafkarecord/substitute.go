package kafkarecord

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// Substitute is the value of a dead letter whose item is too large for any topic. It says
// where to fetch the item.
type Substitute struct {
	ID     string `json:"id"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
	Cursor string `json:"cursor,omitempty"`
	Index  int    `json:"index"`
}

// ReadSubstitute parses the substitute of a dead letter, and reports whether there is one.
// An exported item is never taken for one: its members differ, or the headers do not match.
func ReadSubstitute(r *kgo.Record) (Substitute, bool) {
	var s Substitute
	d := json.NewDecoder(bytes.NewReader(r.Value))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, false
	}
	if _, err := d.Token(); err != io.EOF || s.ID == "" || len(s.SHA256) != 2*sha256.Size {
		return s, false
	}
	hash, _ := headerOf(r, HeaderCursorHash)
	index, _ := headerOf(r, HeaderIndex)
	return s, string(index) == strconv.Itoa(s.Index) && (s.Cursor == "" || bridge.CursorHash(s.Cursor) == string(hash))
}

// Encode returns the substitute as the value of a dead letter.
func (s *Substitute) Encode() []byte {
	b, _ := json.Marshal(s) // strings and numbers always encode
	return b
}
