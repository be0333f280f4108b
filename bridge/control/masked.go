package control

import "exportbridge/bridge"

// Masked is a checkpoint whose JSON form lacks the cursor, which is a secret, and the
// identities of its tail and of its border. Its own fields hide those of the same name.
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
