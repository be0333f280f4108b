package exportapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/body"
	"exportbridge/bridge/exportapi/internal/linklocal"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/ratelimit"
	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/exportapi/internal/stuck"
	"exportbridge/bridge/internal/delay"
	"exportbridge/bridge/internal/secrets"
)

// Values of bridge.Fault.Code beside HTTP statuses.
const (
	codeTimeout = "timeout"
	codeNetwork = "network"
	codeTLS     = "tls"
	codeDecode  = "decode"
	codeSchema  = "schema"
	codeSize    = "size"
	codeRequest = "request"
	codeLeak    = "leak"
)

// faults makes the faults of a client's requests. It may be used concurrently.
type faults struct {
	cfg      *Config
	urls     endpoints
	auth     *credentials
	reader   *body.Reader
	hidden   []bridge.Secret // see requests.secrets
	withheld func() []secrets.Secret
}

// of puts the failed request in front of a fault's error.
func (f *faults) of(at bridge.Position, fault *bridge.Fault) *bridge.Fault {
	page := "first page"
	if at.Cursor != "" {
		page = "page at cursor " + bridge.CursorHash(at.Cursor)
	}
	fault.Err = fmt.Errorf("fetch %s from %s: %w", page, f.urls.first.Host, fault.Err)
	return fault
}

// connection returns the fault of a request without a response, or with a partial one. late
// is the text of a timeout. The fault keeps only the text of err: errors.Is must not take
// the timeout of the request for the end of the caller's context.
func (f *faults) connection(at bridge.Position, err error, late string) *bridge.Fault {
	text := errors.New(f.clean(at, unquoted(err)))
	var unreachable net.Error
	switch {
	case errors.Is(err, linklocal.ErrAddress):
		return &bridge.Fault{Class: bridge.Permanent, Code: codeNetwork, Reason: bridge.ReasonConfig, Err: text,
			Hint: "the address serves cloud instance metadata and credentials; " +
				"check EXPORT_URL and DNS, or set EXPORT_ALLOW_LINK_LOCAL=true"}
	case errors.Is(err, context.DeadlineExceeded):
		return &bridge.Fault{Code: codeTimeout, Err: errors.New(late),
			Hint: "if it persists, raise EXPORT_TIMEOUT or lower EXPORT_PAGE_SIZE"}
	case errors.As(err, &unreachable) && unreachable.Timeout():
		return &bridge.Fault{Code: codeTimeout, Err: text,
			Hint: "if it persists, check EXPORT_URL, EXPORT_PROXY and the firewall, or raise EXPORT_TIMEOUT"}
	case isPlain(err):
		return &bridge.Fault{Code: codeTLS, Err: text,
			Hint: "the server does not use TLS at this port: use its TLS port, or http:// in EXPORT_URL, " +
				"which sends the key in clear text"}
	case strings.Contains(err.Error(), tlsAlert):
		return &bridge.Fault{Code: codeTLS, Err: text, Hint: "the server uses TLS at this port: use https:// in EXPORT_URL"}
	case bridge.IsTLSAlert(err):
		return &bridge.Fault{Code: codeTLS, Err: text,
			Hint: "check the client certificate in EXPORT_TLS_CERT and EXPORT_TLS_KEY, and EXPORT_URL: " +
				"its server ended the TLS handshake"}
	case isTLS(err):
		return &bridge.Fault{Code: codeTLS, Err: text,
			Hint: "check EXPORT_URL and the system clock; for a private certificate authority set EXPORT_TLS_CA"}
	}
	return &bridge.Fault{Code: codeNetwork, Err: text,
		Hint: "if it persists, check EXPORT_URL, EXPORT_PROXY, DNS and the firewall"}
}

// unquoted returns the text of an error without the data that it quotes. The quoted part of
// a malformed response may be part of an event.
func unquoted(err error) string {
	text := err.Error()
	if isTLS(err) {
		return text // it quotes names in certificates
	}
	said, _, quotes := strings.Cut(text, `"`)
	if quotes {
		said += "..."
	}
	return said
}

func isTLS(err error) bool {
	_, verify := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	return verify || authority || isPlain(err) || bridge.IsTLSAlert(err)
}

// isPlain reports whether a server answered a TLS handshake in clear text.
func isPlain(err error) bool {
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return record || errors.Is(err, http.ErrSchemeMismatch)
}

// tlsAlert is part of net/http's error when a server answers a plain HTTP request with a
// TLS alert.
const tlsAlert = `malformed HTTP response "\x15\x03`

// noteFailed records a transient fault of a page. If the page has failed for stuck.After,
// the hint says how to skip it.
func (c *Client) noteFailed(at bridge.Position, fault *bridge.Fault) {
	if fault.Class == bridge.Transient && c.stuck.Failed(at.Cursor, time.Now()) {
		fault.Err, fault.Hint, fault.HintCode = fmt.Errorf("%w, for more than %s", fault.Err, stuck.After), "",
			bridge.HintPageFails
	}
}

