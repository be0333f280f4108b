package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/dev/embedded"
)

// demoStock is what a data directory stores of a demo's simulated export.
// Without it, the next demo's export would end before the stored cursor.
type demoStock struct {
	Start  time.Time     `json:"start"`
	Every  time.Duration `json:"every"`
	Events int           `json:"events"`
}

const demoStockFile = "export.json"

// resumeStock lets the simulator continue the stored export. In a new directory,
// it fixes the start of this one.
func resumeStock(dir string, sim *exportsim.Config) error {
	data, err := os.ReadFile(filepath.Join(dir, demoStockFile))
	if errors.Is(err, fs.ErrNotExist) {
		sim.Every = 100 * time.Millisecond
		if sim.Rate > 0 {
			sim.Every = min(time.Hour, time.Duration(float64(time.Second)/sim.Rate))
		}
		sim.Start = time.Now().Add(-time.Duration(sim.Events) * sim.Every).Truncate(time.Millisecond)
		return nil
	}
	if err != nil {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("read the demo's export: %w", err),
			Hint: embedded.AnotherDataDir}
	}
	var stock demoStock
	if err := json.Unmarshal(data, &stock); err != nil {
		return fmt.Errorf("read the demo's export in %s: %w", dir, err)
	}
	sim.Start, sim.Every, sim.Events = stock.Start, stock.Every, stock.Events
	return nil
}

// continueStock lets the simulator's export grow from the first start on that used the
// directory, also while no simulator runs: a client that is ahead of a restarted
// simulator would find no events for as long as that had run before.
func continueStock(dir string, sim *exportsim.Config) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("create the data directory: %w", err),
			Hint: embedded.AnotherDataDir}
	}
	if err := resumeStock(dir, sim); err != nil {
		return err
	}
	sim.Since = sim.Start.Add(time.Duration(sim.Events) * sim.Every)
	return saveStock(dir, sim, sim.Events)
}

// saveStock remembers how far the export has grown.
func saveStock(dir string, sim *exportsim.Config, events int) error {
	data, err := json.Marshal(demoStock{sim.Start, sim.Every, events})
	if err != nil {
		return fmt.Errorf("save the demo's export: %w", err)
	}
	path := filepath.Join(dir, demoStockFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("save the demo's export: %w", err)
	}
	return os.Rename(path+".new", path)
}
