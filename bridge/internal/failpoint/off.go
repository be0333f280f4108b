//go:build !proof

package failpoint

// Reach marks that the process got to a point.
func Reach(Point) {}

// Broken reports whether a rule is taken away.
func Broken(Break) bool { return false }
