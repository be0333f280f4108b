package bridge

import "crypto/sha256"

// ItemKey identifies an item that the API may list again, by the id of its record and its
// time. A changed item keeps both. The id alone is not enough: if EXPORT_ITEM_ID is wrong,
// different items would count as one.
type ItemKey [16]byte

// ItemKeyOf returns the key of a record with this ce_id and ce_time, which may be empty.
func ItemKeyOf(id, at []byte) ItemKey {
	named := make([]byte, 0, 128)
	named = append(append(append(named, id...), 0), at...)
	sum := sha256.Sum256(named)
	return ItemKey(sum[:16])
}

// ItemKey returns the key of the event's record.
func (e *Event) ItemKey() ItemKey {
	at, _ := new(EventTimes).Append(nil, e)
	return ItemKeyOf(e.AppendRecordID(nil), at)
}
