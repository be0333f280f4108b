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

// demoStock describes the simulated export of a demo in its data directory. Without
// it, the export of the next demo would end before the stored cursor.
type demoStock struct {
	Start  time.Time     `json:"start"`
	Every  time.Duration `json:"every"`
	Events int           `json:"events"`
	// Since is when the export began to grow beyond Events; zero if it has stopped.
	Since time.Time `json:"since,omitzero"`
}

const demoStockFile = "export.json"

// resumeStock sets sim to the stored export. In a new directory, it sets the start of
// sim instead.
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
		return cli.Errorf(cli.ExitFailed, embedded.AnotherDataDir, "read the demo's export: %w", err)
	}
	var stock demoStock
	if err := json.Unmarshal(data, &stock); err != nil {
		return fmt.Errorf("read the demo's export in %s: %w", dir, err)
	}
	sim.Start, sim.Every, sim.Events, sim.Since = stock.Start, stock.Every, stock.Events, stock.Since
	return nil
}

// continueStock lets the export grow since the first simulator that used the directory,
// even while no simulator runs. Otherwise a client would be ahead of a restarted
// simulator, and would find no events for as long as the earlier ones had run.
func continueStock(dir string, sim *exportsim.Config) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return cli.Errorf(cli.ExitFailed, embedded.AnotherDataDir, "create the data directory: %w", err)
	}
	if err := resumeStock(dir, sim); err != nil {
		return err
	}
	sim.Since = sim.Start.Add(time.Duration(sim.Events) * sim.Every)
	return saveStock(dir, demoStock{Start: sim.Start, Every: sim.Every, Events: sim.Events})
}

// saveStock stores how far the export has grown.
func saveStock(dir string, stock demoStock) error {
	data, err := json.Marshal(stock)
	if err != nil {
		return fmt.Errorf("save the demo's export: %w", err)
	}
	path := filepath.Join(dir, demoStockFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("save the demo's export: %w", err)
	}
	return os.Rename(path+".new", path)
}
