package rules

// patched reports whether the build has the patches. The overlay replaces this file.
const patched = false
