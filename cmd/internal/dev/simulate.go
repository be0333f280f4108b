package dev

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/dev/embedded"
	"exportbridge/cmd/internal/learn"
)

func newSimulateCommand(a *cli.App) *cobra.Command {
	var listen, dataDir, form, from string
	sim := exportsim.Config{Rate: 50, Events: 12_000, Seed: 1, Gzip: true}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Serve a simulated export API",
		Long: `Serve a simulated export API with events, sessions and users. Growth, latency,
limits and faults are configurable. The same seed produces the same content. The
command runs until it is stopped. --data-dir keeps the start of the export: a
restart with the same flags continues as if it had never stopped.

--form serves the same events in the form of another export API: with other
members, cursors, parameters and credentials. The command prints the settings
for exportbridge. A form with the name of a profile follows the documentation of
that service. The audit lists have the events until now, newest first; with
--lag, some events appear late. The form newest-first cannot be followed.

--from serves a file of exportbridge learn --record: the pages that a profile
was learned from, with the learned paging and bounds, and without credentials.
These pages do not grow.`,
		Example: `  exportbridge-dev simulate
  exportbridge-dev simulate --form okta-system-log --rate-limit 120/m
  exportbridge-dev simulate --form audit-list --lag 30s
  exportbridge-dev simulate --rate 500/s --fail 429=1%,500=0.5%,reset=0.1%
  exportbridge-dev simulate --from acme.json
  EXPORT_URL=http://127.0.0.1:4000 EXPORT_API_KEY=any exportbridge config show`,
		GroupID: groupTry,
		Args:    cli.NoArgs,
	}
	cmd.Flags().StringVar(&listen, "listen", "",
		"`ADDRESS` to listen at (default "+embedded.DefaultAPI+", or a free port)")
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "keep the start of the export in `DIR` and grow from it")
	cmd.Flags().StringVar(&form, "form", exportsim.FormNames()[0],
		"serve the form `NAME`: "+strings.Join(exportsim.FormNames(), ", "))
	simulatorFlags(cmd.Flags(), &sim)
	cmd.Flags().StringVar(&from, "from", "", "serve the recording `FILE` of exportbridge learn --record")
	cmd.MarkFlagsMutuallyExclusive("data-dir", "start")
	offerValues(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if from != "" {
			return replay(cmd, a, listen, from)
		}
		if err := setForm(&sim, form); err != nil {
			return err
		}
		if err := sim.Validate(); err != nil {
			return cli.WrongUsage("exportbridge-dev simulate --help", "%w", err)
		}
		if dataDir != "" {
			if err := continueStock(dataDir, &sim); err != nil {
				return err
			}
		}
		return simulate(cmd.Context(), a, listen, sim)
	}
	return cmd
}

func offerValues(cmd *cobra.Command) {
	cli.Offer(cmd, "form", exportsim.FormNames()...)
	cli.Offer(cmd, "schema", string(exportsim.Schema08), string(exportsim.Schema07), string(exportsim.Schema05))
	cli.Offer(cmd, "end-of-results", string(exportsim.EmptyCursor), string(exportsim.NullCursor),
		string(exportsim.NoCursor), string(exportsim.EmptyItems))
}

