package exportapi

// resource is the preset of a resource of the export API: its path, and the pointers into
// its items. It has no ids if an item may be listed again after a change. Such an item is
// identified by its bytes, so that each change is a new event.
type resource struct {
	path string
	pointers
}

var presets = map[string]resource{
	"events": {path: "/events", pointers: pointers{
		ids:      []string{"/eventId", "/id"},
		times:    []string{"/timestamp"},
		ingested: ingested,
		types:    []string{"/payload/type", "/payload/@type"},
		subjects: subjects,
	}},
	"sessions": {path: "/session", pointers: pointers{timeOptional: true, times: []string{"/closeTime"},
		ingested: ingested, subjects: subjects}},
	"users": {path: "/user", pointers: pointers{timeOptional: true, times: []string{"/lastModifiedTime"},
		ingested: ingested, subjects: subjects}},
}

var ingested, subjects = []string{"/systemTimestamp"}, []string{"/userId"}
