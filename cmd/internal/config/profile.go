package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// profileConfig selects the profile of a stream.
type profileConfig struct {
	Profile string `env:"EXPORT_PROFILE" stream:"yes" values:"croct,okta-system-log,auth0-logs,github-audit-log,generic" desc:"defaults of the settings for the export API of one service, printed by exportbridge config profile; what is set takes precedence"`
}

var defaultProfile = profileConfig{Profile: "croct"}

// profileVariable names the setting that selects a profile.
const profileVariable = "EXPORT_PROFILE"

// profile has the defaults for the export API of one service.
type profile struct {
	about string
	// values are the defaults that differ from those of croct.
	values map[string]string
	// examples are the settings that have no default, with an example.
	examples map[string]string
}

// linked are the settings of an API that lists an array of items and the next
// page's URL in a Link header.
var linked = map[string]string{
	"EXPORT_ITEMS_FIELD": "root",
	"EXPORT_CURSOR_IN":   "link",
}

// profiles are the services whose public documentation was followed; each has a
// page in docs.
var profiles = map[string]profile{
	"croct": {about: "events, sessions and users of Croct"},
	"okta-system-log": {
		about: "the System Log of an Okta organization, by polling",
		values: with(linked, map[string]string{
			"EXPORT_PATH":             "/api/v1/logs",
			"EXPORT_KEY_HEADER":       "Authorization",
			"EXPORT_KEY_PREFIX":       "SSWS",
			"EXPORT_PAGE_SIZE_PARAM":  "limit",
			"EXPORT_START":            "-90d", // without a start, polling begins now; 90 days are kept
			"EXPORT_START_PARAM":      "since",
			"EXPORT_END_PARAM":        "until",
			"EXPORT_TIME_FORMAT":      "rfc3339",
			"EXPORT_ITEM_ID":          "/uuid",
			"EXPORT_ITEM_TIME":        "/published",
			"EXPORT_ITEM_TIME_FORMAT": "rfc3339",
			"EXPORT_ITEM_INGESTED":    "none",
			"EXPORT_ITEM_TYPE":        "/eventType",
			"EXPORT_ITEM_SUBJECT":     "/actor/id",
			"KAFKA_KEY":               "/actor/id",
			"KAFKA_CE_TYPE_PREFIX":    "com.okta",
			"EXPORT_RATE_LIMIT":       "1/s",
		}),
		examples: map[string]string{"EXPORT_URL": "https://acme.okta.com"},
	},
	"auth0-logs": {
		about: "the logs of an Auth0 tenant, from a log_id on",
		values: with(linked, map[string]string{
			"EXPORT_PATH":             "/api/v2/logs",
			"EXPORT_AUTH":             "oauth2",
			"EXPORT_OAUTH2_SCOPES":    "read:logs",
			"EXPORT_PAGE_SIZE":        "100",
			"EXPORT_MAX_PAGE_SIZE":    "100",
			"EXPORT_PAGE_SIZE_PARAM":  "take",
			"EXPORT_START_PARAM":      "none",
			"EXPORT_END_PARAM":        "none",
			"EXPORT_ITEM_ID":          "/log_id",
			"EXPORT_ITEM_TIME":        "/date",
			"EXPORT_ITEM_TIME_FORMAT": "rfc3339",
			"EXPORT_ITEM_INGESTED":    "none",
			"EXPORT_ITEM_TYPE":        "/type",
			"EXPORT_ITEM_SUBJECT":     "/user_id",
			"KAFKA_KEY":               "/user_id",
			"KAFKA_CE_TYPE_PREFIX":    "com.auth0",
		}),
		examples: map[string]string{
			"EXPORT_URL":              "https://acme.eu.auth0.com",
			"EXPORT_OAUTH2_TOKEN_URL": "https://acme.eu.auth0.com/oauth/token",
			"EXPORT_OAUTH2_CLIENT_ID": "the ID of a machine-to-machine application",
			"EXPORT_OAUTH2_PARAMS":    "audience=https://acme.eu.auth0.com/api/v2/",
			"EXPORT_PARAMS":           "from=the log_id after which to begin",
		},
	},
	"github-audit-log": {
		about: "the audit log of a GitHub organization",
		values: with(linked, map[string]string{
			"EXPORT_URL":             "https://api.github.com",
			"EXPORT_KEY_HEADER":      "Authorization",
			"EXPORT_PARAMS":          "order=asc",
			"EXPORT_PAGE_SIZE":       "100",
			"EXPORT_MAX_PAGE_SIZE":   "100",
			"EXPORT_PAGE_SIZE_PARAM": "per_page",
			"EXPORT_START_PARAM":     "none",
			"EXPORT_END_PARAM":       "none",
			"EXPORT_ITEM_ID":         "/_document_id",
			"EXPORT_ITEM_TIME":       "/@timestamp,/created_at",
			"EXPORT_ITEM_INGESTED":   "none",
			"EXPORT_ITEM_TYPE":       "/action",
			"EXPORT_ITEM_SUBJECT":    "/actor",
			"KAFKA_KEY":              "/actor",
			"KAFKA_CE_TYPE_PREFIX":   "com.github.audit",
			"EXPORT_RATE_LIMIT":      "1700/h",
			"EXPORT_POLL_INTERVAL":   "5s",
		}),
		examples: map[string]string{"EXPORT_PATH": "/orgs/acme/audit-log"},
	},
	"generic": {
		about: "any other API: items with id, type and an RFC 3339 timestamp",
		values: map[string]string{
			"EXPORT_KEY_HEADER":       "Authorization",
			"EXPORT_PAGE_SIZE":        "100",
			"EXPORT_TIME_FORMAT":      "rfc3339",
			"EXPORT_METADATA_FIELD":   "none",
			"EXPORT_ITEM_ID":          "/id",
			"EXPORT_ITEM_TIME":        "/timestamp",
			"EXPORT_ITEM_TIME_FORMAT": "rfc3339",
			"EXPORT_ITEM_INGESTED":    "none",
			"EXPORT_ITEM_TYPE":        "/type",
			"EXPORT_ITEM_SUBJECT":     "none",
			"KAFKA_KEY":               "none",
			"KAFKA_CE_TYPE_PREFIX":    "event",
		},
		examples: map[string]string{"EXPORT_URL": "https://api.example.com/v1", "EXPORT_PATH": "/events"},
	},
}

