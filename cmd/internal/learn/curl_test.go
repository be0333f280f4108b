package learn_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/learn"
)

// TestParseCurl reads commands as words, and as one word as they are pasted.
func TestParseCurl(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"curl https://h/e?a=1":                                               "GET https://h/e?a=1 [] ",
		"curl -sSH 'X-Api-Key: k k' \\\n  \"https://h/e\"":                   "GET https://h/e [{X-Api-Key k k}] ",
		"curl --url=https://h/e -XPOST -d '{\"a\":1}'":                       `POST https://h/e [] {"a":1}`,
		"curl -G --data a=1 -d b=2 https://h/e":                              "GET https://h/e?a=1&b=2 [] ",
		`curl --json "{\"a\":\"\$\"}" https://h/e#x`:                         `POST https://h/e [] {"a":"$"}`,
		`curl https://h/e --data-raw $'{"a":"it\'s \u0021\x41\\n\"","b":1}'`: `POST https://h/e [] {"a":"it's !A\n"","b":1}`,
		`curl https://h/e -d a$'\u00e9\n' -H 'A: $x'`:                        "POST https://h/e [{A $x}] aé\n",
		"curl 'https://h/e' -d $'a\\'":                                       "quotes of the curl command do not match",
		`curl 'https://h/e' -d $'a\cA'`:                                      `has \c`,
		"curl --compressed -v https://u:p@h/e":                               "GET https://h/e [] ",
		"curl -k https://h/e":                                                "--insecure is refused",
		"curl -sk https://h/e":                                               "--insecure is refused",
		"curl -sSfgL -A me -o out -w '%{http_code}' -m 9 --max-time 9 --connect-timeout 9 --basic --http1.1 --http2 " +
			"--retry 3 'https://h/e?a[b]=1'": "GET https://h/e?a[b]=1 [] ",
		"curl --user-agent me --output out --write-out x --globoff --location https://h/e": "GET https://h/e [] ",
		"curl --oauth2-bearer t -b a=b https://h/e":                                        "GET https://h/e [{Authorization Bearer t} {Cookie a=b}] ",
		"curl -sLo out https://h/e":                                                        "GET https://h/e [] ",
		"curl -b jar https://h/e":                                                          "curl --cookie names a file",
		"curl -x proxy https://h/e":                                                        "curl --proxy is refused: set EXPORT_PROXY",
		"curl --cacert ca https://h/e":                                                     "curl --cacert is refused: set EXPORT_TLS_CA_FILE",
		"curl -F a=b https://h/e":                                                          "curl -F is not supported",
		"curl -d @body https://h/e":                                                        "names a file",
		"curl -H":                                                                          "curl -H has no value",
		"curl -H @headers https://h/e":                                                     "no Name: value",
		"curl -u me https://h/e":                                                           "no user:password",
		"curl -X DELETE https://h/e":                                                       "the method DELETE is not supported",
		"curl -X GET -d a=1 https://h/e":                                                   "GET with a body",
		"curl -X POST --data '' https://h/e":                                               "POST https://h/e [] ",
		"curl --request GET https://h/e -d ''":                                             "GET https://h/e [] ",
		"curl https://h/e https://h/f":                                                     "several URLs",
		"curl h/e":                                                                         "does not begin with https://",
		"curl -s":                                                                          "has no URL",
		"curl 'https://h":                                                                  "quotes of the curl command do not match",
	} {
		r, err := learn.ParseCurl([]string{command})
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(r.Method, " ", r.URL, " ", r.Header, " ", r.Body)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", command, got, want)
		}
	}
	r, err := learn.ParseCurl([]string{"curl", "-H", "A: b", "\\\n", "https://me:secret@h/e"})
	if err != nil || r.User != "me" || r.Password != "secret" || r.URL.User != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCredentials: one credential is the key, and a second one stays out of the profile.
