// Package jsonpointer reads and writes JSON pointers (RFC 6901), and the values that they
// select in JSON that was decoded into maps and slices.
package jsonpointer

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
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

// Wrap returns an object with a JSON value at a valid field.
func Wrap(field string, value []byte) []byte {
	names, _ := Path(field)
	for _, name := range slices.Backward(names) {
		quoted, _ := json.Marshal(name) // a string always encodes
		value = slices.Concat([]byte("{"), quoted, []byte(":"), value, []byte("}"))
	}
	return value
}

// At returns the value of a field, nil without one. An element of an array has its index as
// name.
func At(value any, field string) any {
	names, err := Path(field)
	if err != nil {
		return nil
	}
	for _, name := range names {
		switch parent := value.(type) {
		case map[string]any:
			value = parent[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(parent) {
				return nil
			}
			value = parent[i]
		default:
			return nil
		}
	}
	return value
}

// Set sets a field, and makes the objects that lead to it. A value in the place of one of
// them is replaced. An invalid field is not set.
func Set(object map[string]any, field string, value any) {
	path, err := Path(field)
	if err != nil {
		return
	}
	for _, above := range path[:len(path)-1] {
		inside, ok := object[above].(map[string]any)
		if !ok {
			inside = make(map[string]any)
			object[above] = inside
		}
		object = inside
	}
	object[path[len(path)-1]] = value
}
