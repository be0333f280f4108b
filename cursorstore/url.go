package cursorstore

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// target is a parsed REDIS_URL.
type target struct {
	addrs              []string // host:port, or one path of a socket
	socket, tls        bool
	username, password string
	db                 int
}

const encodeText = "percent-encode special characters in its user and password " +
	"(/ is %2F, ? is %3F, @ is %40), or set REDIS_PASSWORD"

var errEncode = errors.New("is malformed; " + encodeText)

// parse parses the URL. It does not use url.Parse, which rejects a list of
// hosts and quotes the URL with its password in errors. No error of parse
// contains any part of the URL.
func (u URL) parse(port string) (target, error) {
	scheme, rest, ok := strings.Cut(string(u), "://")
	if !ok {
		return target{}, errors.New("must begin with redis://, rediss:// or unix://")
	}
	var t target
	switch scheme {
	case "redis":
	case "rediss":
		t.tls = true
	case "unix":
		t.socket = true
	default:
		return target{}, errors.New("must begin with redis://, rediss:// or unix://")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path+query, "@") && (!t.socket || authority != "" && !strings.Contains(authority, "@")) {
		return target{}, errEncode // a / or ? of the password ended it
	}
	if err := t.user(&authority); err != nil {
		return target{}, err
	}
	if err := t.database(path, query); err != nil {
		return target{}, err
	}
	if t.socket {
		file, err := url.PathUnescape(path)
		if err != nil || authority != "" || file == "" {
			return target{}, errors.New("must name a socket by its absolute path, like unix:///run/redis.sock?db=0")
		}
		t.addrs = []string{"/" + file}
		return t, nil
	}
	for host := range strings.SplitSeq(authority, ",") {
		addr, err := hostPort(host, port)
		if err != nil {
			return target{}, err
		}
		t.addrs = append(t.addrs, addr)
	}
	return t, nil
}

// user parses and removes the user and password of the authority.
func (t *target) user(authority *string) error {
	at := strings.LastIndex(*authority, "@")
	if at < 0 {
		return nil
	}
	if strings.Count(*authority, "@") > 1 {
		return errEncode
	}
	name, password, _ := strings.Cut((*authority)[:at], ":")
	*authority = (*authority)[at+1:]
	var err, err2 error
	t.username, err = url.PathUnescape(name)
	t.password, err2 = url.PathUnescape(password)
	if err != nil || err2 != nil {
		return errEncode
	}
	return nil
}

// database parses the database number from the path or ?db=.
func (t *target) database(path, query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errEncode
	}
	number := ""
	if !t.socket {
		number = path
	}
	for name := range values {
		if name != "db" || number != "" {
			return errors.New("takes no parameter but db, and the database only once")
		}
	}
	if values.Has("db") {
		number = values.Get("db")
	}
	if number == "" {
		return nil
	}
	t.db, err = strconv.Atoi(number)
	if err != nil || t.db < 0 {
		return errors.New("must end in the database's number or nothing")
	}
	return nil
}

// hostPort completes one host of the list.
func hostPort(host, port string) (string, error) {
	name := host
	if h, p, err := net.SplitHostPort(host); err == nil {
		name, port = h, p
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return "", errors.New("has a host whose port is not a number; " + encodeText)
		}
	} else if strings.Contains(host, ":") {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if net.ParseIP(name) == nil {
			return "", errEncode
		}
	}
	if name == "" {
		name = "localhost"
	}
	return net.JoinHostPort(name, port), nil
}
