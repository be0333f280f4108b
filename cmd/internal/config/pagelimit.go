package config

import "exportbridge/bridge/exportapi"

// pageVariable names the setting for the limit of a page. By default, pageShare pages of
// that size fit into the memory limit. Two pages are in memory at a time, each together
// with its events.
const (
	pageVariable = "EXPORT_MAX_RESPONSE_BYTES"
	pageShare    = 8
	leastPage    = 1 << 20
)

// memoryVariable names the limit of all pages of a process. By default, it is a part of the
// memory limit.
const (
	memoryVariable = "BRIDGE_MEMORY"
	memoryShare    = 4
)

// memoryOf returns the default of BRIDGE_MEMORY for a memory limit in bytes, 0 for no limit.
func memoryOf(limit int64) int64 {
	return shareOf(limit, memoryShare, defaultProcess.Memory)
}

// pageLimit returns the default limit of a page if this number of readers shares the
// memory. memory is 0 without a limit.
func pageLimit(memory int64, readers int) int64 {
	return shareOf(memory, pageShare*int64(max(1, readers)), exportapi.DefaultConfig().MaxResponse)
}

// shareOf returns one of so many shares of a memory limit, at most usual. Below, it is in whole MiB.
func shareOf(limit, shares, usual int64) int64 {
	if limit == 0 || limit/shares >= usual {
		return usual
	}
	return max(leastPage, limit/shares/leastPage*leastPage)
}

// LimitPages sets the limit of a page so that the pages of so many concurrent readers fit into
// the memory, unless EXPORT_MAX_RESPONSE_BYTES is set.
func (st *Stream) LimitPages(readers int) {
	if st.PageMemory > 0 {
		st.Export.MaxResponse = pageLimit(st.PageMemory, readers)
	}
}
