package exportsim

// vocabulary has the values of all schemas, as JSON. They test a reader: unicode plain and
// escaped, surrogate pairs, escaped slashes, floats in every notation, integers beyond
// 2^53, spaces between tokens, and strings that look like the page around them.
var vocabulary = map[string][]string{
	"context": {
		`{"type":"web","metadata":{<metadata>},"tabId":"<tab>","url":<url>}`,
		`{"type":"web","metadata":{<metadata>},"tabId":"<tab>","url":<url>}`,
		`{"type":"web","metadata":{"theme":"dark",<metadata>},"tabId":"<tab>","url":<url>}`,
		`{"type":"web","metadata":{},"tabId":"<tab>","url":<url>}`,
		`{"type":"web","tabId":"<tab>","url":<url>}`,
		`{"type":"web","metadata":{<metadata>,"referrerGroup":<quoted>},"tabId":"<tab>","url":<url>}`,
		`null`,
	},
	"metadata": {
		`"viewport":"<int:320:2560>x<int:480:1600>","connection":"4g","sdk":"plug-js@0.<int:10:18>.<int:0:9>",` +
			`"canonicalUrl":<url>,"landingPage":<url>,"visitorGroup":"<word>,<word>,<word>"`,
		`"build":"<noise>","experiment":"<word>-<int:1:99>","consent":"analytics,marketing","pageTitle":<title>,` +
			`"searchTerms":<title>,"previousUrl":<url>`,
		`"pageTitle":<title>,"scrollDepth":"<int:0:100>%",` +
			`"agent":"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML,` +
			` like Gecko) Chrome/<int:110:131>.0.0.0 Safari/537.36 Edg/<int:110:131>.0.0.0"`,
	},
	"url": {
		`"https://shop.example/<word>/<word>-<int:100:9999>?utm_source=<word>&utm_medium=cpc&sid=<noise>"`,
		`"https://shop.example/busca?q=caf%C3%A9+<word>&page=<int:1:40>&sid=<noise>"`,
		`"https:\/\/shop.example\/<word>\/<int:1:999>#<word>"`,
		`"https://shop.example/"`,
		`"https://www.shop.example/en/<word>/<word>/<int:1:9999>.html?color=<word>&size=<int:30:48>"`,
	},
	"referrer": {
		`"https://www.google.com/"`, `"https://news.example/<word>/<int:1:99999>"`, `null`,
		`"https://shop.example/<word>?from=<word>&sid=<noise>"`,
	},
	"userAgent": {
		`"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML,` +
			` like Gecko) Chrome/<int:110:131>.0.0.0 Safari/537.36"`,
		`"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML,` +
			` like Gecko) Version/18.1 Mobile/15E148 Safari/604.1"`,
		`"Mozilla/5.0 (X11; Linux x86_64; rv:<int:110:132>.0) Gecko/20100101 Firefox/<int:110:132>.0"`,
		`null`,
	},
	"languages": {`"pt-BR,pt;q=0.9,en;q=0.8"`, `"en-US,en;q=0.9"`, `"ja,en-US;q=0.7,en;q=0.3"`, `null`},
	"title": {
		`"Caf\u00e9 especial \u2014 torra <word>"`, `"スマートフォン <int:10:99> プロ"`,
		`"Men's \"<word>\" shoes | 50% off"`, `"Launch \ud83d\ude80 week \\ part <int:1:9>"`,
		`"Ärmelloses Kleid, Größe <int:34:46>"`, `"Line one\nline two\t(<word>)"`,
		`"Zażółć gęślą jaźń 🎉 <word>"`, `"Plain <word> and <word>"`,
	},
	"word": {
		"summer", "sale", "phones", "shoes", "garden", "coffee", "books", "running", "travel", "kids",
		"outlet", "premium", "gifts", "audio", "camping", "winter", "office", "lighting", "beauty", "games",
	},
	"quoted":      {`"<word>"`, `"<word> & <word>"`, `"<word>"`},
	"variantName": {`"64GB <word>"`, `"azul-marinho / <int:34:46>"`, `null`},
	"discount":    {`<cents:100:9000>`, `null`, `1.5E+2`, `0.0`},
	"currency":    {`"BRL"`, `"USD"`, `"EUR"`, `"JPY"`},
	"payment":     {`"Credit Card"`, `"Pix"`, `"Wallet"`, `null`},
	"orderStatus": {`"PLACED"`, `"PAID"`, `"COMPLETED"`, `null`},
	"occurrence":  {`"pollAnswered"`, `"onboardingStarted"`, `"videoPlayed"`, `"søk"`},
	"locale":      {`"pt-br"`, `"en-us"`, `"de-de"`, `"ja-jp"`},
	"audience":    {`"Returning customers"`, `"Mobile visitors from S\u00e3o Paulo"`},
	"slotVersion": {`{"majorVersion":<version>,"minorVersion":<version>}`, `null`},
	"variant":     {`{"experimentId":"<uuid>","variantId":"<uuid>"}`, `null`},
	"point":       {`{"x":<int:0:2560>,"y":<int:0:9000>}`},
	"size":        {`{"width":<int:320:2560>,"height":<int:480:9000>}`},
	"firstName":   {`"João"`, `"Mary-Ann"`, `"Łukasz"`, `"さくら"`, `"Zo\u00eb"`},
	"lastName":    {`"O'Brien"`, `"da Silva"`, `"Kowalska"`, `"佐藤"`, `null`},
	"birthDate":   {`-<int:1:99999999>000`, `<int:1:999999999>000`, `null`},
	"gender":      {`"female"`, `"male"`, `"neutral"`, `"unknown"`},
	"email":       {`"<word>.<int:1:99999>@mail.example"`, `null`},
	"phone":       {`"+55 11 9<int:1000:9999>-<int:1000:9999>"`, `null`},
	"company":     {`"Acme"`, `"Globex \u0026 Sons"`, `"株式会社サンプル"`, `null`},
	"jobTitle":    {`"Head of \"<word>\""`, `"Engineer"`, `null`},
	"externalId":  {`"customer-<noise>"`, `"<int:1:9999999>"`, `"auth0|<noise>"`},
	"address": {`{"street":"Rua das Flores, <int:1:2000>","district":null,"city":"São Paulo","region":"SP",` +
		`"country":"BR","postalCode":"0<int:1000:9999>-000"}`, `{"city":"Berlin","country":"DE"}`},
	"audienceEntry": {`{"id":"<uuid>","name":<audience>,"customId":"<word>-<int:1:99>"}`,
		`{"id":"<uuid>","name":null,"customId":null}`},
	"externalIdOrNull": {`"customer-<noise>"`, `null`},
	"locationSource":   {`"IP"`, `"BROWSER"`, `"GPS"`, `null`},
	"attributes": {
		`{}`, `{"plan":<quoted>,"seats":<int:1:500>,"accountNumber":<big>}`,
		`{"score":<micro:0:1000000>,"tags":["<word>",null,true],"nested":{"deep":{"er":[1,2.50,-0.0]}}}`,
	},
	"details": {
		`{"transaction":<big>,"ratio":1.0E-7,"answer":<title>}`,
		`{ "spaced" : [ 1, 2 , 3 ] , "nextCursor" : "not the cursor" , "items" : [ ] }`,
		`{"quote":"\",\"nextCursor\":\"neither is this\"}","emoji":"👩‍👩‍👧","precise":3.14159265358979323846264338327950288}`,
		`{"steps":[{"n":1,"ok":true},{"n":2,"ok":false}],"elapsed":<cents:1:900000>,"max":9223372036854775807}`,
		`{}`,
	},
	"client": {
		`{"browser":{"name":"Chrome","version":"<int:110:131>.0.6778.86","type":"WEB"},"device":{"name":"Mac",` +
			`"vendor":"Apple","category":"DESKTOP","operatingSystem":{"name":"macOS","version":"15.<int:0:2>"}}}`,
		`{"browser":{"name":"Instagram","version":null,"type":"IN_APP"},"device":{"name":"Galaxy S24",` +
			`"vendor":"Samsung","category":"MOBILE","operatingSystem":{"name":"Android","version":"15"}}}`,
		`{"browser":{"name":null,"version":null,"type":"CRAWLER"},"device":{"name":null,"vendor":null,"category":"BOT",` +
			`"operatingSystem":{"name":null,"version":null}}}`,
	},
	"place": {
		`"continent":"SA","country":"BR","region":{"name":"S\u00e3o Paulo","code":"SP"},"city":"São Paulo",` +
			`"district":"Sé","<timeZone>":"America/Sao_Paulo","coordinates":{"latitude":-23.<int:100000:999999>,` +
			`"longitude":-46.<int:100000:999999>},"currency":{"name":"Brazilian Real","code":"BRL"},"phoneCode":"+55"`,
		`"continent":"EU","country":"PL","region":{"name":"Łódzkie","code":"10"},"city":"Łódź","district":null,` +
			`"<timeZone>":"Europe/Warsaw","coordinates":{"latitude":51.<int:100000:999999>,` +
			`"longitude":19.<int:100000:999999>},"currency":{"name":"złoty","code":"PLN"},"phoneCode":"+48"`,
		`"continent":"AS","country":"JP","region":{"name":null,"code":null},"city":"東京","district":null,` +
			`"<timeZone>":"Asia/Tokyo","coordinates":null,"currency":null,"phoneCode":"+81"`,
	},
}
