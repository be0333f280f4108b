package bridge

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// MaxSecretFile bounds a file that holds a value, in bytes. The largest are bundles of
// certificates.
const MaxSecretFile = 1 << 20

// ReadSecretFile reads the value that a regular file holds, or a link to one, without
// trailing line breaks. It rejects pipes and devices, which block or never end, and
// can be read only once: a value is reread when it is rotated.
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
	return strings.TrimRight(string(content), "\r\n"), nil
}