func with(common, own map[string]string) map[string]string {
	all := maps.Clone(common)
	maps.Copy(all, own)
	return all
}

// ProfileIn returns the profile that the settings name, empty for none.
func ProfileIn(from Sources) (string, error) {
	src, err := from.open()
	if err != nil {
		return "", err
	}
	name, at, err := src.given(&Variable{Name: profileVariable}, "")
	if _, known := profiles[name]; err == nil && name != "" && !known {
		err = fmt.Errorf("%s: %q is not one of: %s", at.describe(profileVariable), name, strings.Join(ProfileNames(), ", "))
	}
	return name, err
}

// ProfileNames lists the profiles, the default first.
func ProfileNames() []string {
	names := slices.Sorted(maps.Keys(profiles))
	slices.SortStableFunc(names, func(a, b string) int {
		rank := func(name string) int { return slices.Index([]string{"generic", defaultProfile.Profile}, name) }
		return rank(b) - rank(a)
	})
	return names
}

// Profiles is a table of the profiles.
func Profiles() [][]string {
	table := [][]string{{"PROFILE", "FOR"}}
	for _, name := range ProfileNames() {
		table = append(table, []string{name, profiles[name].about})
	}
	return table
}

// Profile formats a profile as an environment file, with all but the profile's name
// commented out: what is to be set is named until it is. ok is false for an unknown
// one.
func Profile(name string) (text string, ok bool) {
	p, ok := profiles[name]
	if !ok {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n%s=%s\n", p.about, profileVariable, name)
	for _, v := range variables() {
		if example, missing := p.examples[v.Name]; missing {
			fmt.Fprintf(&b, "#%s='%s'  # to be set\n", v.Name, example)
		} else if value, set := p.values[v.Name]; set {
			fmt.Fprintf(&b, "#%s=%s\n", v.Name, value)
		}
	}
	return b.String(), true
}
