package kafkarecord

// Header describes a header of records. Its value is text in UTF-8.
type Header struct {
	Name    string
	Meaning string
	// Form is the form of the value: date-time (RFC 3339), uri-reference or integer; "" for
	// any text.
	Form string
	// Values are the only valid values; nil if others are valid too.
	Values []string
	// Always reports whether each record has the header.
	Always bool
	// Minimal reports whether records also have the header with BRIDGE_HEADERS=minimal.
	Minimal bool
	// Rare reports whether the header depends on the page, or on how the export is
	// followed, and not on the event alone.
	Rare bool
}

// EventHeaders returns the headers of the records of events with BRIDGE_HEADERS=cloudevents.
func EventHeaders() []Header {
	return []Header{
		{Name: HeaderSpecVersion, Always: true, Values: []string{"1.0"}, Meaning: "version of CloudEvents"},
		{Name: HeaderID, Always: true, Minimal: true, Meaning: "the event's id, or a hash of its bytes if it has none; " +
			"unique together with ce_source, and the same each time the event is published"},
		{Name: HeaderSource, Always: true, Form: "uri-reference", Meaning: "the export that the event comes from"},
		{Name: HeaderType, Always: true, Meaning: "prefix of the stream, then a dot and the event's type if it has one"},
		{Name: HeaderTime, Form: "date-time", Meaning: "the event time; absent if the event has none"},
		{Name: HeaderSubject, Meaning: "what the event is about, such as its user; absent if the event does not say"},
		{Name: HeaderContentType, Always: true, Values: []string{"application/json"}, Meaning: "media type of the value"},
		{Name: HeaderStream, Always: true, Minimal: true, Meaning: "name of the stream"},
		{Name: HeaderOrigin, Always: true, Minimal: true, Values: Origins, Meaning: "how the event was published: " +
			"live, by the stream; rewind, by the stream, after the topic already held the event; replay or backfill, by such " +
			"a job; repair, by a retry of a dead letter or by a repair of verify"},
		{Name: HeaderTraceparent, Minimal: true, Rare: true, Meaning: "W3C trace context of the publish; absent if the " +
			"page is not traced"},
		{Name: HeaderLate, Minimal: true, Rare: true, Form: "integer", Meaning: "milliseconds from the event to the " +
			"window of time that listed it; absent if the event was not late"},
		{Name: HeaderRedacted, Minimal: true, Rare: true, Meaning: "name of the rules for private data that changed " +
			"the value, and of their key; absent without such rules"},
	}
}

// Origins are the values of HeaderOrigin.
var Origins = []string{"live", "rewind", "replay", "backfill", "repair"}

// DeadLetterHeaders returns the headers of a dead letter besides those of its event.
func DeadLetterHeaders() []Header {
	return []Header{
		{Name: HeaderErrorTopic, Always: true, Meaning: "the topic that the event was meant for"},
		{Name: HeaderErrorMessage, Meaning: "why the event was not published; absent if longer than 256 bytes " +
			"and the item is too large for the topic"},
		{Name: HeaderStage, Always: true, Values: []string{"decode", "publish"}, Meaning: "what failed"},
		{Name: HeaderReason, Always: true, Meaning: "short name of the defect"},
		{Name: HeaderCursorHash, Always: true, Meaning: "hash of the cursor of the event's page"},
		{Name: HeaderIndex, Always: true, Form: "integer", Meaning: "index of the event in its page, from 0"},
		{Name: HeaderStart, Form: "integer", Meaning: "start of the request of the page, in milliseconds since the epoch, " +
			"0 for the earliest event; absent if the value is the item"},
		{Name: HeaderEnd, Form: "integer", Meaning: "end of the request of the page, in milliseconds since the epoch, " +
			"0 for none; absent if the value is the item"},
	}
}
