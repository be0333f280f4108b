package process

import (
	"exportbridge/bridge"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/windows"
	"exportbridge/cmd/internal/config"
)

// followWindows makes a stream list its export by windows, if the settings say so.
func followWindows(st *config.Stream, ports *engine.Ports) {
	if !st.Windows.Windows() {
		return
	}
	cfg := windowsOf(st)
	observer := ports.Observer
	cfg.Observe = func(o bridge.Observation) {
		o.Stream = st.Name
		observer.Observe(o)
	}
	st.Engine.MarksEnd = true // a page that stays at its watermark marks the end
	st.Engine.StrayCursor, st.Engine.Refuse = nil, nil
	ports.Source = windows.New(ports.Source, cfg)
}

// Ranges returns the Source that reads past ranges of a stream's export over a Source of
// its API. It returns nil if the stream follows its cursor, because the Source of the API
// then reads ranges itself.
func Ranges(st *config.Stream, source bridge.Source) bridge.Source {
	if !st.Windows.Windows() {
		return nil
	}
	return windows.NewRange(source, windowsOf(st))
}

// windowsOf returns the settings by which a stream's export is listed.
func windowsOf(st *config.Stream) windows.Config {
	cfg := st.Windows
	cfg.PageSize, cfg.EndExplicit = st.Engine.PageSize, st.Engine.EndExplicit
	cfg.MaxBytes, cfg.Timeout, cfg.Warn = st.Engine.PrefetchBytes, st.Engine.FetchTimeout, st.Export.Warn
	return cfg
}
