package cursorstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"exportbridge/bridge"
)

// Config configures the connection to Redis and the store. Start from
// DefaultConfig.
type Config struct {
	URL        URL           `env:"REDIS_URL" secret:"yes" desc:"Redis URL: redis://, rediss:// (TLS) or unix://; several hosts are a cluster, or the sentinels of REDIS_MASTER_NAME" example:"rediss://redis.example.com:6380/0"`
	MasterName string        `env:"REDIS_MASTER_NAME" desc:"name of the primary at the sentinels in REDIS_URL" example:"mymaster"`
	Username   string        `env:"REDIS_USERNAME" desc:"user name; overrides REDIS_URL" example:"exportbridge"`
	Password   bridge.Secret `env:"REDIS_PASSWORD" secret:"yes" desc:"password; overrides REDIS_URL"`
	TLSCA      string        `env:"REDIS_TLS_CA" desc:"trusted CA certificates (PEM) for rediss://; empty for the system's"`
	TLSCert    string        `env:"REDIS_TLS_CERT" desc:"client certificate (PEM) for rediss://, for mutual TLS"`
	TLSKey     bridge.Secret `env:"REDIS_TLS_KEY" secret:"yes" desc:"private key of the client certificate (PEM)"`
	Timeout    time.Duration `env:"REDIS_TIMEOUT" desc:"timeout of one operation, retries included"`
	Prefix     string        `env:"CURSOR_PREFIX" desc:"prefix of all keys" example:"exportbridge"`
	HistoryAge time.Duration `env:"CURSOR_HISTORY_AGE" desc:"retention of committed cursors; operators' changes are kept"`

	// PasswordFile, TLSCAFile, TLSCertFile and TLSKeyFile are the files that Password, TLSCA,
	// TLSCert and TLSKey were read from, if any. They are reloaded for every connection.
	PasswordFile, TLSCAFile, TLSCertFile, TLSKeyFile string
	// Report, if not nil, is called after each operation on a stream's keys with
	// nil if their server responded and takes writes, otherwise with the error. It
	// must not block and may be called concurrently.
	Report func(stream string, err error)
}

// DefaultConfig returns the default of every setting.
func DefaultConfig() Config {
	return Config{
		URL: "redis://localhost:6379/0", Timeout: 2 * time.Second, Prefix: "exportbridge",
		HistoryAge: 30 * 24 * time.Hour,
	}
}

// URL is the value of REDIS_URL. It prints without its password.
type URL string

// String returns the URL with "***" for the password. A malformed URL is "***"
// as a whole.
func (u URL) String() string {
	scheme, rest, ok := strings.Cut(string(u), "://")
	if !ok {
		return hide(string(u))
	}
	t, err := u.parse("")
	if err != nil {
		return hide(string(u))
	}
	if t.password == "" {
		return string(u)
	}
	return scheme + "://" + t.username + ":***@" + rest[strings.LastIndex(rest, "@")+1:]
}

func hide(s string) string { return bridge.Secret(s).String() }

// GoString hides the password from %#v.
func (u URL) GoString() string { return u.String() }

// LogValue hides the password from slog.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText hides the password from encoders such as encoding/json.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Validate reports all problems of the settings. No error contains any part of
// REDIS_URL or of a password.
func (c *Config) Validate() error {
	_, err := c.options()
	var p bridge.Problems
	p.Add(err)
	p.Check(c.Timeout > 0, "REDIS_TIMEOUT", "must be above 0, for example 2s")
	p.Check(c.HistoryAge >= time.Hour, "CURSOR_HISTORY_AGE", "must be at least 1h, for example 720h")
	p.Check(plain(c.Prefix), "CURSOR_PREFIX",
		"%q may only hold letters, digits and . _ - :, for example exportbridge", c.Prefix)
	return p.Err()
}

