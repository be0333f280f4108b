package exportsim

import "slices"

// eventType is a type of payload and its weight, which is how often it occurs; 0 is never.
type eventType struct {
	name   string
	weight int
}

// eventTypes are the event types of a schema. Append only: a cursor's filter has a bit for
// each, in this order.
type eventTypes []eventType

var allEventTypes = eventTypes{
	{"userSignedUp", 2}, {"userSignedIn", 5}, {"userSignedOut", 3}, {"tabOpened", 8},
	{"tabUrlChanged", 10}, {"tabVisibilityChanged", 10}, {"locationDetected", 4},
	{"clientDetected", 4}, {"pageOpened", 24}, {"pageLoaded", 20}, {"productAbandoned", 5},
	{"productViewed", 20}, {"cartAbandoned", 5}, {"cartViewed", 12}, {"cartModified", 16},
	{"checkoutStarted", 8}, {"orderPlaced", 12}, {"nothingChanged", 6}, {"goalCompleted", 5},
	{"eventOccurred", 14}, {"slotPersonalized", 16}, {"leadGenerated", 1}, {"audienceMatched", 5},
	// from 0.6 on
	{"userClicked", 8}, {"userScrolled", 8},
	// from 0.8 on
	{"sessionMerged", 1}, {"sessionClosed", 5}, {"sessionStarted", 6}, {"postViewed", 4},
	{"userProfileChanged", 3}, {"campaignDetected", 3}, {"sessionAttributesChanged", 2},
	{"productOrdered", 5}, {"interestShown", 3}, {"linkOpened", 3},
}

func typesOf(s Schema) eventTypes {
	switch s {
	case Schema05:
		types := slices.Clone(allEventTypes[:23])
		// A filter may name this type, but none is served: in this schema it is no
		// subtype of a payload, and clients generated from the schema refuse the page.
		for i := range types {
			if types[i].name == "slotPersonalized" {
				types[i].weight = 0
			}
		}
		return types
	case Schema07:
		return allEventTypes[:25]
	default:
		return allEventTypes
	}
}

// grammarOf returns the rules of a schema: first its own, then those of the next newer one.
func grammarOf(s Schema) []map[string][]string {
	switch s {
	case Schema05:
		return []map[string][]string{grammar05, grammar07, payloads, vocabulary}
	case Schema07:
		return []map[string][]string{grammar07, payloads, vocabulary}
	default:
		return []map[string][]string{payloads, vocabulary}
	}
}

// grammar05 has the rules of 0.5 that differ from 0.7.
var grammar05 = map[string][]string{
	"event": {`{"sessionId":"<session>","userId":"<user>","timestamp":<time>,"context":<context>,` +
		`"payload":{"@type":"<type>","sequence":"<sequence>",<payload>}}`},
	"words": {`"<word>, <word>"`, `null`},
}

// grammar07 has the rules of 0.7 that differ from 0.8.
var grammar07 = map[string][]string{
	"event": {`{"id":"<id>","sessionId":"<session>","userId":"<user>","timestamp":<time>,` +
		`"context":<context>,"payload":{"@type":"<type>",<payload>}}`},
	"timeZone":    {"timezone"},
	"population":  {`"<int:900:22000000>"`, `null`},
	"value":       {`"<cents:100:90000>"`},
	"audienceSet": {"audienceIds"},
	"version":     {`"<int:1:9>"`},
}

