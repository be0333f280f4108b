package exportapi_test

import (
	"fmt"
	"strings"
	"testing"

	"exportbridge/bridge/exportapi"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		vars map[string]string
		want string // a part of the error; empty for none
	}{
		"defaults":              {map[string]string{"EXPORT_URL": ""}, ""},
		"no URL":                {map[string]string{"EXPORT_URL": "api.example"}, "EXPORT_URL"},
		"a password in the URL": {map[string]string{"EXPORT_URL": "https://user:sk-test@api.example"}, "EXPORT_URL"},
		"a broken URL":          {map[string]string{"EXPORT_URL": "https://user:sk-test@api .example"}, "EXPORT_URL"},
		"a query in the URL":    {map[string]string{"EXPORT_URL": "https://api.example?key=sk-test"}, "EXPORT_URL"},
		"ftp":                   {map[string]string{"EXPORT_URL": "ftp://api.example"}, "EXPORT_URL"},
		"http to another host":  {map[string]string{"EXPORT_URL": "http://api.example"}, "EXPORT_INSECURE_HTTP"},
		"http, allowed": {map[string]string{"EXPORT_URL": "http://api.example", "EXPORT_INSECURE_HTTP": "true"},
			""},
		"http to this host":      {map[string]string{"EXPORT_URL": "http://localhost:4000"}, ""},
		"http to this host, v6":  {map[string]string{"EXPORT_URL": "http://[::1]:4000"}, ""},
		"http to a lookalike":    {map[string]string{"EXPORT_URL": "http://localhost.example"}, "EXPORT_URL"},
		"metadata address":       {map[string]string{"EXPORT_URL": "https://169.254.169.254"}, "link-local"},
		"metadata address, v4v6": {map[string]string{"EXPORT_URL": "https://[::ffff:169.254.169.254]"}, "link-local"},
		"link-local, v6":         {map[string]string{"EXPORT_URL": "https://[fe80::1%25eth0]"}, "link-local"},
		"metadata of Azure":      {map[string]string{"EXPORT_URL": "https://168.63.129.16"}, "EXPORT_ALLOW_LINK_LOCAL"},
		"metadata of AWS, v6":    {map[string]string{"EXPORT_URL": "https://[fd00:ec2::254]"}, "EXPORT_ALLOW_LINK_LOCAL"},
		"metadata, allowed": {map[string]string{"EXPORT_URL": "https://[fd00:ec2::254]",
			"EXPORT_ALLOW_LINK_LOCAL": "true"}, ""},
		"link-local, allowed": {map[string]string{"EXPORT_URL": "https://169.254.169.254",
			"EXPORT_ALLOW_LINK_LOCAL": "true"}, ""},
		"link-local by http": {map[string]string{"EXPORT_URL": "http://169.254.169.254",
			"EXPORT_INSECURE_HTTP": "true"}, "EXPORT_ALLOW_LINK_LOCAL"},
		"http, link-local": {map[string]string{"EXPORT_URL": "http://169.254.169.254",
			"EXPORT_ALLOW_LINK_LOCAL": "true"}, "EXPORT_INSECURE_HTTP"},
		"page size 0":            {map[string]string{"EXPORT_PAGE_SIZE": "0"}, "EXPORT_PAGE_SIZE"},
		"page size 1001":         {map[string]string{"EXPORT_PAGE_SIZE": "1001"}, "EXPORT_PAGE_SIZE"},
		"page size 1":            {map[string]string{"EXPORT_PAGE_SIZE": "1"}, ""},
		"unknown resource":       {map[string]string{"EXPORT_RESOURCE": "orders"}, "EXPORT_RESOURCE"},
		"an empty event":         {map[string]string{"EXPORT_EVENTS": "a,,b"}, "EXPORT_EVENTS"},
		"no time-out":            {map[string]string{"EXPORT_TIMEOUT": "0s"}, "EXPORT_TIMEOUT"},
		"no response":            {map[string]string{"EXPORT_MAX_RESPONSE_BYTES": "0"}, "EXPORT_MAX_RESPONSE_BYTES"},
		"a path with a query":    {map[string]string{"EXPORT_PATH": "/a?b"}, "EXPORT_PATH"},
		"rate":                   {map[string]string{"EXPORT_RATE_LIMIT": "600/m"}, ""},
		"rate in hours":          {map[string]string{"EXPORT_RATE_LIMIT": "0.5 / h"}, ""},
		"rate without a unit":    {map[string]string{"EXPORT_RATE_LIMIT": "10"}, "EXPORT_RATE_LIMIT"},
		"rate of nothing":        {map[string]string{"EXPORT_RATE_LIMIT": "0/s"}, "EXPORT_RATE_LIMIT"},
		"rate below nothing":     {map[string]string{"EXPORT_RATE_LIMIT": "-1/s"}, "EXPORT_RATE_LIMIT"},
		"rate of no number":      {map[string]string{"EXPORT_RATE_LIMIT": "NaN/s"}, "EXPORT_RATE_LIMIT"},
		"rate in days":           {map[string]string{"EXPORT_RATE_LIMIT": "1/d"}, "EXPORT_RATE_LIMIT"},
		"proxy":                  {map[string]string{"EXPORT_PROXY": "socks5://user:sk-test@proxy.example:1080"}, ""},
		"proxy of the system":    {map[string]string{"EXPORT_PROXY": "environment"}, ""},
		"proxy without a scheme": {map[string]string{"EXPORT_PROXY": "user:sk-test@proxy.example:1080"}, "EXPORT_PROXY"},
		"no certificate":         {map[string]string{"EXPORT_TLS_CA": "/etc/ca.pem"}, "EXPORT_TLS_CA"},
		"no header":              {map[string]string{"EXPORT_KEY_HEADER": "X Api"}, "EXPORT_KEY_HEADER"},
		"key with a break":       {map[string]string{"EXPORT_API_KEY": "sk-test\nx"}, "EXPORT_API_KEY"},
		"prefix with a break":    {map[string]string{"EXPORT_KEY_PREFIX": "a\rb"}, "EXPORT_KEY_PREFIX"},
		"fields alike": {map[string]string{"EXPORT_ITEMS_FIELD": "x", "EXPORT_CURSOR_FIELD": "x"},
			"EXPORT_ITEMS_FIELD"},
		"bounds in values":        {map[string]string{"EXPORT_PARAMS": "q={start}..{end}"}, ""},
		"a placeholder of no use": {map[string]string{"EXPORT_PARAMS": "q={from}"}, "EXPORT_PARAMS"},
		"a brace of the value":    {map[string]string{"EXPORT_PARAMS": "q=%7Bfrom}"}, ""},
		"a bound twice": {map[string]string{"EXPORT_PARAMS": "q={start}", "EXPORT_START_PARAM": "since"},
			"EXPORT_START_PARAM"},
		"a bound that is no JSON": {map[string]string{"EXPORT_PARAMS": "q:={start}", "EXPORT_METHOD": "POST",
			"EXPORT_TIME_FORMAT": "rfc3339"}, "EXPORT_TIME_FORMAT"},
		"parameters alike": {map[string]string{"EXPORT_CURSOR_PARAM": "x", "EXPORT_KEY_QUERY": "x"},
			"EXPORT_KEY_QUERY"},
		"cursor alone, URL": {map[string]string{"EXPORT_CURSOR_ALONE": "true", "EXPORT_CURSOR_IN": "next-url"},
			"EXPORT_CURSOR_ALONE is true, but a next URL (EXPORT_CURSOR_IN=next-url) is requested as it is"},
		"cursor alone, link": {map[string]string{"EXPORT_CURSOR_ALONE": "true", "EXPORT_CURSOR_IN": "link"},
			"EXPORT_CURSOR_ALONE"},
		"a cursor without a parameter": {map[string]string{"EXPORT_CURSOR_PARAM": "none"}, "EXPORT_CURSOR_PARAM is none"},
		"a next URL needs none": {map[string]string{"EXPORT_CURSOR_PARAM": "none", "EXPORT_CURSOR_IN": "next-url",
			"EXPORT_CURSOR_FIELD": "next"}, ""},
		"cursor alone, number": {map[string]string{"EXPORT_CURSOR_ALONE": "true", "EXPORT_CURSOR_IN": "page-number"},
			"EXPORT_CURSOR_ALONE is true, but a number"},
		"cursor alone, item": {map[string]string{"EXPORT_CURSOR_ALONE": "true", "EXPORT_CURSOR_IN": "last-item",
			"EXPORT_CURSOR_FIELD": "/id"}, ""},
		"metadata by a pointer":  {map[string]string{"EXPORT_METADATA_FIELD": "/a/b"}, "EXPORT_METADATA_FIELD"},
		"no metadata":            {map[string]string{"EXPORT_METADATA_FIELD": "none"}, ""},
		"metadata are the items": {map[string]string{"EXPORT_METADATA_FIELD": "items"}, "EXPORT_METADATA_FIELD"},
		"items by pointers": {map[string]string{"EXPORT_ITEM_ID": "/uuid,/id",
			"EXPORT_ITEM_TIME": "/published,/a~1b/0", "EXPORT_ITEM_TIME_FORMAT": "rfc3339", "EXPORT_ITEM_TYPE": "/",
			"EXPORT_ITEM_SUBJECT": "none", "EXPORT_ITEM_INGESTED": "none"}, ""},
		"items with few times": {map[string]string{"EXPORT_ITEM_TIME": "/a,/b,none", "EXPORT_ITEM_TIME_FORMAT": "s"}, ""},
		"few times, no format": {map[string]string{"EXPORT_ITEM_TIME": "/a,none", "EXPORT_ITEM_TIME_FORMAT": "none"},
			"EXPORT_ITEM_TIME is set, but EXPORT_ITEM_TIME_FORMAT=none"},
		"items without times": {map[string]string{"EXPORT_ITEM_TIME": "none", "EXPORT_ITEM_TIME_FORMAT": "none"}, ""},
		"a comma in a name": {map[string]string{"EXPORT_ITEM_ID": "/a,b"},
			`EXPORT_ITEM_ID "b": each JSON pointer must begin with /; a comma separates pointers, so a name with a comma ` +
				`cannot be selected`},
		"a tilde in a name": {map[string]string{"EXPORT_ITEM_TYPE": "/a~b"},
			`EXPORT_ITEM_TYPE "/a~b": a JSON pointer must escape ~ as ~0 and / as ~1`},
		"a tilde at the end": {map[string]string{"EXPORT_ITEM_SUBJECT": "/a~"}, `escape ~ as ~0 and / as ~1`},
		"none among pointers": {map[string]string{"EXPORT_ITEM_ID": "/a,none"},
			`EXPORT_ITEM_ID "none": none must stand alone, or last in EXPORT_ITEM_TIME`},
		"none before the time": {map[string]string{"EXPORT_ITEM_TIME": "none,/a"},
			`EXPORT_ITEM_TIME "none": none must stand alone, or last`},
		"an id of no pointer":   {map[string]string{"EXPORT_ITEM_ID": "eventId"}, "EXPORT_ITEM_ID"},
		"a time of no pointer":  {map[string]string{"EXPORT_ITEM_TIME": "/a~2"}, "EXPORT_ITEM_TIME"},
		"ingestion, no pointer": {map[string]string{"EXPORT_ITEM_INGESTED": "/a,b"}, "EXPORT_ITEM_INGESTED"},
		"a type or none":        {map[string]string{"EXPORT_ITEM_TYPE": "/a,none"}, "EXPORT_ITEM_TYPE"},
		"a subject twice":       {map[string]string{"EXPORT_ITEM_SUBJECT": "/a,/a"}, "EXPORT_ITEM_SUBJECT"},
		"a format of its own":   {map[string]string{"EXPORT_ITEM_TIME_FORMAT": "iso8601"}, "EXPORT_ITEM_TIME_FORMAT"},
		"a time but no format": {map[string]string{"EXPORT_ITEM_TIME": "/a", "EXPORT_ITEM_TIME_FORMAT": "none"},
			"EXPORT_ITEM_TIME"},
		"ingestion, no format": {map[string]string{"EXPORT_ITEM_INGESTED": "/a", "EXPORT_ITEM_TIME_FORMAT": "none"},
			"EXPORT_ITEM_INGESTED"},
		"a parameter taken": {map[string]string{"EXPORT_CURSOR_PARAM": "start"}, "EXPORT_CURSOR_PARAM"},
		"a pointer that is none": {map[string]string{"EXPORT_ITEMS_FIELD": "/a~2"},
			`EXPORT_ITEMS_FIELD "/a~2" a JSON pointer must escape`},
		"a cursor pointer": {map[string]string{"EXPORT_CURSOR_FIELD": "/a~"}, `EXPORT_CURSOR_FIELD "/a~"`},
		"a more pointer":   {map[string]string{"EXPORT_MORE_FIELD": "!/a~"}, `EXPORT_MORE_FIELD "/a~"`},
		"items inside the cursor": {map[string]string{"EXPORT_ITEMS_FIELD": "/a/b", "EXPORT_CURSOR_FIELD": "a"},
			"EXPORT_CURSOR_FIELD"},
		"cursor inside the items": {map[string]string{"EXPORT_ITEMS_FIELD": "a", "EXPORT_CURSOR_FIELD": "/a/b"},
			"EXPORT_CURSOR_FIELD"},
		"more is the cursor":  {map[string]string{"EXPORT_MORE_FIELD": "!nextCursor"}, "EXPORT_MORE_FIELD"},
		"cursor is the items": {map[string]string{"EXPORT_CURSOR_FIELD": "/items"}, "EXPORT_CURSOR_FIELD"},
		"nowhere":             {map[string]string{"EXPORT_CURSOR_IN": "trailer"}, "EXPORT_CURSOR_IN"},
		"no name of a header": {map[string]string{"EXPORT_CURSOR_IN": "header", "EXPORT_CURSOR_FIELD": "/next"},
			"EXPORT_CURSOR_FIELD"},
		"header by default":    {map[string]string{"EXPORT_CURSOR_IN": "header"}, "EXPORT_CURSOR_FIELD"},
		"last item by default": {map[string]string{"EXPORT_CURSOR_IN": "last-item"}, "EXPORT_CURSOR_FIELD"},
		"first of no number":   {map[string]string{"EXPORT_CURSOR_FIRST": "1"}, "EXPORT_CURSOR_FIRST"},
		"first page": {map[string]string{"EXPORT_CURSOR_FIRST": "one", "EXPORT_CURSOR_IN": "page-number"},
			"EXPORT_CURSOR_FIRST"},
		"page 0": {map[string]string{"EXPORT_CURSOR_FIRST": "0", "EXPORT_CURSOR_IN": "page-number"}, ""},
		"number and cursor": {map[string]string{"EXPORT_CURSOR_FIELD": "next", "EXPORT_CURSOR_IN": "page-number"},
			"EXPORT_CURSOR_FIELD"},
		"offsets of one item": {map[string]string{"EXPORT_PAGE_SIZE": "1", "EXPORT_CURSOR_IN": "offset"},
			"EXPORT_PAGE_SIZE"},
		"two next cursors": {map[string]string{"EXPORT_CURSOR_IN": "link", "EXPORT_CURSOR_FIELD": "next"},
			"EXPORT_CURSOR_FIELD"},
		"a cursor beside root": {map[string]string{"EXPORT_ITEMS_FIELD": "root"}, "EXPORT_CURSOR_IN"},
		"a next URL beside root": {map[string]string{"EXPORT_ITEMS_FIELD": "root", "EXPORT_CURSOR_IN": "next-url"},
			"EXPORT_CURSOR_IN"},
		"more beside root": {map[string]string{"EXPORT_ITEMS_FIELD": "root", "EXPORT_CURSOR_IN": "link",
			"EXPORT_MORE_FIELD": "more"}, "EXPORT_MORE_FIELD"},
		"a member named root": {map[string]string{"EXPORT_ITEMS_FIELD": "/root"}, ""},
		"POST to a next URL": {map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_METHOD": "POST"},
			"EXPORT_METHOD"},
		"POST with a query key": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_KEY_QUERY": "api_key"}, ""},
		"PUT":                   {map[string]string{"EXPORT_METHOD": "PUT"}, "EXPORT_METHOD"},
		"a time format":         {map[string]string{"EXPORT_TIME_FORMAT": "iso"}, "EXPORT_TIME_FORMAT"},
		"times of no format":    {map[string]string{"EXPORT_TIME_FORMAT": "none"}, "EXPORT_TIME_FORMAT"},
		"start and end alike": {map[string]string{"EXPORT_START_PARAM": "t", "EXPORT_END_PARAM": "t"},
			"EXPORT_END_PARAM"},
		"neither start nor end": {map[string]string{"EXPORT_START_PARAM": "none", "EXPORT_END_PARAM": "none",
			"EXPORT_PAGE_SIZE_PARAM": "none"}, ""},
		"larger pages":           {map[string]string{"EXPORT_MAX_PAGE_SIZE": "5000", "EXPORT_PAGE_SIZE": "5000"}, ""},
		"smaller pages":          {map[string]string{"EXPORT_MAX_PAGE_SIZE": "100"}, "EXPORT_PAGE_SIZE"},
		"giant pages":            {map[string]string{"EXPORT_MAX_PAGE_SIZE": "10001"}, "EXPORT_MAX_PAGE_SIZE"},
		"static parameters":      {map[string]string{"EXPORT_PARAMS": "a=b%2Cc, d=\ne=f=g"}, ""},
		"no parameter":           {map[string]string{"EXPORT_PARAMS": "a=b,sk-test"}, "EXPORT_PARAMS"},
		"half an escape":         {map[string]string{"EXPORT_PARAMS": "a=sk-test%4"}, "EXPORT_PARAMS"},
		"a parameter of ours":    {map[string]string{"EXPORT_PARAMS": "pageSize=sk-test"}, "EXPORT_PAGE_SIZE_PARAM"},
		"a parameter of ours, %": {map[string]string{"EXPORT_PARAMS": "%73tart=sk-test"}, "EXPORT_START_PARAM"},
		"static headers":         {map[string]string{"EXPORT_HEADERS": "Accept: a/b, c/d\r\n\nx-Tenant:sk-test:1\n"}, ""},
		"no header line":         {map[string]string{"EXPORT_HEADERS": "X-Tenant=sk-test"}, "EXPORT_HEADERS"},
		"a header without value": {map[string]string{"EXPORT_HEADERS": "X-Tenant:"}, "EXPORT_HEADERS"},
		"a header twice": {map[string]string{"EXPORT_HEADERS": "X-Tenant: sk-test\nx-tenant: sk-test"},
			"EXPORT_HEADERS"},
		"a header of ours": {map[string]string{"EXPORT_HEADERS": "accept-encoding: br"}, "EXPORT_HEADERS"},
		"the key's header": {map[string]string{"EXPORT_HEADERS": "x-api-key: sk-test"}, "EXPORT_HEADERS"},
		"key parameter, basic": {map[string]string{"EXPORT_AUTH": "basic", "EXPORT_AUTH_USER": "ann",
			"EXPORT_KEY_QUERY": "k"}, "EXPORT_KEY_QUERY is set without EXPORT_AUTH=key; unset it, or set EXPORT_AUTH=key"},
		"key prefix, basic": {map[string]string{"EXPORT_AUTH": "basic", "EXPORT_AUTH_USER": "ann",
			"EXPORT_KEY_PREFIX": "Token"}, "EXPORT_KEY_PREFIX is set without EXPORT_AUTH=key"},
		"key parameter, no key": {map[string]string{"EXPORT_AUTH": "none", "EXPORT_API_KEY": "", "EXPORT_KEY_QUERY": "k"},
			"EXPORT_KEY_QUERY is set without EXPORT_AUTH=key"},
		"scopes for nothing": {map[string]string{"EXPORT_OAUTH2_SCOPES": "read"},
			"EXPORT_OAUTH2_SCOPES is set without EXPORT_AUTH=oauth2"},
		"grant for nothing": {map[string]string{"EXPORT_OAUTH2_PARAMS": "audience"},
			"EXPORT_OAUTH2_PARAMS is set without EXPORT_AUTH=oauth2"},
		"scopes twice": {map[string]string{"EXPORT_AUTH": "oauth2",
			"EXPORT_OAUTH2_TOKEN_URL": "https://login.example/t", "EXPORT_OAUTH2_CLIENT_ID": "a",
			"EXPORT_OAUTH2_SCOPES": "read", "EXPORT_OAUTH2_PARAMS": "scope=all"},
			"EXPORT_OAUTH2_PARAMS has scope, which EXPORT_OAUTH2_SCOPES sets; set it there only"},
		"scope as parameter": {map[string]string{"EXPORT_AUTH": "oauth2",
			"EXPORT_OAUTH2_TOKEN_URL": "https://login.example/t", "EXPORT_OAUTH2_CLIENT_ID": "a",
			"EXPORT_OAUTH2_PARAMS": "scope=all"}, ""},
		"key in a header of ours": {map[string]string{"EXPORT_KEY_HEADER": "content-type"}, "EXPORT_KEY_HEADER"},
		"key in the host":         {map[string]string{"EXPORT_KEY_HEADER": "Host"}, "EXPORT_KEY_HEADER"},
		"key parameter instead":   {map[string]string{"EXPORT_KEY_HEADER": "Host", "EXPORT_KEY_QUERY": "k"}, ""},
		"more, turned":            {map[string]string{"EXPORT_MORE_FIELD": "!has_more"}, `"!has_more": by its name`},
		"done, not turned":        {map[string]string{"EXPORT_MORE_FIELD": "isLast"}, `"isLast": by its name`},
		"end, not turned":         {map[string]string{"EXPORT_MORE_FIELD": "end_of_stream"}, `"end_of_stream": by its name`},
		"more without a name":     {map[string]string{"EXPORT_MORE_FIELD": "!"}, "EXPORT_MORE_FIELD"},
		"ingested, no time":       {map[string]string{"EXPORT_ITEM_TIME": "none", "EXPORT_ITEM_INGESTED": "/a"}, ""},
		"a parameter events":      {map[string]string{"EXPORT_PARAMS": "events=all"}, ""},
		"a start named events":    {map[string]string{"EXPORT_START_PARAM": "events"}, ""},
		"events twice": {map[string]string{"EXPORT_PARAMS": "events=sk-test", "EXPORT_EVENTS": "a"},
			"EXPORT_EVENTS"},
		"a cursor path, next URL": {map[string]string{"EXPORT_CURSOR_PATH": "/x", "EXPORT_CURSOR_IN": "link"},
			"EXPORT_CURSOR_PATH is set, but a next URL (EXPORT_CURSOR_IN=link) names its own path"},
		"a cursor path, query": {map[string]string{"EXPORT_CURSOR_PATH": "/x?y"},
			"EXPORT_CURSOR_PATH must be a path without query"},
		"a path, half an escape": {map[string]string{"EXPORT_PATH": "/100%"}, "EXPORT_PATH must be a path"},
		"a next URL, unknown": {map[string]string{"EXPORT_NEXT_URL": "host", "EXPORT_CURSOR_IN": "link"},
			`EXPORT_NEXT_URL "host" is not one of: whole, path`},
		"a next URL, no URL": {map[string]string{"EXPORT_NEXT_URL": "path"},
			"EXPORT_NEXT_URL is path, but EXPORT_CURSOR_IN=body has no next URL"},
		"parameters, unknown": {map[string]string{"EXPORT_NEXT_PARAMS": "add", "EXPORT_CURSOR_IN": "link"},
			`EXPORT_NEXT_PARAMS "add" is not one of: warn, keep, add-missing`},
		"parameters, no URL": {map[string]string{"EXPORT_NEXT_PARAMS": "add-missing"},
			"EXPORT_NEXT_PARAMS is add-missing, but EXPORT_CURSOR_IN=body has no next URL"},
		"a login in the URL": {map[string]string{"EXPORT_URL": "https://ann:sk-test/x@api.example"},
			"EXPORT_URL must not contain a user or password"},
		"a login like a port": {map[string]string{"EXPORT_URL": "https://ann:12/x@api.example"},
			"EXPORT_URL must not contain a user or password"},
		"an @ in the path": {map[string]string{"EXPORT_URL": "https://api.example/@ann"}, ""},
		"a slash in a password": {map[string]string{"EXPORT_PROXY": "http://ann:sk-test/x@proxy.example:3128"},
			"percent-encode special characters in its user and password: / is %2F"},
		"a place, GET": {map[string]string{"EXPORT_PARAMS": "/filter/a=sk-test"},
			`EXPORT_PARAMS "/filter/a" is a JSON pointer into a body, but EXPORT_METHOD=GET sends a query`},
		"a place of start, GET": {map[string]string{"EXPORT_START_PARAM": "/filter/from"},
			`EXPORT_START_PARAM "/filter/from" is a JSON pointer`},
		"a place of the key": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_KEY_QUERY": "/key"},
			`EXPORT_KEY_QUERY "/key" is a JSON pointer, but the key is sent in the query`},
		"a malformed place": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_CURSOR_PARAM": "/a~2"},
			`EXPORT_CURSOR_PARAM "/a~2": a JSON pointer must escape`},
		"a place without a name": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_PAGE_SIZE_PARAM": "/page/"},
			`EXPORT_PAGE_SIZE_PARAM "/page/" is a JSON pointer to a member without a name`},
		"one place twice": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_START_PARAM": "/f/t",
			"EXPORT_END_PARAM": "/f/t"}, `EXPORT_END_PARAM "/f/t" is already the parameter of EXPORT_START_PARAM`},
		"a place inside another": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_PAGE_SIZE_PARAM": "/page/limit",
			"EXPORT_CURSOR_PARAM": "page"},
			`EXPORT_PAGE_SIZE_PARAM "/page/limit" is already the parameter of EXPORT_CURSOR_PARAM`},
		"a static place, taken": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_CURSOR_PARAM": "/page/cursor",
			"EXPORT_PARAMS": `page:={"limit":5}`},
			`EXPORT_PARAMS has "page", which is already the parameter of EXPORT_CURSOR_PARAM`},
		"static places, inside": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_PARAMS": `f:={"a":1},/f/b=2`},
			`EXPORT_PARAMS has "/f/b" inside another of its parameters`},
		"static places, beside": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_PARAMS": `/f/a=1,/f/b=2`}, ""},
		"no JSON value": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_PARAMS": `a=1,ids:=[7,sk-test`},
			`EXPORT_PARAMS has "ids" with := and no JSON value, for example ids:=true`},
		"a JSON value, GET": {map[string]string{"EXPORT_PARAMS": `ids:=[7]`},
			`EXPORT_PARAMS has "ids" with := for a JSON value, but EXPORT_METHOD=GET sends text; write ids=value`},
		"a JSON value, bounds in microseconds": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_TIME_FORMAT": "us",
			"EXPORT_START_PARAM": "none", "EXPORT_PARAMS": `f:={"gte":{start}}`}, ""},
		"events of users":     {map[string]string{"EXPORT_RESOURCE": "users", "EXPORT_CURSOR_PARAM": "events"}, ""},
		"a status of the key": {map[string]string{"EXPORT_CURSOR_STATUSES": "400,401"}, "EXPORT_CURSOR_STATUSES"},
		"a server's status":   {map[string]string{"EXPORT_CURSOR_STATUSES": "500"}, "EXPORT_CURSOR_STATUSES"},
		"no status":           {map[string]string{"EXPORT_CURSOR_STATUSES": "gone"}, "EXPORT_CURSOR_STATUSES"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, tc.vars)
			if tc.vars["EXPORT_URL"] == "" {
				cfg.URL = "https://api.example/export"
			}
			err := cfg.Validate()
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				connect(t, cfg)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line that names %s", err, tc.want)
			}
			if _, errNew := exportapi.New(cfg); errNew == nil {
				t.Error("New takes it")
			}
			wantClean(t, err)
		})
	}
}

