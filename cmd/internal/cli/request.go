package cli

import (
	"os"
	"os/user"

	"exportbridge/bridge/exportapi"
)

// ParseRateLimit parses --rate-limit, in requests per second.
func ParseRateLimit(text string) (float64, error) {
	limit, err := exportapi.ParseRate(text)
	if err != nil || text == "" {
		return 0, WrongUsage("--rate-limit 10/s", "--rate-limit %q is not a rate", text)
	}
	return limit, nil
}

// Boundless returns the error of a range or a start that the API does not take according to
// the settings.
func Boundless(err error) error {
	return WrongUsage("correct these settings, if the API has bounds: exportbridge config show", "%w", err)
}

// Operator is the user at this machine, for the history.
func Operator() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
