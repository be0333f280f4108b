package kafkarecord

import "github.com/twmb/franz-go/pkg/kgo"

// The headers of record contract v1.
const (
	HeaderSpecVersion = "ce_specversion"
	HeaderID          = "ce_id"
	HeaderSource      = "ce_source"
	HeaderType        = "ce_type"
	HeaderTime        = "ce_time"
	HeaderSubject     = "ce_subject"
	HeaderContentType = "content-type"
	HeaderStream      = "eb-stream"
	HeaderOrigin      = "eb-origin"
	HeaderTraceparent = "traceparent" // only in records of traced pages
	HeaderLate        = "eb-late"     // only in records of late events: Event.Late in milliseconds
	HeaderRedacted    = "eb-redacted" // only with rules for private data: the name of the rules
)

// The headers of a dead letter besides those of its event.
const (
	HeaderErrorTopic   = "__dlq.errors.topic"
	HeaderErrorMessage = "__dlq.errors.message"
	HeaderStage        = "eb-stage"
	HeaderReason       = "eb-reason"
	HeaderCursorHash   = "eb-cursor-hash"
	HeaderIndex        = "eb-index"
	HeaderStart        = "eb-start" // only without the item: Position.Start of the request of its page
	HeaderEnd          = "eb-end"   // as HeaderStart, Position.End
)

// headerOf returns the value of a record's header, and whether there is one.
func headerOf(r *kgo.Record, key string) (value []byte, ok bool) {
	for i := range r.Headers {
		if r.Headers[i].Key == key {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}