// Unsafe lists the settings that disable a protection. REDIS_URL is listed if it leads to
// another machine without TLS.
func (c *Config) Unsafe() []string {
	t, err := c.URL.parse(redisPort)
	elsewhere := func(addr string) bool { return !bridge.LoopbackAddr(addr) }
	if err == nil && !t.tls && !t.socket && slices.ContainsFunc(t.addrs, elsewhere) {
		return []string{"REDIS_URL"}
	}
	return nil
}

// plain reports whether s is safe in a key and in a SCAN pattern.
func plain(s string) bool {
	const punctuation = "._-:"
	for _, r := range s {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && !strings.ContainsRune(punctuation, r) {
			return false
		}
	}
	return s != ""
}

const (
	clientName   = "exportbridge"
	redisPort    = "6379"
	sentinelPort = "26379"
)

// options returns the client's options. The error joins all problems of the
// connection settings.
func (c *Config) options() (*redis.UniversalOptions, error) {
	port := redisPort
	if c.MasterName != "" {
		port = sentinelPort
	}
	t, err := c.URL.parse(port)
	if err != nil {
		return nil, bridge.Problemf("REDIS_URL", "%v, for example redis://localhost:6379/0", err)
	}
	var p bridge.Problems
	p.Check(c.MasterName == "" || !t.socket,
		"REDIS_MASTER_NAME", "needs the sentinels' hosts in REDIS_URL, for example redis://sentinel-1:26379,sentinel-2:26379")
	p.Check(c.MasterName != "" || len(t.addrs) <= 1 || t.db == 0,
		"REDIS_URL", "names a cluster (several hosts), which has only database 0: "+
			"for example redis://node-1:6379,node-2:6379")
	o := &redis.UniversalOptions{
		Addrs:      t.addrs,
		DB:         t.db,
		MasterName: c.MasterName,
		Username:   cmp.Or(c.Username, t.username),
		Password:   cmp.Or(c.Password.Reveal(), t.password),
		ClientName: clientName,
		// Only Redis 7.2 and later know CLIENT SETINFO, even as a permission of a user.
		DisableIdentity: true,

		DialTimeout:  c.Timeout,
		ReadTimeout:  c.Timeout,
		WriteTimeout: c.Timeout,
		PoolTimeout:  c.Timeout,
		// One try: the retries of a command dial again anyway.
		DialerRetries:         1,
		ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
	p.Add(c.useTLS(o, t))
	if c.PasswordFile != "" {
		o.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := c.rereadPassword()
			return o.Username, password, err
		}
	}
	return o, p.Err()
}

// rereadPassword returns the present content of PasswordFile. A file without one is no login
// without a password: it is being replaced.
func (c *Config) rereadPassword() (string, error) {
	password, err := bridge.ReadSecretFile(c.PasswordFile)
	if err == nil && strings.TrimSpace(password) == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return "", &bridge.Fault{
			Code: "password", Hint: "write the password into the file of REDIS_PASSWORD_FILE; it is read again",
			Err: fmt.Errorf("reload REDIS_PASSWORD_FILE: %w", err),
		}
	}
	return password, nil
}

// useTLS sets how o dials: with TLS if the URL says so. The dialer sets the server name of
// the node it dials.
func (c *Config) useTLS(o *redis.UniversalOptions, t target) error {
	files := bridge.ClientTLS{
		Prefix: "REDIS_TLS", CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey,
		CAFile: c.TLSCAFile, CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile,
	}
	var p bridge.Problems
	secure := func() (*tls.Config, error) { return nil, nil }
	if t.tls {
		p.Add(files.Validate())
		secure = files.Config
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // tells go-redis that there is TLS
	} else {
		const need = "needs TLS in REDIS_URL, for example rediss://localhost:6380/0"
		p.Check(c.TLSCA == "", "REDIS_TLS_CA", need)
		p.Check(c.TLSCert == "" && c.TLSKey == "", "REDIS_TLS_CERT", need)
	}
	o.Dialer = dial(o.DialTimeout, secure)
	return p.Err()
}