// payloads are the shapes of the items in 0.8. One of its alternatives replaces a rule in
// angle brackets, see compiler.
var payloads = map[string][]string{
	"event": {`{"eventId":"<id>","sessionId":"<session>","userId":"<user>","timestamp":<time>,` +
		`"systemTimestamp":<system>,"context":<context>,"payload":{"type":"<type>",<payload>}}`},

	"userSignedUp":  {`"externalUserId":<externalId>,"patch":<patch>`},
	"userSignedIn":  {`"externalUserId":<externalId>`},
	"userSignedOut": {`"externalUserId":<externalId>`},
	"tabOpened":     {`"tabId":"<tab>"`},
	"tabUrlChanged": {`"tabId":"<tab>","url":<url>`},
	"tabVisibilityChanged": {
		`"tabId":"<tab>","visibility":"VISIBLE"`, `"tabId":"<tab>","visibility":"HIDDEN"`,
	},
	"locationDetected": {`"location":<location>`},
	"clientDetected":   {`"client":<client>`},
	"pageOpened": {`"url":<url>,"userAgent":<userAgent>,"preferredLanguages":<languages>,` +
		`"referrer":<referrer>`},
	"pageLoaded":       {`"url":<url>,"title":<title>,"lastModifiedTime":<opened>`},
	"productAbandoned": {`"cartItem":<lineItem>,"cart":<cart>`},
	"productViewed":    {`"product":<product>`},
	"cartAbandoned":    {`"cart":<cart>`},
	"cartViewed":       {`"cart":<cart>`},
	"cartModified":     {`"cart":<cart>`},
	"checkoutStarted":  {`"cart":<cart>,"orderId":"<order>"`, `"cart":<cart>,"orderId":null`},
	"orderPlaced":      {`"order":<placedOrder>`},
	"nothingChanged":   {`"sinceTime":<opened>`},
	"goalCompleted": {
		`"goalId":"newsletter:signup","value":<value>,"currency":<currency>`,
		`"goalId":"share","value":null,"currency":null`,
	},
	"eventOccurred": {`"name":<occurrence>,"details":<details>`},
	"slotPersonalized": {`"personalization":{"audienceId":"<uuid>","slotId":"<uuid>",` +
		`"experienceId":"<uuid>","contentId":"<uuid>","slotVersion":<slotVersion>,` +
		`"assignedVariant":<variant>,"locale":<locale>},"metadata":{"audienceName":<audience>,` +
		`"audienceCustomId":"returning-customers","slotName":<title>,"slotCustomId":"home-hero",` +
		`"experienceName":<title>,"experimentName":null,"variantName":null}`},
	"leadGenerated":   {`"leadId":"lead-<noise>","currency":<currency>,"value":<value>`},
	"audienceMatched": {`"<audienceSet>":[<list:1:4:audienceEntry>]`},
	"userClicked":     {`"point":<point>,"surfaceSize":<size>`},
	"userScrolled": {
		`"start":<point>,"end":<point>,"surfaceSize":<size>,"viewportSize":<size>`,
		`"end":<point>,"surfaceSize":<size>`,
	},
	"sessionMerged":            {`"session":<sessionObject>,"mergedSessions":[<list:1:2:mergedSession>]`},
	"sessionClosed":            {`"session":<sessionObject>`},
	"sessionStarted":           {`"session":<sessionObject>`},
	"postViewed":               {`"post":<post>`},
	"userProfileChanged":       {`"patch":<patch>`},
	"campaignDetected":         {`"campaign":<campaign>`},
	"sessionAttributesChanged": {`"patch":<patch>`},
	"productOrdered": {`"order":{"orderId":"<order>","currency":<currency>,"quantity":<int:1:9>,` +
		`<totals>,"paymentMethod":"Wallet","installments":null,"status":"PAID"},"item":<lineItem>`},
	"interestShown": {`"interests":[<list:1:5:quoted>]`},
	"linkOpened":    {`"link":<url>`},

	"mergedSession": {`{"sessionId":"<uuid>","userId":"<uuid>","parentId":"<session>","closeTime":<opened>}`},
	"sessionObject": {`{"sessionId":"<session>","userId":"<user>","parentId":null,` +
		`"externalUserId":<externalIdOrNull>,"window":{"start":<opened>,"end":<time>},` +
		`"closeTime":<time>,"referrer":<referrer>,"landingPageUrl":<url>,"campaign":<campaign>,` +
		`"location":<location>,"client":<client>,"attributes":<attributes>,` +
		`"statistics":{"pageViews":<int:1:40>,"tabViews":<int:1:12>,"orders":<int:0:2>}}`},

	"userObject": {`{"userId":"<user>","externalUserId":<externalIdOrNull>,"firstName":<firstName>,` +
		`"lastName":<lastName>,"birthDate":<birthDate>,"gender":<gender>,"email":<email>,` +
		`"alternateEmail":null,"phone":<phone>,"alternatePhone":null,"address":<address>,` +
		`"avatar":null,"company":<company>,"companyUrl":null,"jobTitle":<jobTitle>,` +
		`"activities":<words>,"interests":<words>,"customAttributes":<attributes>,` +
		`"lastModifiedTime":<time>,"statistics":{"orders":<int:0:30>,"sessions":<int:1:200>}}`},

	"cart": {`{"currency":<currency>,"items":[<list:2:4:lineItem>],<totals>,"lastUpdateTime":<time>}`},
	"placedOrder": {`{"orderId":"<order>","currency":<currency>,"items":[<list:2:4:lineItem>],` +
		`<totals>,"paymentMethod":<payment>,"installments":<int:1:12>,"status":<orderStatus>}`},
	"totals": {
		`"subtotal":<cents:1000:90000>,"shippingPrice":<cents:0:2500>,"taxes":{"state":<cents:0:900>},` +
			`"costs":{"manufacturing":<cents:100:900>},"discount":null,"total":<cents:1000:99000>,"coupon":null`,
		`"subtotal":<cents:1000:90000>,"shippingPrice":0,"taxes":null,"costs":null,` +
			`"discount":<cents:1:900>,"total":<cents:1000:99000>,"coupon":"SUPER_DEALS"`,
	},
	"lineItem": {`{"index":<item>,"product":<product>,"quantity":<int:1:5>,"total":<cents:900:50000>,` +
		`"discount":<discount>,"coupon":null}`},
	"product": {`{"productId":"<int:1000:99999>","sku":"SKU-<int:100:999>-<int:10:99>","name":<title>,` +
		`"category":<quoted>,"brand":<company>,"variant":<variantName>,"displayPrice":<cents:900:50000>,` +
		`"originalPrice":<discount>,"url":<url>,` +
		`"imageUrl":"https://img.shop.example/<noise>/<int:1:9>.png"}`},
	"location": {`{<place>,"population":<population>,"postalCode":"<int:10000:99999>-<int:100:999>",` +
		`"languages":[<list:1:2:locale>],"tags":[<list:0:3:quoted>],"source":<locationSource>}`},
	"campaign": {`{"name":<quoted>,"source":<quoted>,"medium":"email","content":<title>,"term":null}`},
	"post": {`{"postId":"<int:1:99999>","url":<url>,"title":<title>,"tags":[<list:0:4:quoted>],` +
		`"categories":[<quoted>],"authors":[<firstName>],"publishTime":<opened>,"updateTime":null}`},
	"patch": {`{"operations":[<list:1:4:operation>]}`},
	"operation": {
		`{"type":"set","path":"custom.<word>","value":<title>}`,
		`{"type":"add","path":"interests","value":<quoted>}`,
		`{"type":"increment","path":"custom.visits","value":<int:1:3>}`,
		`{"type":"merge","path":"custom.<word>","value":{"<word>":<big>}}`,
		`{"type":"unset","path":"custom.<word>"}`,
	},
	"timeZone":    {"timeZone"},
	"population":  {`<int:900:22000000>`, `null`},
	"value":       {`<cents:100:90000>`},
	"audienceSet": {"audiences"},
	"version":     {`<int:1:9>`},
	"words":       {`[<list:0:4:quoted>]`},
}