// simulate serves the export until the context ends.
func simulate(ctx context.Context, a *cli.App, listen string, sim exportsim.Config) (err error) {
	handler, err := exportsim.New(sim)
	if err != nil {
		return err
	}
	defer handler.Close()
	server, err := start(a, handler, listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	// This ends stalled requests, so that server.Close does not wait for them.
	defer handler.Close()
	fmt.Fprintf(a.Stdout, "export API  %s%s  simulated, %s events/s, %s initial events\n",
		server.URL, sim.BasePath, formatRate(sim.Rate), humanize.Comma(int64(sim.Events)))
	if sim.Form.Name != "" {
		fmt.Fprintf(a.Stdout, "\nSettings for the form %s:\n\n%s", sim.Form.Name, settingsOf(sim, server.URL))
	}
	return server.Wait(ctx)
}

// start serves an API. It prints the address if the default one is in use.
func start(a *cli.App, handler http.Handler, listen string) (*embedded.HTTP, error) {
	server, err := embedded.StartSimulator(handler, listen)
	if err == nil && server.Moved {
		fmt.Fprintf(a.Stderr, "%s is in use, listening at %s\n", embedded.DefaultAPI, server.Addr)
	}
	return server, err
}

// replay serves a recording until the context ends.
func replay(cmd *cobra.Command, a *cli.App, listen, file string) (err error) {
	var other string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "from" && f.Name != "listen" {
			other = f.Name
		}
	})
	if other != "" {
		return cli.WrongUsage("exportbridge-dev simulate --from "+file,
			"--from serves a recording as it is, --%s does not go with it", other)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return cli.WrongUsage("name a file of exportbridge learn --record", "read --from: %w", err)
	}
	handler, err := learn.NewReplay(text)
	if err != nil {
		return cli.WrongUsage("exportbridge learn --record FILE -- curl ...", "%s: %w", file, err)
	}
	server, err := start(a, handler, listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	fmt.Fprintf(a.Stdout, "export API  %s  recorded\n\nWith the profile that was learned:\n\n"+
		"EXPORT_URL=%[1]s\nEXPORT_API_KEY=any\n", server.URL)
	return server.Wait(cmd.Context())
}

// setForm selects the form. A form with credentials gets a key unless a flag sets one.
func setForm(sim *exportsim.Config, name string) error {
	var known bool
	if sim.Form, known = exportsim.FormNamed(name); !known {
		return cli.WrongUsage("exportbridge-dev simulate --help",
			"form %q is unknown, use for example okta-system-log", name)
	}
	if sim.Form.Name != "" && sim.APIKey == "" && sim.Form.Auth != "none" {
		sim.APIKey = "simulated"
	}
	return nil
}

// settingsOf returns the settings of exportbridge for shells and .env files.
func settingsOf(sim exportsim.Config, url string) string {
	settings := sim.Form.Settings(url + sim.BasePath)
	if sim.Form.Auth != "none" {
		settings = append(settings, exportsim.Setting{Name: "EXPORT_API_KEY", Value: sim.APIKey})
	}
	var text strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&text, "%s=%s\n", s.Name, quoted(s.Value))
	}
	return text.String()
}

// plain matches a value that needs no quotes in a shell.
var plain = regexp.MustCompile(`^[\pL\d/.,:=@%+_-]*$`)

// quoted quotes a value so that shells and environment files read the same.
func quoted(value string) string {
	switch {
	case plain.MatchString(value):
		return value
	case strings.Contains(value, "'"):
		return strconv.Quote(value)
	}
	return "'" + value + "'"
}

