package learn

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
)

// Request is a request that lists the first items of an export.
type Request struct {
	Method string
	URL    *url.URL // without user and password
	Header []Header // in the order of the command
	Body   string   // empty for none
	// User and Password are those of Basic authentication. One of them may be empty.
	User, Password string
}

// Header is a header of a request.
type Header struct{ Name, Value string }

// dateHeader matches the header with the time of a signature, such as Date or X-Amz-Date.
var dateHeader = regexp.MustCompile(`(?i)^(x-.*)?(date|timestamp)$`)

// Hint says how to correct the request after a fault of its API.
func (r *Request) Hint(f *bridge.Fault) string {
	status := len(f.Code) == 3 && strings.Trim(f.Code, "0123456789") == ""
	switch {
	case f.Reason == bridge.ReasonAuth && r.signed():
		return "a signature of each request, by the headers Date and Authorization, is valid for that request alone, " +
			"and learn sends others: put a proxy that signs requests in front of the API, " +
			"and learn with the address of the proxy"
	case f.Reason == bridge.ReasonAuth:
		return "check the key of the curl command and its permissions"
	case f.Class == bridge.Transient && status:
		return f.Hint
	case status && f.Code[0] == '3':
		return "learn follows no redirect, also with curl -L: put the address that it leads to into the curl command"
	case status && f.Code[0] == '4':
		return "correct the curl command: its URL, its parameters and its data; curl itself must list items with it"
	case f.Code == "timeout":
		return "repeat the command; if it persists, ask for a smaller page in the curl command, " +
			"or check EXPORT_PROXY and the firewall"
	case f.Code == "network", f.Code == "tls":
		return strings.NewReplacer("use https:// in EXPORT_URL", "use https:// in the curl command",
			"http:// in EXPORT_URL", "http:// in the curl command", "EXPORT_URL", "the URL of the curl command").Replace(f.Hint)
	}
	return "correct the curl command: a page must be JSON with a list of items, of at most 8 MiB"
}

// signed reports whether the request may have a signature.
func (r *Request) signed() bool {
	has := func(is func(name string) bool) bool {
		return slices.ContainsFunc(r.Header, func(h Header) bool { return is(h.Name) })
	}
	return has(dateHeader.MatchString) && (r.User != "" || has(func(name string) bool { return name == "Authorization" }))
}

// Options of curl about how curl connects, waits and prints, which no profile has. Those in
// ignoredValues take a value.
var (
	ignoredFlags = strings.Fields("-s -S -v -i -f -g -L -O -N -4 -6 -# --silent --show-error --verbose --include --fail " +
		"--fail-with-body --globoff --location --location-trusted --remote-name --no-buffer --ipv4 --ipv6 --progress-bar " +
		"--no-progress-meter --basic --compressed --http1.0 --http1.1 --http2 --tlsv1.2 --tlsv1.3 --path-as-is " +
		"--no-keepalive --retry-all-errors --retry-connrefused --create-dirs")
	ignoredValues = strings.Fields("-A -o -w -m -D -e --user-agent --output --write-out --max-time " +
		"--dump-header --referer --connect-timeout --max-redirs --retry --retry-delay --retry-max-time --keepalive-time " +
		"--limit-rate --stderr")
)

// shortOptions are the long forms of the options that learn uses.
var shortOptions = map[string]string{
	"-X": "--request", "-H": "--header", "-d": "--data", "-u": "--user", "-G": "--get", "-k": "--insecure",
	"-b": "--cookie", "-x": "--proxy", "-E": "--cert",
}

// flags are the options that take no value.
var flags = append([]string{"-G", "--get", "-k", "--insecure"}, ignoredFlags...)

// refusedOptions are options that a setting replaces.
var refusedOptions = map[string]string{
	"--insecure": "set EXPORT_TLS_CA_FILE to the CA of the API", "--cacert": "set EXPORT_TLS_CA_FILE",
	"--cert": "set EXPORT_TLS_CERT_FILE", "--key": "set EXPORT_TLS_KEY_FILE", "--proxy": "set EXPORT_PROXY",
}

// ParseCurl reads a command line of curl: its words, or the whole line as one word. Its
// errors quote no values.
func ParseCurl(words []string) (*Request, error) {
	if len(words) == 1 {
		var err error
		if words, err = split(words[0]); err != nil {
			return nil, err
		}
	}
	words = slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		return word != "" && strings.Trim(word, "\\\r\n\t ") == ""
	})
	if len(words) > 0 && words[0] == "curl" {
		words = words[1:]
	}
	p := curl{request: Request{Method: http.MethodGet}}
	for len(words) > 0 {
		var err error
		if words, err = p.word(words[0], words[1:]); err != nil {
			return nil, err
		}
	}
	return p.finish()
}

// curl is a command line that is being read.
type curl struct {
	request     Request
	target      string
	data        []string
	method, get bool
}

// word reads one word and its value, and returns the words after them.
func (p *curl) word(word string, rest []string) ([]string, error) {
	if !strings.HasPrefix(word, "-") || word == "-" {
		return rest, p.take("--url", word)
	}
	name, value, attached := word, "", false
	switch {
	case strings.HasPrefix(word, "--"):
		name, value, attached = strings.Cut(word, "=")
	case len(word) > 2:
		name, value, attached = word[:2], word[2:], true
	}
	if slices.Contains(flags, name) {
		if attached && !strings.HasPrefix(word, "--") {
			rest = append([]string{"-" + value}, rest...) // -sS is -s -S
		}
		return rest, p.take(name, "")
	}
	if !attached {
		if len(rest) == 0 {
			return nil, fmt.Errorf("curl %s has no value", name)
		}
		value, rest = rest[0], rest[1:]
	}
	return rest, p.take(name, value)
}

