package cli

import (
	"os"
	"os/user"
)

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