// notJSON returns a fault if neither the Content-Type nor the first bytes of a body are
// JSON. It checks the bytes because some APIs serve JSON as text/plain.
func (c *Client) notJSON(at bridge.Position, resp *http.Response, begun []byte) *bridge.Fault {
	kind := resp.Header.Get("Content-Type")
	if kind != "" && kind == c.kind || namesJSON(kind) {
		c.kind = kind
		return nil
	}
	begun = begun[scan.SkipSpace(begun, scan.SkipMark(begun)):]
	if len(begun) == 0 || begun[0] == '{' || begun[0] == '[' || string(begun) == "null" {
		return nil
	}
	return &bridge.Fault{Code: codeDecode,
		Err:  fmt.Errorf("200 with %s of type %q, which is not JSON", length(resp), c.faults.clean(at, kind)),
		Hint: "if it persists, check EXPORT_URL and EXPORT_PATH, and whether a proxy answers in place of the API"}
}

// namesJSON reports whether a Content-Type is JSON.
func namesJSON(kind string) bool {
	media, _, err := mime.ParseMediaType(kind)
	return err == nil && isJSON(media)
}

func isJSON(media string) bool {
	return media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}

func length(resp *http.Response) string {
	if resp.ContentLength < 0 {
		return "a body"
	}
	return strconv.FormatInt(resp.ContentLength, 10) + " bytes"
}

// body returns the fault of a 200 whose body could not be read beyond got bytes.
func (f *faults) body(at bridge.Position, err error, got int) *bridge.Fault {
	switch {
	case errors.Is(err, body.ErrTooLarge):
		return f.size()
	case errors.Is(err, body.ErrEncoding):
		return &bridge.Fault{Code: codeDecode, Err: errors.New(f.clean(at, err.Error())),
			Hint: "if it persists, check for a proxy that corrupts compressed responses"}
	}
	fault := f.connection(at, err, fmt.Sprintf("body not complete within %s", f.cfg.Timeout))
	fault.Err = fmt.Errorf("body ended after %d bytes: %w", got, fault.Err)
	return fault
}

func (f *faults) size() *bridge.Fault {
	return bridge.Blockf(codeSize, bridge.ReasonSize, "raise EXPORT_MAX_RESPONSE_BYTES, or lower EXPORT_PAGE_SIZE",
		"page is larger than %d bytes", f.cfg.MaxResponse)
}

// schemaFault returns the fault of a body that is not exactly one page.
func schemaFault(err error) *bridge.Fault {
	if errors.Is(err, errTooMany) {
		hint := fmt.Sprintf("lower EXPORT_PAGE_SIZE; pages of more than %d items are not supported", maxItems)
		return bridge.Blockf(codeSize, bridge.ReasonSize, hint, "page has more than %d items", maxItems)
	}
	if errors.Is(err, errCutShort) {
		return &bridge.Fault{Code: codeDecode, Err: err,
			Hint: "if it persists, check EXPORT_PROXY for a proxy that truncates responses, or lower EXPORT_PAGE_SIZE"}
	}
	hint := "check EXPORT_URL and EXPORT_PATH; " +
		"for an API with other member names set EXPORT_ITEMS_FIELD, to root if the page is the array itself, " +
		"and EXPORT_CURSOR_FIELD"
	if part, ok := errors.AsType[*partError](err); ok && part.setting != "" {
		hint = "correct " + part.setting + "; if the page is not the API's, check EXPORT_URL and EXPORT_PATH"
	}
	return &bridge.Fault{Class: bridge.Malformed, Code: codeSchema, Reason: bridge.ReasonSchema, Err: err, Hint: hint}
}

// ErrNewestFirst is in the Fault of an API that lists newest first.
var ErrNewestFirst = errors.New(
	"the items are listed newest first, so their cursor leads to older events, not to new ones")

// HintWindows is the hint for ErrNewestFirst.
const HintWindows = "ask the API for ascending order, for example EXPORT_PARAMS=order=asc; " +
	"if it has none, but takes a start and an end, " +
	"set EXPORT_FOLLOW=windows, EXPORT_START=-90d, EXPORT_START_PARAM and EXPORT_END_PARAM"