func TestCredentials(t *testing.T) {
	t.Parallel()
	asked := new(atomic.Int64)
	url := odd(t, asked, func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "Sesame" || r.Header.Get("X-Api-Key") != "other" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, `{"items":%s,"next":"c%d"}`, items(int(asked.Load())*10, 10, 1), asked.Load())
	})
	basic := base64.StdEncoding.EncodeToString([]byte("me:Sesame"))
	profile := learned(t, "curl -H 'X-Api-Key: other' -H 'X-Tenant: 7' -H 'Authorization: Basic "+basic+"' "+url+"/e?limit=10")
	wantIn(t, profile, "EXPORT_AUTH=basic\n", "EXPORT_AUTH_USER=me\n",
		`#EXPORT_HEADERS="X-Api-Key: ...\nX-Tenant: ..."  # to be set`)
	if strings.Contains(profile, "Sesame") || strings.Contains(profile, "other\n") || strings.Contains(profile, basic) {
		t.Errorf("a credential is in\n%s", profile)
	}
}

// TestHalfCredential: a key in place of the user or of the password is sent as curl sends it, and
// the profile says how, without the key.
func TestHalfCredential(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ option, user, password, print string }{
		{"-u Sesame-key:", "Sesame-key", "", `printf '%s:' "$KEY"`},
		{"-u :Sesame-key", "", "Sesame-key", `printf ':%s' "$KEY"`},
		{"-H 'Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("Sesame-key:")) + "'", "Sesame-key", "",
			`printf '%s:' "$KEY"`},
	} {
		asked := new(atomic.Int64)
		url := odd(t, asked, func(w http.ResponseWriter, r *http.Request) {
			user, password, ok := r.BasicAuth()
			if !ok || user != c.user || password != c.password {
				w.WriteHeader(http.StatusUnauthorized)
			}
			at, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("cursor"), "c"))
			fmt.Fprintf(w, `{"items":%s,"for Sesame-key":[{}],"next":"c%d"}`, items(at, 10, 1), at+10)
		})
		profile := learned(t, "curl "+c.option+" "+url+"/e?limit=10")
		for _, want := range []string{"EXPORT_KEY_HEADER=Authorization\n", "EXPORT_KEY_PREFIX=Basic\n", c.print, "/for ***"} {
			if !strings.Contains(profile, want) {
				t.Errorf("%s: %q is not in\n%s", c.option, want, profile)
			}
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(c.user + ":" + c.password))
		if strings.Contains(profile, "Sesame") || strings.Contains(profile, encoded) {
			t.Errorf("%s: the key is in\n%s", c.option, profile)
		}
	}
}

// TestHints: the remedy of a refused request is in the curl command, and the key is not shown.
func TestHints(t *testing.T) {
	t.Parallel()
	signed := " -H 'Date: Fri, 27 Nov 2026 03:00:00 GMT'"
	for name, c := range map[string]struct {
		status  int
		options string
		want    string
	}{
		"bad request":  {http.StatusBadRequest, "", "correct the curl command"},
		"not found":    {http.StatusNotFound, "", "correct the curl command"},
		"redirect":     {http.StatusFound, " -L", "learn follows no redirect"},
		"wrong key":    {http.StatusUnauthorized, "", "check the key of the curl command"},
		"signed":       {http.StatusUnauthorized, signed, "a proxy that signs requests"},
		"server error": {http.StatusBadGateway, "", "report it to the operator"},
		"no page":      {http.StatusOK, "", "must be JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := odd(t, new(atomic.Int64), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/other")
				w.WriteHeader(c.status)
				body := `{"message":"the key Sesame-key is unknown"}`
				if c.status == http.StatusOK {
					body = body[:len(body)-1]
				}
				fmt.Fprint(w, body)
			})
			request := parsed(t, "curl -u Sesame-key:"+c.options+" "+url+"/e?limit=10")
			_, err := learn.Learn(t.Context(), request, nil)
			f, ok := errors.AsType[*bridge.Fault](err)
			if !ok || strings.Contains(err.Error(), "Sesame") {
				t.Fatalf("got %v", err)
			}
			if hint := request.Hint(f); !strings.Contains(hint, c.want) || strings.Contains(hint, "EXPORT_URL") {
				t.Errorf("%v: got %q, want %q", err, hint, c.want)
			}
		})
	}
}
