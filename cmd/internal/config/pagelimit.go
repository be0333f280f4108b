package config

import "exportbridge/bridge/exportapi"

// pageVariable names the limit of a page. By default pageShare of them fit the memory:
// two pages are in memory, each with what their events take beside it.
const (
	pageVariable = "EXPORT_MAX_RESPONSE_BYTES"
	pageShare    = 8
	leastPage    = 1 << 20
)

// memoryVariable names the limit of all pages of a process, which by default is a part of
// the memory's limit.
const (
	memoryVariable = "BRIDGE_MEMORY"
	memoryShare    = 4
)

// memoryOf is the default of BRIDGE_MEMORY for a memory limit, 0 for none; in whole MiB.
func memoryOf(limit int64) int64 {
	if usual := defaultProcess.Memory; limit == 0 || limit/memoryShare >= usual {
		return usual
	}
	return max(leastPage, limit/memoryShare/leastPage*leastPage)
}

// pageLimit is the default of the limit of a page where so many readers share the
// memory, 0 for one without a limit; in whole MiB if less than usual.
func pageLimit(memory int64, readers int) int64 {
	usual, share := exportapi.DefaultConfig().MaxResponse, memory/pageShare/int64(max(1, readers))
	if memory == 0 || share >= usual {
		return usual
	}
	return max(leastPage, share/leastPage*leastPage)
}

// LimitPages makes the limit of a page what so many readers of exports at a time can hold
// beside each other in memory, unless EXPORT_MAX_RESPONSE_BYTES is set.
func (st *Stream) LimitPages(readers int) {
	if st.PageMemory > 0 {
		st.Export.MaxResponse = pageLimit(st.PageMemory, readers)
	}
}
