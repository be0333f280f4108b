package exportapi

import "exportbridge/bridge/exportapi/internal/itemtime"

// timeFormats are the values of EXPORT_ITEM_TIME_FORMAT. Without times the
// format does not matter.
var timeFormats = map[string]itemtime.Format{
	"": itemtime.Millis, "ms": itemtime.Millis, "s": itemtime.Seconds, "us": itemtime.Micros, "rfc3339": itemtime.RFC3339, "rfc3339-utc": itemtime.RFC3339UTC, none: itemtime.Millis,
}
