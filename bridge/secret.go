package bridge

import "log/slog"

// Secret is a string that fmt, slog and encoders never print.
type Secret string

const redacted = "***"

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String returns "***", or an empty string for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from encoders such as encoding/json.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
