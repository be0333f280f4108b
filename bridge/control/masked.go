package control

import (
	"encoding/json"
	"time"

	"exportbridge/bridge"
)

// Masked is a checkpoint for output. Its JSON form lacks the cursor, which is a secret, and
// the identities of the tail and of the border: fields of Masked hide those of Checkpoint.
type Masked struct {
	*bridge.Checkpoint
	Cursor     *struct{} `json:"cursor,omitempty"`
	CursorHash string    `json:"cursor_hash"`
	Tail       *struct{} `json:"tail,omitempty"`
	TailItems  int       `json:"tail_items,omitempty"`
	Border     *struct{} `json:"border,omitempty"`
}

// Mask returns c for output.
func Mask(c *bridge.Checkpoint) *Masked {
	return &Masked{Checkpoint: c, CursorHash: bridge.CursorHash(c.Cursor), TailItems: len(c.Tail)}
}

// MarshalJSON adds the source of the newest entries: redis, or kafka if Redis has none or
// is unreachable.
func (h History) MarshalJSON() ([]byte, error) {
	source := "redis"
	if h.Stored == 0 && len(h.Entries) > 0 {
		source = "kafka"
	}
	return json.Marshal(struct {
		Source  string         `json:"source"`
		Note    string         `json:"note,omitempty"`
		Entries []HistoryEntry `json:"entries"`
	}{source, h.Note, append([]HistoryEntry{}, h.Entries...)}) // an empty list instead of null
}

// MarshalJSON masks the checkpoint, and adds its times as text.
func (e HistoryEntry) MarshalJSON() ([]byte, error) {
	parent := ""
	if e.Parent != nil {
		parent = e.Parent.String()
	}
	return json.Marshal(struct {
		Entry string `json:"entry"`
		*Masked
		Parent      string         `json:"parent,omitempty"` // unknown if empty
		OtherBranch bool           `json:"other_branch,omitempty"`
		At          time.Time      `json:"at"`
		Position    time.Time      `json:"position,omitzero"`
		Change      *bridge.Change `json:"change"` // null in epoch 0
	}{
		e.Version.String(), Mask(&e.Checkpoint), parent, e.OtherBranch, time.UnixMilli(e.WrittenAt).UTC(),
		bridge.Instant(e.PositionTime).UTC(), e.Change,
	})
}
