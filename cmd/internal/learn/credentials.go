package learn

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

// identity matches the names of headers that say who asks.
var identity = regexp.MustCompile(`(?i)e-?mail|user(_?name)?$|account(_?id)?$`)

// inSetting says which setting takes a credential.
const inSetting = " is EXPORT_API_KEY, or in a file EXPORT_API_KEY_FILE"

// credentials are the secrets of a request. No profile contains them.
type credentials struct {
	key     string
	headers string // all static headers, if one of them has a secret
	half    string // the user or the password, if the other one is empty
}

// environ returns the settings of the credentials.
func (c credentials) environ() (all []string) {
	if c.key != "" {
		all = append(all, "EXPORT_API_KEY="+c.key)
	}
	if c.headers != "" {
		all = append(all, "EXPORT_HEADERS="+c.headers)
	}
	return all
}

// in reports whether a text contains the key or, from 8 bytes, a part of another secret header.
func (c credentials) in(text string) bool {
	for line := range strings.Lines(c.headers) {
		name, value, _ := strings.Cut(line, ": ")
		parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \n;,=\"", r) })
		if secretName(name) && slices.ContainsFunc(parts, func(part string) bool {
			return len(part) >= 8 && strings.Contains(text, part)
		}) {
			return true
		}
	}
	return c.key != "" && strings.Contains(text, c.key) || c.half != "" && strings.Contains(text, c.half)
}

// hidden returns a text without half: the client hides the key alone, which is half in base64.
func (c credentials) hidden(text string) string {
	if len(c.half) < 8 { // ordinary text may contain it by chance
		return text
	}
	return strings.ReplaceAll(text, c.half, "***")
}

// hide hides half in an error that quotes the API.
func (c credentials) hide(err error) error {
	if err == nil || c.hidden(err.Error()) == err.Error() {
		return err
	}
	if f, ok := errors.AsType[*bridge.Fault](err); ok {
		f.Err = errors.New(c.hidden(f.Error()))
		return f
	}
	if no, ok := errors.AsType[*UnfollowableError](err); ok {
		return &UnfollowableError{c.hidden(no.Why), no.Hint}
	}
	return errors.New(c.hidden(err.Error()))
}

// authenticate takes the credentials out of the request, and sets how requests send them. rest are the
// parameters that are no credentials.
func authenticate(p profile, r *Request, params []param) (c credentials, rest []param, err error) {
	var static []Header
	key := func(secret, header, prefix string) {
		c.key = secret
		p.set("EXPORT_KEY_HEADER", header, "the key that curl sent in this header"+inSetting)
		if header == "Authorization" && prefix != "Bearer" || header != "Authorization" && prefix != "" {
			p.set("EXPORT_KEY_PREFIX", prefix, "")
		}
	}
	user, password := r.User, r.Password
	other := func(h Header) bool { return h.Name != "Authorization" }
	inOrder := slices.Concat(slices.DeleteFunc(slices.Clone(r.Header), other), r.Header)
	for i, h := range inOrder {
		scheme, token, words := strings.Cut(h.Value, " ")
		switch {
		case exportapi.OwnHeader(h.Name), h.Name == "User-Agent", slices.Contains(inOrder[:i], h):
		case h.Name == "Accept" && (h.Value == "application/json" || h.Value == "*/*"):
		case h.Name == "Authorization" && strings.EqualFold(scheme, "Basic"):
			plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(token))
			if err != nil {
				return c, nil, errors.New("the header Authorization has Basic, but no user and password in base64")
			}
			user, password, _ = strings.Cut(string(plain), ":")
		case h.Name == "Authorization" && words:
			key(strings.TrimSpace(token), h.Name, scheme)
		case h.Name == "Authorization":
			key(h.Value, h.Name, "none")
		case !secretName(h.Name) || c.key != "" || user+password != "":
			static = append(static, h)
		default:
			key(h.Value, h.Name, "")
		}
	}
	c.headers = setHeaders(p, static)
	secret := func(p param) bool { return bridge.IsCredential(p.name) }
	switch i := slices.IndexFunc(params, secret); {
	case (user == "") != (password == ""):
		c.half = user + password
		c.key = base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		setHalf(p, user)
	case user != "":
		c.key = password
		p.drop("EXPORT_KEY_HEADER", "EXPORT_KEY_PREFIX")
		p.set("EXPORT_AUTH", "basic", "the password"+inSetting)
		p.set("EXPORT_AUTH_USER", user, "")
	case c.key == "" && i >= 0 && r.Method == http.MethodGet:
		c.key = params[i].value
		p.set("EXPORT_KEY_QUERY", params[i].name, "the key that curl sent in this parameter"+inSetting)
		params = slices.Delete(params, i, i+1)
	case c.key == "":
		p.set("EXPORT_AUTH", "none", "the curl command has no key")
	}
	if i := slices.IndexFunc(params, secret); i >= 0 {
		return c, nil, fmt.Errorf("the parameter %.100q, beside the key or of a body, holds a credential by its name,"+
			" which the profile would have", params[i].name)
	}
	return c, params, nil
}

// setHalf sets a key for Basic with one of user and password: EXPORT_AUTH=basic requires both.
func setHalf(p profile, user string) {
	format := "%s:"
	if user == "" {
		format = ":%s"
	}
	p.set("EXPORT_KEY_HEADER", "Authorization", "Basic with one of user and password, KEY: the output of printf '"+
		format+`' "$KEY" | base64 | tr -d '\n'`+inSetting)
	p.set("EXPORT_KEY_PREFIX", "Basic", "")
}

// secretName reports whether a header of that name may hold a secret: X-Auth-Key does,
// X-Auth-Email does not.
func secretName(header string) bool {
	return bridge.IsCredentialHeader(header) && !identity.MatchString(header)
}

// likeToken reports whether a part of a path looks like a token: it has at least 20 characters, of
// them digits and letters of both cases.
func likeToken(part string) bool {
	return len(part) >= 20 && strings.ContainsAny(part, "0123456789") &&
		strings.ToLower(part) != part && strings.ToUpper(part) != part
}

// setHeaders sets the static headers. If one of them may hold a secret, it returns all of them
// and sets none.
func setHeaders(p profile, static []Header) (secret string) {
	var lines, names []string
	secretFound := false
	for _, h := range static {
		secretFound = secretFound || secretName(h.Name)
		lines, names = append(lines, h.Name+": "+h.Value), append(names, h.Name+": ...")
	}
	switch text := strings.Join(lines, "\n"); {
	case text == "":
	case secretFound:
		p.findings["EXPORT_HEADERS"] = finding{example: strings.Join(names, "\n"), why: "a further header holds a secret"}
		return text
	default:
		p.set("EXPORT_HEADERS", text, "")
	}
	return ""
}