func TestValidateReportsAll(t *testing.T) {
	t.Parallel()
	bad := []string{"bad"}
	cfg := exportapi.Config{ItemMapping: exportapi.ItemMapping{ItemID: bad, ItemTime: bad, ItemTimeFormat: "bad",
		ItemIngested: bad, ItemType: bad, ItemSubject: bad}}
	err := cfg.Validate()
	for _, name := range []string{
		"EXPORT_URL", "EXPORT_API_KEY", "EXPORT_RESOURCE", "EXPORT_PAGE_SIZE", "EXPORT_TIMEOUT", "EXPORT_MAX_RESPONSE_BYTES",
		"EXPORT_ITEMS_FIELD",
		"EXPORT_CURSOR_FIELD", "EXPORT_CURSOR_PARAM", "EXPORT_PAGE_SIZE_PARAM", "EXPORT_AUTH",
		"EXPORT_ITEM_ID", "EXPORT_ITEM_TIME ", "EXPORT_ITEM_TIME_FORMAT", "EXPORT_ITEM_INGESTED", "EXPORT_ITEM_TYPE",
		"EXPORT_ITEM_SUBJECT",
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in %v", name, err)
		}
	}
}

// TestContradictions: one error names all problems.
func TestContradictions(t *testing.T) {
	t.Parallel()
	cfg := config(t, map[string]string{
		"EXPORT_ITEMS_FIELD": "root", "EXPORT_CURSOR_IN": "next-url", "EXPORT_CURSOR_FIELD": "/a~",
		"EXPORT_MORE_FIELD": "more", "EXPORT_METHOD": "POST",
		"EXPORT_TIME_FORMAT": "iso", "EXPORT_MAX_PAGE_SIZE": "10", "EXPORT_PARAMS": "cursor=x", "EXPORT_HEADERS": "sk-test",
		"EXPORT_CURSOR_STATUSES": "200",
	})
	err := cfg.Validate()
	for _, name := range []string{
		"EXPORT_CURSOR_IN", "EXPORT_MORE_FIELD", "EXPORT_METHOD", "EXPORT_TIME_FORMAT", "EXPORT_PAGE_SIZE", "EXPORT_PARAMS",
		"EXPORT_HEADERS", "EXPORT_CURSOR_STATUSES",
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in %v", name, err)
		}
	}
	wantClean(t, err)
}

func TestNewRejectsKeyPointer(t *testing.T) {
	t.Parallel()
	for _, pointer := range []string{"userId", "/a~2", "/a~", "/~~0", "a/b"} {
		cfg := config(t, nil)
		cfg.KeyPointer = pointer
		if _, err := exportapi.New(cfg); err == nil || !strings.Contains(err.Error(), pointer) ||
			!strings.Contains(err.Error(), "KAFKA_KEY") {
			t.Errorf("%q: got %v, want an error that quotes it and names its setting", pointer, err)
		}
	}
}

func TestConfigKeepsSecrets(t *testing.T) {
	t.Parallel()
	cfg := config(t, map[string]string{"EXPORT_PROXY": "http://user:sk-test@proxy.example", "EXPORT_PARAMS": "a=sk-test",
		"EXPORT_HEADERS": "A: sk-test"})
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, cfg); strings.Contains(text, "sk-test") {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}