// refusal returns the fault of a response whose status is not 200.
func (f *faults) refusal(at bridge.Position, resp *http.Response) *bridge.Fault {
	code := resp.StatusCode
	fault := &bridge.Fault{Code: strconv.Itoa(code), Err: errors.New(f.describe(at, resp))}
	switch {
	case code == http.StatusTooManyRequests || code == http.StatusForbidden && delay.Of(resp) > 0:
		fault.Class, fault.Code, fault.RetryAfter = bridge.Throttled, ratelimit.Code, delay.Of(resp)
		fault.Hint = ratelimit.Hint
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		fault.Class, fault.Reason = bridge.Permanent, bridge.ReasonAuth
		fault.Hint = f.authHint()
	case code >= 500 || code == http.StatusRequestTimeout:
		fault.RetryAfter = delay.Of(resp)
		fault.Hint = "if it persists, report it to the operator of the API: the failure is on its side"
	case code >= 300 && code < 400:
		fault.Class, fault.Reason = bridge.Permanent, bridge.ReasonConfig
		text, hint := f.redirect(at, resp)
		fault.Err, fault.Hint = errors.New(text), hint
	case code < 300:
		fault.Hint = "a page must have status 200; if this persists, check EXPORT_URL and EXPORT_PATH"
	case at.Cursor != "" && slices.Contains(f.cfg.CursorStatuses, fault.Code):
		fault.Class, fault.Reason, fault.HintCode = bridge.BadCursor, bridge.ReasonCursor, bridge.HintCursorRejected
		mayBeAlone := !f.cfg.CursorAlone && !f.cfg.leads() && !f.cfg.Numbered()
		if f.cfg.Path != "" && mayBeAlone && (len(f.cfg.beside(at)) > 0 || f.cfg.Params != "") {
			fault.HintCode = bridge.HintCursorBeside
		}
	default:
		fault.Class, fault.Reason = bridge.Permanent, bridge.ReasonConfig
		fault.Hint = f.configHint(at, code, fault.Err.Error())
	}
	return fault
}

// impossible returns the fault of a position that no request can ask for.
func impossible(err error) *bridge.Fault {
	if errors.Is(err, errStoredLeak) {
		return &bridge.Fault{Class: bridge.Permanent, Code: codeLeak, Reason: bridge.ReasonConfig, Err: err,
			HintCode: bridge.HintCursorRejected}
	}
	if errors.Is(err, errForm) || errors.Is(err, nextlink.ErrCredential) {
		return &bridge.Fault{Class: bridge.Permanent, Code: codeRequest, Reason: bridge.ReasonConfig, Err: err,
			HintCode: bridge.HintCursorForm}
	}
	hint := "check EXPORT_START_PARAM, EXPORT_END_PARAM, EXPORT_END_INCLUSIVE, EXPORT_START_EXCLUSIVE and EXPORT_TIME_FORMAT"
	if errors.Is(err, errUnstarted) {
		hint = "reset the stream to a time, rewind it to an entry that has a start, or change EXPORT_PARAMS"
	}
	return &bridge.Fault{Class: bridge.Permanent, Code: codeRequest, Reason: bridge.ReasonConfig, Err: err, Hint: hint}
}

// authHint names the settings of authentication.
func (f *faults) authHint() string {
	switch f.cfg.Scheme {
	case authNone:
		return "the API requires authentication: set EXPORT_API_KEY, and EXPORT_AUTH"
	case authBasic:
		return "check EXPORT_AUTH_USER and EXPORT_API_KEY (EXPORT_API_KEY_FILE is reloaded automatically), " +
			"and the user's permissions"
	case authOAuth2:
		return "check EXPORT_OAUTH2_SCOPES, EXPORT_OAUTH2_PARAMS and the client's permissions"
	}
	return "check EXPORT_API_KEY (EXPORT_API_KEY_FILE is reloaded automatically), the key's permissions, " +
		"and EXPORT_KEY_HEADER"
}

// configHint names the settings to check if the API rejects a request with a status and a
// text.
func (f *faults) configHint(at bridge.Position, code int, said string) string {
	switch code {
	case http.StatusNotFound:
		return "EXPORT_URL and " + f.pathSetting(at) + " make the path " + f.urls.of(at).Path +
			": check them and EXPORT_RESOURCE"
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		hint := "check what the request has: " + strings.Join(append(f.cfg.beside(at), "EXPORT_PARAMS"), ", ")
		if at.Cursor == "" && at.End == 0 && f.cfg.EndParam != none && hasWord(said, f.cfg.EndParam) {
			hint = "if the API requires an end, set EXPORT_FOLLOW=windows and EXPORT_START, for example -90d, " +
				"so that requests have the parameter EXPORT_END_PARAM=" + f.cfg.EndParam + "; else " + hint
		}
		if f.urls.first.Scheme == "http" {
			hint += "; if the server requires TLS at this port, use https:// in EXPORT_URL"
		}
		return hint
	case http.StatusMethodNotAllowed:
		return "check EXPORT_METHOD, then EXPORT_URL and EXPORT_PATH"
	case http.StatusProxyAuthRequired:
		return "check the user and password in EXPORT_PROXY"
	}
	return "check EXPORT_URL, EXPORT_PATH and EXPORT_RESOURCE"
}

// hasWord reports whether a text contains a name as a whole word.
func hasWord(text, name string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), name)
}
