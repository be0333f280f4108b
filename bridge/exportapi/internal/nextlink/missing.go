package nextlink

import (
	"net/url"
	"slices"
)

// Missing returns the parameters of want that a query lacks. If the query has some of the
// values of a parameter, the others are missing. If it has only other values, they replace
// those of want.
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
