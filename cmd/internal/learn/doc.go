// Package learn finds the settings for an export API from a request that works: it
// asks for a few pages, tries what they suggest, and keeps what was proven. It records
// the pages without what they say, and serves a recording.
package learn
