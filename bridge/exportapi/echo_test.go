package exportapi_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"exportbridge/bridge"
)

// An error response that repeats the request shows no credential in any form.
func TestEchoedCredentials(t *testing.T) {
	t.Parallel()
	const secret = "s3cret+/?&ü 0123"
	basic := func(user, password string) string {
		return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	}
	forms := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), hex.EncodeToString([]byte(secret)),
		base64.RawURLEncoding.EncodeToString([]byte(secret)),
		basic("cl ient", secret), basic("cl+ient", url.QueryEscape(secret)), basic("ann", secret), basic("pat", "pr0xy-word"),
	}
	for name, vars := range map[string]map[string]string{
		"token": {"EXPORT_AUTH": "oauth2", "EXPORT_API_KEY": secret, "EXPORT_OAUTH2_CLIENT_ID": "cl ient"},
		"page": {"EXPORT_AUTH": "basic", "EXPORT_API_KEY": secret, "EXPORT_AUTH_USER": "ann",
			"EXPORT_PROXY": "http://pat:pr0xy-word@127.0.0.1:1"},
	} {
		for i, form := range forms {
			for _, said := range []string{form, "Authorization: Basic " + form, "a" + form + "b", `x="` + form + `"`} {
				if name == "token" && i > 6 || name == "page" && i == 6 || i == 5 && name == "page" {
					continue // a credential of the other scheme
				}
				for _, body := range []string{
					fmt.Sprintf(`{"error":%s}`, quote(said)),
					fmt.Sprintf(`{"error":"invalid_client","error_description":%s}`, quote(said)),
					fmt.Sprintf(`{"error":"invalid_client","error_uri":%s}`, quote(said)), said,
					fmt.Sprintf(`{"request":%s,"error":"no"}`, quote(said)),
				} {
					kind := "application/json"
					if body == said {
						kind = "text/plain"
					}
					server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", kind)
						w.WriteHeader(http.StatusUnauthorized)
						_, _ = io.WriteString(w, body)
					}))
					all := map[string]string{"EXPORT_URL": server.URL}
					maps.Copy(all, vars)
					if name == "token" {
						all["EXPORT_OAUTH2_TOKEN_URL"] = server.URL + "/token"
					} else {
						all["EXPORT_PROXY"] = strings.Replace(all["EXPORT_PROXY"], "127.0.0.1:1",
							strings.TrimPrefix(server.URL, "http://"), 1)
					}
					_, err := fetchAll(t, connect(t, config(t, all)), bridge.Position{})
					f := wantFault(t, err)
					if text := f.Error() + f.Hint; strings.Contains(text, form) || strings.Contains(text, form[2:len(form)-2]) {
						t.Errorf("%s: %q shows %s", name, text, form)
					}
					server.Close()
				}
			}
		}
	}
}

// An error response is withheld if it has a credential in a form that cannot be removed. A
// parameter of the token request is a credential too.
func TestEchoedInOtherForms(t *testing.T) {
	t.Parallel()
	const secret, assertion = "s3cret-Key+0123456789", "4ssertion-0123456789"
	base := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	each := func(format string) (all string) {
		for _, b := range []byte(secret) {
			all += fmt.Sprintf(format, b)
		}
		return all
	}
	for name, form := range map[string]string{
		"base64 twice": base(base(secret)), "escaped": each("%%%02X"), "JSON": each(`\u%04x`), "HTML": each("&#%d;"),
		"bytes":      each("%02x "),
		"upper case": strings.ToUpper(secret), "a parameter": assertion, "a parameter in base64": base(assertion),
	} {
		for _, kind := range []string{"application/json", "text/plain"} {
			body := "unknown " + form
			if kind == "application/json" {
				body = `{"error":` + quote(body) + `}`
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", kind)
				if r.URL.Path == "/token" && kind != "application/json" {
					_, _ = io.WriteString(w, `{"access_token":"t0k3n-0123456789"}`)
					return
				}
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, body)
			}))
			c := connect(t, config(t, map[string]string{
				"EXPORT_URL": server.URL, "EXPORT_AUTH": "oauth2", "EXPORT_API_KEY": secret, "EXPORT_OAUTH2_CLIENT_ID": "client",
				"EXPORT_OAUTH2_TOKEN_URL": server.URL + "/token", "EXPORT_OAUTH2_PARAMS": "client_assertion=" + assertion,
			}))
			_, err := fetchAll(t, c, bridge.Position{})
			if f := wantFault(t, err); strings.Contains(f.Error(), form[:8]) || !strings.Contains(f.Error(), "400") {
				t.Errorf("%s, %s: %q shows %s", name, kind, f.Error(), form)
			}
			server.Close()
		}
	}
}
