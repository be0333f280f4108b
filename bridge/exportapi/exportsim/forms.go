package exportsim

import (
	"slices"
	"time"
)

// Items of several forms.
const (
	itemISO = `{"id":"<id>","time":"<rfc3339>","type":"<type>","actor":{"id":"<user>"},"event":<event>}`
	itemLog = `{"id":"<id>","time":"<rfc3339>","type":"<type>","actor":{"id":"<user>"},"views":<revision>,"event":<event>}`
	itemNum = `{"id":"<id>","ts":<us>,"kind":"<type>","seq":<seq>,"user":"<user>","event":<event>}`
)

// forms are the forms other than the default one: one for each way in which export APIs
// differ, and services as their public documentation describes them.
var forms = []Form{
	{
		Name: "nested", Path: "/v1/events", Item: itemISO,
		ItemID: "/id", ItemTime: "/time", ItemTimeFormat: formatRFC3339, ItemType: "/type", ItemSubject: "/actor/id",
		ItemsField: "/data/items", CursorField: "/data/paging/next",
		PageSizeParam: "limit", StartParam: "from", EndParam: "to", TimeFormat: formatRFC3339,
		Auth: authKey, KeyHeader: "Authorization", KeyPrefix: "Bearer",
	},
	{
		Name: "integer-cursor", Path: "/changes",
		Item:   `{"id":"<id>","created":<s>,"type":"<type>","user":"<user>","event":<event>}`,
		ItemID: "/id", ItemTime: "/created", ItemTimeFormat: formatSeconds, ItemType: "/type", ItemSubject: "/user",
		ItemsField: "changes", CursorField: "last", CursorKind: kindSeq, CursorParam: "since_id", EndOfResults: EmptyItems,
		PageSizeParam: "count", StartParam: "after", EndParam: "before", TimeFormat: formatSeconds, EndInclusive: true,
		MaxPageSize:  500,
		LimitHeaders: "RateLimit-",
	},
	{
		Name: "header-cursor", Path: "/feed", Item: itemNum,
		ItemID: "/id", ItemTime: "/ts", ItemTimeFormat: formatMicros, ItemType: "/kind", ItemSubject: "/user",
		ItemsField: root, CursorIn: inHeader, CursorField: "X-Next-Cursor", EndOfResults: NoCursor,
		TimeFormat: formatMicros, LimitHeaders: "RateLimit",
	},
	{
		Name: "next-url", Path: "/export/events", Item: itemNum,
		ItemID: "/id", ItemTime: "/ts", ItemTimeFormat: formatMicros, ItemType: "/kind", ItemSubject: "/user",
		CursorIn: inNextURL, CursorField: "/links/next", CursorParam: "page_token", EndOfResults: NullCursor,
		PageSizeParam: "per_page", TimeFormat: formatSeconds, KeyQuery: "api_key",
	},
	{
		Name: "link", Path: "/items", Item: itemISO,
		ItemID: "/id", ItemTime: "/time", ItemTimeFormat: formatRFC3339, ItemType: "/type", ItemSubject: "/actor/id",
		ItemsField: root, CursorIn: inLink, Links: []string{"first", "next"}, RelativeNext: true, EndOfResults: NoCursor,
		StartParam: "since", EndParam: "until", TimeFormat: formatRFC3339, EndInclusive: true,
		Auth: authBasic, User: "exporter", LimitHeaders: "X-RateLimit-", LimitStatus: 403,
	},
	{
		Name: "last-item", Path: "/log", Item: itemNum,
		ItemID: "/seq", ItemTimeFormat: none, ItemType: "/kind", ItemSubject: "/user",
		ItemsField: "data", CursorIn: inLastItem, CursorField: "/seq", CursorKind: kindSeq, CursorParam: "after_seq",
		PageSizeParam: "limit", StartParam: none, EndParam: none, Auth: none,
	},
	{
		// The cursor goes back in a JSON object, beside the other parameters.
		Name: "post", Method: "POST", Path: "/api/v2/events",
		Item:   `{"uuid":"<id>","timestamp":"<rfc3339>","action":"<type>","actor":"<user>","event":<event>}`,
		ItemID: "/uuid", ItemTime: "/timestamp", ItemTimeFormat: formatRFC3339, ItemType: "/action", ItemSubject: "/actor",
		CursorField: "cursor", MoreField: "has_more",
		PageSizeParam: "limit", StartParam: "start_time", EndParam: "end_time", TimeFormat: formatRFC3339,
		KeyHeader: "Authorization", KeyPrefix: "Bearer",
	},
	{
		// The first request has the start and the page size. Requests
		// with a cursor have nothing else, as in 1Password's Events API.
		Name: "cursor-alone", Method: "POST", Path: "/api/v2/auditevents",
		Item:   `{"uuid":"<id>","timestamp":"<rfc3339>","action":"<type>","actor":"<user>","event":<event>}`,
		ItemID: "/uuid", ItemTime: "/timestamp", ItemTimeFormat: formatRFC3339, ItemType: "/action", ItemSubject: "/actor",
		CursorField: "cursor", MoreField: "has_more", CursorAlone: true,
		PageSizeParam: "limit", StartParam: "start_time", EndParam: "end_time", TimeFormat: formatRFC3339,
		KeyHeader: "Authorization", KeyPrefix: "Bearer",
	},
	{
		// The member is true at the end, as in Zendesk's exports.
		Name: "end-of-stream", Path: "/api/v2/incremental/events/cursor",
		Item:   `{"id":"<id>","ts":"<s>.<frac>","type":"<type>","user":"<user>","event":<event>}`,
		ItemID: "/id", ItemTime: "/ts", ItemTimeFormat: formatSeconds, ItemType: "/type", ItemSubject: "/user",
		ItemsField: "events", CursorField: "after_cursor", MoreField: "!end_of_stream",
		PageSizeParam: "per_page", StartParam: "start_time", EndParam: none, TimeFormat: formatSeconds,
		Auth: authBasic, User: "agent@acme.example/token",
	},
	{
		Name: "newest-first", Path: "/audit", Item: itemISO,
		ItemID: "/id", ItemTime: "/time", ItemTimeFormat: formatRFC3339, ItemType: "/type", ItemSubject: "/actor/id",
		NewestFirst: true, EndOfResults: NullCursor, TimeFormat: formatRFC3339,
	},
	{
		Name: "audit-list", Path: "/audit", Item: itemLog,
		ItemID: "/id", ItemTime: "/time", ItemTimeFormat: formatRFC3339, ItemType: "/type", ItemSubject: "/actor/id",
		NewestFirst: true, Clocked: true, EndOfResults: NullCursor, TimeFormat: formatRFC3339,
	},
	{
		Name: "audit-list-url", Path: "/audit", Item: itemLog,
		ItemID: "/id", ItemTime: "/time", ItemTimeFormat: formatRFC3339, ItemType: "/type", ItemSubject: "/actor/id",
		CursorIn: inNextURL, CursorField: "/paging/next", CursorParam: "before", EndOfResults: NoCursor,
		NewestFirst: true, Clocked: true,
		PageSizeParam: "limit", StartParam: "after_time", EndParam: "until", TimeFormat: formatMillis,
		StartExclusive: true, EndInclusive: true,
	},
	{
		// An item that is listed late moves the items after it to other offsets.
		Name: "audit-list-offset", Path: "/audit", Item: itemLog,
		ItemID: "/id", ItemTime: "/time", ItemTimeFormat: formatRFC3339, ItemType: "/type", ItemSubject: "/actor/id",
		ItemsField: root, CursorIn: inLink, CursorKind: kindOffset, CursorParam: "offset", Links: []string{"next"},
		EndOfResults: NoCursor, NewestFirst: true, Clocked: true,
		PageSizeParam: "per_page", StartParam: "from", EndParam: "to", TimeFormat: formatSeconds, EndInclusive: true,
	},
	{
		Name: "audit-list-pages", Path: "/audit", Item: itemLog,
		ItemID: "/id", ItemTime: "/time", ItemTimeFormat: formatRFC3339, ItemType: "/type", ItemSubject: "/actor/id",
		CursorIn: inPage, CursorKind: kindOffset, CursorParam: "page", EndOfResults: NoCursor, NewestFirst: true,
		Clocked:       true,
		PageSizeParam: "per_page", StartParam: "from", EndParam: "to", TimeFormat: formatMillis,
	},
	{
		Name: "audit-list-skip", Path: "/audit", Item: itemLog,
		ItemID: "/id", ItemTime: "/time", ItemTimeFormat: formatRFC3339, ItemType: "/type", ItemSubject: "/actor/id",
		CursorIn: inOffset, CursorKind: kindOffset, CursorParam: "offset", EndOfResults: NoCursor, NewestFirst: true,
		Clocked:       true,
		PageSizeParam: "limit", StartParam: "from", EndParam: "to", TimeFormat: formatRFC3339,
	},
	{
		// A request without an end polls: there is always a next link, and
		// events are in the order in which they were stored, not of their times.
		Name: "okta-system-log", Path: "/api/v1/logs",
		Item: `{"uuid":"<id>","published":"<rfc3339>","eventType":"<type>","severity":"INFO",` +
			`"actor":{"id":"<user>","type":"User"},"event":<event>}`,
		ItemID: "/uuid", ItemTime: "/published", ItemTimeFormat: formatRFC3339, ItemType: "/eventType",
		ItemSubject: "/actor/id",
		ItemsField:  root, CursorIn: inLink, CursorParam: "after", Links: []string{"self", "next"}, LinkLines: true,
		EndOfResults: EmptyItems, BoundedEnd: NoCursor, Late: 5 * time.Second,
		PageSizeParam: "limit", StartParam: "since", EndParam: "until", TimeFormat: formatRFC3339,
		KeyHeader: "Authorization", KeyPrefix: "SSWS", LimitHeaders: "X-Rate-Limit-", NoRetryAfter: true,
		Error: `{"errorCode":"E0000001","errorSummary":"<text>","errorLink":"E0000001","errorId":"<kind>","errorCauses":[]}`,
	},
	{
		// Only a request with from lists by id, oldest first. Others search.
		Name: "auth0-logs", Path: "/api/v2/logs",
		Item:   `{"log_id":"<logid>","_id":"<logid>","date":"<rfc3339>","type":"<type>","user_id":"<user>","event":<event>}`,
		ItemID: "/log_id", ItemTime: "/date", ItemTimeFormat: formatRFC3339, ItemType: "/type", ItemSubject: "/user_id",
		ItemsField: root, CursorIn: inLink, CursorKind: kindLogID, CursorParam: "from", Links: []string{"next"},
		EndOfResults: EmptyItems, NewestFirst: true, Ascending: "from",
		PageSizeParam: "take", StartParam: none, EndParam: none, PageSize: 50, MaxPageSize: 100,
		Auth: authOAuth2, User: "exporter", TokenPath: "/oauth/token", Audience: "https://acme.example/api/v2/",
		LimitHeaders: "X-RateLimit-", NoRetryAfter: true,
		Error: `{"statusCode":<status>,"error":"<title>","message":"<text>","errorCode":"<kind>"}`,
	},
	{
		Name: "github-audit-log", Path: "/orgs/acme/audit-log", NextPath: "/organizations/4711/audit-log",
		Item: `{"@timestamp":<ms>,"_document_id":"<id>","action":"<type>","actor":"<user>","created_at":<ms>,` +
			`"org":"acme","event":<event>}`,
		ItemID: "/_document_id", ItemTime: "/@timestamp", ItemType: "/action", ItemSubject: "/actor",
		ItemsField: root, CursorIn: inLink, CursorParam: "after", Links: []string{"next", "first"},
		EndOfResults: NoCursor, ExactEnd: true, NewestFirst: true, Ascending: "order=asc",
		PageSizeParam: "per_page", StartParam: none, EndParam: none, PhraseParam: "phrase", PageSize: 30, MaxPageSize: 100,
		KeyHeader: "Authorization", KeyPrefix: "Bearer", LimitHeaders: "X-RateLimit-", LimitStatus: 403,
		Error: `{"message":"<text>","documentation_url":"https://docs.github.com/rest","status":"<status>"}`,
	},
	{
		Name: "1password-events", Method: "POST", Path: "/api/v2/auditevents",
		Item: `{"uuid":"<id>","timestamp":"<rfc3339>","actor_uuid":"<user>","action":"<type>","object_type":"item",` +
			`"event":<event>}`,
		ItemID: "/uuid", ItemTime: "/timestamp", ItemTimeFormat: formatRFC3339, ItemType: "/action",
		ItemSubject: "/actor_uuid",
		CursorField: "cursor", MoreField: "has_more", CursorAlone: true,
		PageSizeParam: "limit", StartParam: "start_time", EndParam: "end_time", TimeFormat: formatRFC3339,
		KeyHeader: "Authorization", KeyPrefix: "Bearer", NoRetryAfter: true,
		Error: `{"status":<status>,"message":"<text>"}`,
	},
	{
		// Every page has next_page. A page without items is requested again.
		Name: "metronome-audit-log", Path: "/v1/auditLogs",
		Item: `{"id":"<id>","timestamp":"<rfc3339>","actor":{"id":"<user>","name":"n"},"action":"<type>",` +
			`"status":"success","event":<event>}`,
		ItemID: "/id", ItemTime: "/timestamp", ItemTimeFormat: formatRFC3339, ItemType: "/action", ItemSubject: "/actor/id",
		ItemsField: "data", CursorField: "next_page", CursorParam: "next_page", EndOfResults: EmptyItems,
		PageSizeParam: "limit", StartParam: "starting_on", EndParam: none, TimeFormat: formatRFC3339, MaxPageSize: 100,
		KeyHeader: "Authorization", KeyPrefix: "Bearer",
		Error: `{"message":"<text>"}`,
	},
	{
		// The parameters are inside objects.
		Name: "datadog-audit-trail", Method: "POST", Path: "/api/v2/audit/events/search",
		Item: `{"id":"<id>","type":"audit","attributes":{"timestamp":"<rfc3339>","service":"s",` +
			`"attributes":{"evt":{"name":"<type>"},"usr":{"id":"<user>"}}},"event":<event>}`,
		ItemID: "/id", ItemTime: "/attributes/timestamp", ItemTimeFormat: formatRFC3339,
		ItemType: "/attributes/attributes/evt/name", ItemSubject: "/attributes/attributes/usr/id",
		ItemsField: "data", CursorField: "/meta/page/after", CursorParam: "/page/cursor",
		EndOfResults: NoCursor, ExactEnd: true, NewestFirst: true, Ascending: "sort=timestamp",
		PageSizeParam: "/page/limit", StartParam: none, EndParam: none, PageSize: 10,
		KeyHeader: "DD-APPLICATION-KEY", LimitHeaders: "X-RateLimit-", NoRetryAfter: true,
		Error: `{"errors":["<text>"]}`,
	},
	{
		Name: "slack-audit-logs", Path: "/audit/v1/logs",
		Item: `{"id":"<id>","date_create":<s>,"action":"<type>","actor":{"type":"user","user":{"id":"<user>"}},` +
			`"event":<event>}`,
		ItemID: "/id", ItemTime: "/date_create", ItemTimeFormat: formatSeconds, ItemType: "/action",
		ItemSubject: "/actor/user/id",
		ItemsField:  "entries", CursorField: "/response_metadata/next_cursor", EndOfResults: EmptyCursor,
		NewestFirst: true, Clocked: true,
		PageSizeParam: "limit", StartParam: "oldest", EndParam: "latest", TimeFormat: formatSeconds, EndInclusive: true,
		MaxPageSize: 9999,
		KeyHeader:   "Authorization", KeyPrefix: "Bearer",
		Error: `{"ok":false,"error":"<kind>"}`,
	},
	{
		Name: "google-workspace-activities", Path: "/admin/reports/v1/activity/users/all/applications/login",
		Item: `{"kind":"admin#reports#activity","id":{"time":"<rfc3339>","uniqueQualifier":"<id>",` +
			`"applicationName":"login"},` +
			`"actor":{"profileId":"<user>"},"events":[{"name":"<type>"}],"event":<event>}`,
		ItemID: "/id/uniqueQualifier", ItemTime: "/id/time", ItemTimeFormat: formatRFC3339, ItemType: "/events/0/name",
		ItemSubject: "/actor/profileId",
		OmitEmpty:   true, CursorField: "nextPageToken", CursorParam: "pageToken", EndOfResults: NoCursor,
		NewestFirst: true, Clocked: true,
		PageSizeParam: "maxResults", StartParam: "startTime", EndParam: "endTime", TimeFormat: formatRFC3339,
		EndInclusive: true,
		KeyHeader:    "Authorization", KeyPrefix: "Bearer", NoRetryAfter: true,
		Error: `{"error":{"code":<status>,"message":"<text>","errors":[{"reason":"<kind>"}]}}`,
	},
	{
		// The next page begins after the last item's id.
		Name: "stripe-events", Path: "/v1/events",
		Item: `{"id":"<logid>","object":"event","created":<s>,"type":"<type>","data":{"object":{"customer":"<user>"}},` +
			`"event":<event>}`,
		ItemID: "/id", ItemTime: "/created", ItemTimeFormat: formatSeconds, ItemType: "/type",
		ItemSubject: "/data/object/customer",
		ItemsField:  "data", CursorIn: inLastItem, CursorField: "/id", CursorKind: kindLogID,
		CursorParam: "starting_after", MoreField: "has_more",
		NewestFirst: true, Clocked: true,
		PageSizeParam: "limit", StartParam: "created[gte]", EndParam: "created[lt]", TimeFormat: formatSeconds,
		PageSize: 10, MaxPageSize: 100,
		KeyHeader: "Authorization", KeyPrefix: "Bearer", NoRetryAfter: true,
		Error: `{"error":{"type":"<kind>","message":"<text>"}}`,
	},
	{
		Name: "gitlab-audit-events", Path: "/api/v4/groups/acme/audit_events",
		Item: `{"id":<seq>,"author_id":"<user>","entity_id":6,"event_name":"<type>","created_at":"<rfc3339>",` +
			`"event":<event>}`,
		ItemID: "/id", ItemTime: "/created_at", ItemTimeFormat: formatRFC3339, ItemType: "/event_name",
		ItemSubject: "/author_id",
		ItemsField:  root, CursorIn: inLink, Links: []string{"next"}, EndOfResults: NoCursor,
		NewestFirst: true, Clocked: true,
		PageSizeParam: "per_page", StartParam: "created_after", EndParam: "created_before", TimeFormat: formatRFC3339,
		EndInclusive: true,
		PageSize:     20, MaxPageSize: 100,
		KeyHeader: "PRIVATE-TOKEN", LimitHeaders: "RateLimit-",
		Error: `{"message":"<text>"}`,
	},
	{
		// The bounds are inside a filter.
		Name: "microsoft-graph-audit", Path: "/v1.0/auditLogs/directoryAudits",
		Item: `{"id":"<id>","activityDateTime":"<rfc3339>","activityDisplayName":"<type>",` +
			`"initiatedBy":{"user":{"id":"<user>"}},` +
			`"event":<event>}`,
		ItemID: "/id", ItemTime: "/activityDateTime", ItemTimeFormat: formatRFC3339, ItemType: "/activityDisplayName",
		ItemSubject: "/initiatedBy/user/id",
		ItemsField:  "value", CursorIn: inNextURL, CursorField: "@odata.nextLink", CursorParam: "$skiptoken",
		EndOfResults: NoCursor,
		NewestFirst:  true, Clocked: true,
		PageSizeParam: "$top", StartParam: none, EndParam: none, FilterField: "activityDateTime", TimeFormat: formatRFC3339,
		Auth: authOAuth2, User: "exporter", TokenPath: "/acme/oauth2/v2.0/token",
		Error: `{"error":{"code":"<kind>","message":"<text>"}}`,
	},
}

// FormNames returns the names of all forms, first that of the default form.
func FormNames() []string {
	names := []string{"default"}
	for _, f := range forms {
		names = append(names, f.Name)
	}
	return names
}

// FormNamed returns the form with a name, and whether there is one.
func FormNamed(name string) (Form, bool) {
	if i := slices.IndexFunc(forms, func(f Form) bool { return f.Name == name }); i >= 0 {
		return forms[i], true
	}
	return Form{}, name == "default"
}
