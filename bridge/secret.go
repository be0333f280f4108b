package bridge

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

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

// MaxSecretFile bounds a file with a value, in bytes. The largest values are bundles of
// certificates.
const MaxSecretFile = 1 << 20

// ReadSecretFile reads the value in a regular file, or in a link to one, without a byte order
// mark and trailing line breaks. It rejects pipes and devices, because they may block, and
// cannot be read again when the value is rotated.
func ReadSecretFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, MaxSecretFile+1))
	if err != nil {
		return "", err
	}
	if len(content) > MaxSecretFile {
		return "", fmt.Errorf("%s is larger than %d bytes", path, MaxSecretFile)
	}
	return strings.TrimRight(strings.TrimPrefix(string(content), "\ufeff"), "\r\n"), nil
}

// Reread returns the value, or the present content of its file if it was read from one.
func Reread(value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	return ReadSecretFile(file)
}