// simulatorFlags registers the flags of a simulated export. The values in sim are the
// defaults.
func simulatorFlags(flags *pflag.FlagSet, sim *exportsim.Config) {
	flags.Var(cli.Parsed(&sim.Rate, parseRate, "RATE").Shown(formatRate(sim.Rate)+"/s"), "rate",
		"growth, such as 500/s or 600/m; 0 for none")
	flags.IntVar(&sim.Events, "events", sim.Events, "initial events")
	flags.Uint64Var(&sim.Seed, "seed", sim.Seed, "seed of the content")
	flags.Var(cli.Parsed(&sim.Start, parseStart, "TIME"), "start",
		"time of the first event (default: the last event is now)")
	flags.Var(cli.Parsed(&sim.Lag, bridge.ParseDuration, "DURATION"), "lag",
		"latest appearance of late events in an audit list, such as 30s")
	flags.Var(cli.Parsed(&sim.Changes, bridge.ParseDuration, "DURATION"), "changes",
		"how often the items of an audit list change, such as 1m (default never)")
	flags.Var(cli.Parsed(&sim.Clock, parseClock, "DURATION"), "clock-offset",
		"how far the API's clock is ahead, or with - behind (default 0)")
	flags.StringVar((*string)(&sim.Schema), "schema", string(exportsim.Schema08), "schema version: 0.8, 0.7 or 0.5")
	flags.StringVar((*string)(&sim.EndOfResults), "end-of-results", "",
		"end marker: empty-cursor, null-cursor, no-cursor or empty-items (default the form's)")
	flags.IntVar(&sim.ScanLimit, "scan-limit", sim.ScanLimit,
		"maximum events that a filtered request scans (default 2000)")
	flags.Var(cli.Parsed(&sim.Latency, bridge.ParseDuration, "DURATION"), "latency",
		"latency of each response, such as 20ms")
	flags.Var(cli.Parsed(&sim.BandwidthBits, parseBandwidth, "SPEED"), "bandwidth",
		"shared bandwidth of all responses, such as 100mbit (default unlimited)")
	flags.Var(cli.Parsed(&sim.Faults, exportsim.ParseFaults, "LIST"), "fail",
		"fault rates, such as 429=1%,500=0.5%; also reset, truncate, malformed, html, stall")
	flags.StringVar(&sim.APIKey, "api-key", "", "required key, password or client secret (default none, or the form's)")
	flags.Var(cli.Parsed(&sim.TokenTTL, bridge.ParseDuration, "DURATION"), "token-ttl",
		"lifetime of an OAuth 2.0 token (default 24h)")
	flags.Var(cli.Parsed(&sim.CursorTTL, bridge.ParseDuration, "DURATION"), "cursor-ttl",
		"lifetime of a cursor (default unlimited)")
	flags.Var(cli.Parsed(&sim.RateLimit, parseRate, "RATE"), "rate-limit",
		"request rate above which requests are refused, such as 10/s")
	flags.StringVar(&sim.BasePath, "base-path", "", "prefix of /events, /session and /user, such as /export")
	flags.BoolVar(&sim.CursorFirst, "cursor-first", sim.CursorFirst, "put nextCursor before items, not after")
	flags.BoolVar(&sim.Gzip, "gzip", sim.Gzip, "compress with gzip if requested")
	flags.BoolVar(&sim.Zstd, "zstd", sim.Zstd, "compress with zstd if requested")
}

// parseRate reads 50/s, 600/m or 10/h as a number per second; 0 needs no unit.
func parseRate(text string) (float64, error) {
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseFloat(number, 64)
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	if err == nil && n == 0 {
		return 0, nil
	}
	if err != nil || seconds == 0 || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return 0, errors.New("not a rate, for example 50/s or 600/m")
	}
	return n / seconds, nil
}

// parseBandwidth reads 100mbit as bits per second; 0 is no limit.
func parseBandwidth(text string) (int64, error) {
	number := strings.TrimRight(text, "kmgbit")
	n, err := strconv.ParseFloat(number, 64)
	factor, known := map[string]float64{"": 0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[text[len(number):]]
	// The negation also catches a NaN.
	if err != nil || !known || !(n >= 0 && n <= 1e6) || n > 0 && factor == 0 {
		return 0, errors.New("not a speed, for example 100mbit or 1gbit")
	}
	return int64(n * factor), nil
}

func formatRate(perSecond float64) string { return strconv.FormatFloat(perSecond, 'g', 4, 64) }

// parseClock reads how far a clock is ahead of the machine's.
func parseClock(text string) (func() time.Time, error) {
	ahead, err := time.ParseDuration(text)
	if err != nil {
		return nil, errors.New("not a length of time, for example 90s or -1h")
	}
	return func() time.Time { return time.Now().Add(ahead) }, nil
}

func parseStart(text string) (time.Time, error) {
	ms, err := bridge.ParseInstant(text, time.Now())
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(ms), nil
}
