package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"exportbridge/bridge"
)

const (
	// exportFormat names the format of an exported cursor.
	exportFormat = "exportbridge.cursor/1"
	// maxExport is the largest file that ReadExport accepts; the largest
	// checkpoint is far smaller.
	maxExport = 8 << 20
)

// Export is the file format of an exported checkpoint.
type Export struct {
	Format     string    `json:"format"`
	ExportedAt time.Time `json:"exported_at"`
	// Checkpoint has the stream, its source, its topic and the cursor.
	Checkpoint json.RawMessage `json:"checkpoint"`
	// Checksum is the SHA-256 of the compact form of Checkpoint, with &, < and > escaped.
	Checksum string `json:"checksum"`
}

// NewExport exports a checkpoint with the current time.
func NewExport(c *bridge.Checkpoint) (Export, error) {
	data, err := c.Encode()
	now := time.Now().UTC().Truncate(time.Second)
	return Export{Format: exportFormat, ExportedAt: now, Checkpoint: data, Checksum: checksum(data)}, err
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// ReadExport reads an exported checkpoint and verifies its checksum.
func ReadExport(in io.Reader) (bridge.Checkpoint, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxExport+1))
	switch {
	case err != nil:
		return bridge.Checkpoint{}, err
	case len(data) == 0:
		return bridge.Checkpoint{}, errors.New("it is empty")
	case len(data) > maxExport:
		return bridge.Checkpoint{}, fmt.Errorf("it is larger than %d MiB", maxExport>>20)
	}
	var e Export
	if err := json.Unmarshal(data, &e); err != nil {
		return bridge.Checkpoint{}, fmt.Errorf("not a complete JSON document: %w", err)
	}
	if e.Format != exportFormat {
		return bridge.Checkpoint{}, fmt.Errorf("its format is %q, want %q", e.Format, exportFormat)
	}
	var text, compact bytes.Buffer
	if err := json.Compact(&text, e.Checkpoint); err != nil {
		return bridge.Checkpoint{}, fmt.Errorf("its checkpoint: %w", err)
	}
	json.HTMLEscape(&compact, text.Bytes()) // as Encode does, unlike other programs that format JSON
	if got := checksum(compact.Bytes()); got != e.Checksum {
		return bridge.Checkpoint{}, fmt.Errorf("its checksum is %s, that of its checkpoint %s: it was changed",
			e.Checksum, got)
	}
	c, err := bridge.DecodeCheckpoint(compact.Bytes())
	if err != nil {
		return c, err
	}
	return c, checkCursor(c.Cursor)
}
