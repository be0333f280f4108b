package bridge

import (
	"crypto/sha256"
	"time"
)

// ItemKey identifies an item where the API lists it again: by the id of its record and
// its time. With the id alone, a wrong EXPORT_ITEM_ID would take different items for one;
// a changed item has both.
type ItemKey [16]byte

// itemTime is the form of ce_time: milliseconds, UTC.
const itemTime = "2006-01-02T15:04:05.000Z"

// ItemKeyOf returns the key of a record with this ce_id and ce_time, which may be empty.
func ItemKeyOf(id, at []byte) ItemKey {
	named := make([]byte, 0, 128)
	named = append(append(append(named, id...), 0), at...)
	sum := sha256.Sum256(named)
	return ItemKey(sum[:16])
}

// ItemKey returns the key of the event's record.
func (e *Event) ItemKey() ItemKey {
	var at []byte
	if e.Time != NoTime && e.Defect != DefectTime && e.Defect != DefectNotObject {
		if t := time.UnixMilli(e.Time).UTC(); t.Year() >= 0 && t.Year() <= 9999 {
			at = t.AppendFormat(nil, itemTime)
		}
	}
	return ItemKeyOf(e.AppendRecordID(nil), at)
}
