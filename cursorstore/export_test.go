package cursorstore

import (
	"context"

	"exportbridge/bridge"
)

// PutStatus publishes the status of one stream.
func (s *Store) PutStatus(ctx context.Context, st bridge.Status) error {
	return s.c.PutStatuses(ctx, []*EncodedStatus{{Status: st}})
}