// take takes an option with its value.
func (p *curl) take(name, value string) error {
	if long, short := shortOptions[name]; short {
		name = long
	}
	if instead, refused := refusedOptions[name]; refused {
		return fmt.Errorf("curl %s is refused: %s", name, instead)
	}
	switch name {
	case "--url":
		if p.target != "" {
			return errors.New("the curl command has several URLs")
		}
		p.target = value
	case "--request":
		p.method, p.request.Method = true, strings.ToUpper(value)
	case "--header":
		header, text, found := strings.Cut(value, ":")
		if !found {
			return errors.New("curl --header has no Name: value; a file of headers is not read")
		}
		header = http.CanonicalHeaderKey(strings.TrimSpace(header))
		if text = strings.TrimSpace(text); text != "" { // else curl leaves the header out
			p.request.Header = append(p.request.Header, Header{header, text})
		}
	case "--oauth2-bearer":
		p.request.Header = append(p.request.Header, Header{"Authorization", "Bearer " + value})
	case "--cookie":
		if !strings.Contains(value, "=") {
			return errors.New("curl --cookie names a file; write its cookies as name=value")
		}
		p.request.Header = append(p.request.Header, Header{"Cookie", value})
	case "--data", "--data-raw", "--data-ascii", "--data-binary", "--json":
		if strings.HasPrefix(value, "@") && name != "--data-raw" {
			return fmt.Errorf("curl %s names a file; write its content", name)
		}
		p.data = append(p.data, value)
	case "--user":
		user, password, found := strings.Cut(value, ":")
		if !found {
			return errors.New("curl --user has no user:password")
		}
		p.request.User, p.request.Password = user, password
	case "--get":
		p.get = true
	default:
		if !slices.Contains(ignoredFlags, name) && !slices.Contains(ignoredValues, name) {
			return fmt.Errorf("curl %s is not supported", name)
		}
	}
	return nil
}

// finish makes a request of the words.
func (p *curl) finish() (*Request, error) {
	r := &p.request
	u, err := url.Parse(p.target)
	switch {
	case p.target == "":
		return nil, errors.New("the curl command has no URL")
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("the URL of the curl command does not begin with https:// and a host")
	}
	if u.User != nil {
		r.User = u.User.Username()
		r.Password, _ = u.User.Password()
		u.User = nil
	}
	r.URL, u.Fragment = u, ""
	if text := strings.Join(p.data, "&"); p.get {
		u.RawQuery = strings.Trim(u.RawQuery+"&"+text, "&")
	} else if len(p.data) > 0 {
		if r.Body = text; !p.method {
			r.Method = http.MethodPost
		}
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodPost:
		return nil, fmt.Errorf("the method %s is not supported, only GET and POST", r.Method)
	case r.Method == http.MethodGet && r.Body != "":
		return nil, errors.New("a GET with a body is not supported; curl -G puts the data into the query")
	}
	return r, nil
}

// split splits a command line as bash does, without expansions.
func split(line string) (words []string, err error) {
	var word strings.Builder
	begun, quote := false, byte(0)
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote == '\'' && c != '\'', quote == '"' && c != '"' && c != '\\':
			word.WriteByte(c)
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && strings.HasPrefix(line[i:], "$'"):
			text, after, err := escapedText(line[i+2:])
			if err != nil {
				return nil, err
			}
			word.WriteString(text)
			i, begun = len(line)-len(after)-1, true
		case c == '\\' && i+1 < len(line):
			if i++; line[i] == '\n' || line[i] == '\r' {
				break
			}
			if quote == '"' && !strings.ContainsRune("\"\\$`", rune(line[i])) {
				word.WriteByte('\\')
			}
			word.WriteByte(line[i])
			begun = true
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case strings.IndexByte(" \t\r\n", c) >= 0:
			end()
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if end(); quote != 0 {
		return nil, errQuotes
	}
	return words, nil
}

var errQuotes = errors.New("the quotes of the curl command do not match")

// escapedText reads the text of $'...' after its first quote, which browsers write for a body with
// special characters. It returns what follows the last quote.
func escapedText(rest string) (text, after string, err error) {
	var b strings.Builder
	for rest != "" {
		switch c := rest[0]; {
		case c == '\'':
			return b.String(), rest[1:], nil
		case c == '\\' && len(rest) > 1 && strings.IndexByte(`'"?`, rest[1]) >= 0:
			b.WriteByte(rest[1])
			rest = rest[2:]
		case c == '\\' && len(rest) > 1:
			char, isRune, tail, err := strconv.UnquoteChar(rest, 0)
			if err != nil {
				return "", "", fmt.Errorf(`the curl command has %.2s in $'...', which is not supported`, rest)
			}
			if rest = tail; isRune {
				b.WriteRune(char)
			} else {
				b.WriteByte(byte(char))
			}
		default:
			b.WriteByte(c)
			rest = rest[1:]
		}
	}
	return "", "", errQuotes
}
