// Package jsonpointer reads and writes JSON pointers (RFC 6901).
package jsonpointer

import (
	"errors"
	"strings"
)

// Parse splits a JSON pointer (RFC 6901) into its names.
func Parse(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	names := strings.Split(pointer, "/")
	if names[0] != "" {
		return nil, errors.New("a JSON pointer must begin with /")
	}
	names = names[1:]
	for i, name := range names {
		for rest := name; rest != ""; {
			_, after, found := strings.Cut(rest, "~")
			if found && !strings.HasPrefix(after, "0") && !strings.HasPrefix(after, "1") {
				return nil, errors.New("a JSON pointer must escape ~ as ~0 and / as ~1")
			}
			rest = after
		}
		names[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	}
	return names, nil
}

// Append returns the pointer to a member of the value at pointer.
func Append(pointer, name string) string { return pointer + "/" + escape.Replace(name) }

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// Path returns the names that lead to a field, which is the name of a member or a JSON
// pointer.
func Path(field string) ([]string, error) {
	if !strings.HasPrefix(field, "/") {
		return []string{field}, nil
	}
	return Parse(field)
}
