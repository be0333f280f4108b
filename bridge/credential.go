package bridge

import (
	"regexp"
	"strings"
)

var (
	// hump matches the beginning of a word inside a name such as apiKey or HMACKey, gap what
	// separates words.
	hump = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
	gap  = regexp.MustCompile(`[^a-z0-9/]+`)
	// plainWord matches keys by which a list is sorted or selected, and tokens that are cursors.
	plainWord = regexp.MustCompile(`(^|[^a-z])((sort|order|group|partition|project|issue)[^a-z]?key|` +
		`(page|next|skip|sync|delta|continuation|cursor)[^a-z]?token)($|[^a-z])`)
	// credentialWord matches words in the names of parameters that authenticate, some at the end
	// of the name alone: not author, keyword, tokens or auth_type.
	credentialWord = regexp.MustCompile(`(^|[^a-z])(key|apikey|token|secret|password)($|[^a-z])|` +
		`((^|[^a-z])(auth|authorization|credentials?|jwt|sig|pwd|pass)|token|secret|password|passwd|passphrase|signature|` +
		`(api|access|auth|app|secret|private|subscription)key)[^a-z]*$`)
	// credentialHeader matches the names of headers that authenticate. A header that a profile
	// hides in vain costs less than a parameter.
	credentialHeader = regexp.MustCompile(`(?i)auth|token|key|secret|cookie|session|password|signature|credential|` +
		`jwt|passwd|passphrase`)
)

// IsCredential reports whether a parameter authenticates, judged by its name, which may be a
// JSON pointer.
func IsCredential(name string) bool {
	return credentialWord.MatchString(plainWord.ReplaceAllString(Words(name), "$1$3"))
}

// Words returns the words of a name, which may be a JSON pointer, in lower case and with spaces
// between them. Slashes stay.
func Words(name string) string {
	return gap.ReplaceAllString(strings.ToLower(hump.ReplaceAllString(name, "$1$3 $2$4")), " ")
}

// IsCredentialHeader reports whether a header may authenticate, judged by its name.
func IsCredentialHeader(name string) bool {
	return credentialHeader.MatchString(name) || IsCredential(name)
}
