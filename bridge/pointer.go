package bridge

import "strings"

// PointerLike returns the JSON pointer that a text probably means: a member's name, or a
// path with dots.
func PointerLike(text string) string {
	name := strings.Trim(strings.TrimPrefix(text, "$"), "./ ")
	if name == "" {
		return "/userId"
	}
	return "/" + strings.ReplaceAll(name, ".", "/")
}
