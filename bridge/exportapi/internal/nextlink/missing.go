package nextlink

import (
	"net/url"
	"slices"
)

// Missing returns the parameters that a query lacks. Of one that it has with
// some of the values, these are what it lacks of the others; one with other
// values has been replaced.
func Missing(query string, want url.Values) url.Values {
	has, _ := url.ParseQuery(query) // what cannot be read is not there
	missing := url.Values{}
	for name, values := range want {
		ours := func(value string) bool { return slices.Contains(values, value) }
		if len(has[name]) > 0 && !slices.ContainsFunc(has[name], ours) {
			continue
		}
		for _, value := range values {
			if !slices.Contains(has[name], value) {
				missing.Add(name, value)
			}
		}
	}
	return missing
}
