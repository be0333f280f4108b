package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/keyring"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// checkTimeout is how long check may take unless --timeout says otherwise.
const checkTimeout = 20 * time.Second

// mostShown is the largest --sample.
const mostShown = 1000

// level is the severity of a finding.
type level string

const (
	levelOK   level = "ok"
	levelInfo level = "info"
	levelWarn level = "warn"
	levelFail level = "fail" // the bridge cannot run, or will lose its cursor
)

// finding is one result of the check.
type finding struct {
	Level level  `json:"level"`
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`
	// Items are shown below the text.
	Items *[]sampledItem `json:"items,omitempty"`

	rejected  bool // the API rejected a cursor
	refused   bool // the API rejected a request without one
	backwards bool // the API lists newest first
}

func newFinding(l level, text string, hints []string) finding {
	return finding{Level: l, Text: text, Hint: strings.Join(hints, "; ")}
}

func fine(text string) finding                  { return newFinding(levelOK, text, nil) }
func info(text string, hints ...string) finding { return newFinding(levelInfo, text, hints) }
func warn(text string, hints ...string) finding { return newFinding(levelWarn, text, hints) }
func fail(text string, hints ...string) finding { return newFinding(levelFail, text, hints) }

// checkSection is one part of the check. find is called once.
type checkSection struct {
	name string
	find func(ctx context.Context) []finding
}

// checkSystems are the systems that --only can name.
var checkSystems = map[string]config.Uses{
	"api": config.UsesExport, "kafka": config.UsesKafka, "redis": config.UsesCursor,
}

func newCheckCommand(a *cli.App) *cobra.Command {
	var only []string
	timeout, show := checkTimeout, 0
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check configuration and connectivity",
		Long: `Check the settings, the export API and its key, Kafka topics and permissions,
Redis persistence, and which process owns each stream; that each stream's
checkpoint belongs to the settings; and how a run would resume where Kafka and
Redis have different checkpoints. The command writes one key to Redis and
removes it again.

check reads the first 100 items from EXPORT_START, then the next page
(EXPORT_PAGE_SIZE items). Up to four more requests show how the list is paged
and which settings fit, and one which rules for private data select nothing.
--sample N reads N, at most a page, and shows them: id, time, type, key and
topic, in clear text.

The exit code is 3 if the bridge cannot run, or if an item is unreadable.`,
		Example: `  EXPORT_API_KEY_FILE=key exportbridge check
  exportbridge check --only kafka,redis
  exportbridge check --only api --sample 5
  exportbridge check --json | jq '.sections[].findings[].text'`,
		GroupID: cli.GroupSetup,
		Args:    cli.NoArgs,
	}
	asJSON := cli.TakeJSON(cmd)
	a.TakeSettings(cmd)
	cmd.Flags().StringSliceVar(&only, "only", nil, "check only these `SYSTEMS`: api, kafka, redis")
	cli.Offer(cmd, "only", slices.Sorted(maps.Keys(checkSystems))...)
	cmd.Flags().Var(cli.Parsed(&timeout, bridge.ParseDuration, "DURATION").Shown("20s"), "timeout", "maximum time of each stream")
	cmd.Flags().IntVar(&show, "sample", 0, "show how the first `N` items are read (default: none shown)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("sample") && (show < 1 || show > mostShown) {
			return cli.WrongUsage("--sample 5", "--sample %d is not within 1 to %d", show, mostShown)
		}
		need, err := systemsNamed(only)
		if err != nil {
			return err
		}
		if timeout <= 0 {
			return cli.WrongUsage("--timeout "+checkTimeout.String(), "--timeout %s is not above 0", timeout)
		}
		s, err := a.Settings(need, nil)
		if err != nil {
			return err
		}
		return runCheck(cmd.Context(), a, checkSections(s, need, show, timeout), *asJSON)
	}
	return cmd
}

// systemsNamed parses --only. Without a name, it returns all systems.
func systemsNamed(names []string) (config.Uses, error) {
	if len(names) == 0 {
		return config.UsesAll, nil
	}
	var need config.Uses
	for _, name := range names {
		system, ok := checkSystems[strings.TrimSpace(name)]
		if !ok {
			return 0, cli.WrongUsage("exportbridge check --only kafka,redis", "--only %q is not one of: api, kafka, redis", name)
		}
		need |= system
	}
	return need, nil
}

// runCheck runs the sections at the same time and prints them in order, each as soon as
// possible.
func runCheck(ctx context.Context, a *cli.App, sections []checkSection, asJSON bool) error {
	var running sync.WaitGroup
	defer running.Wait()
	results := make([]chan []finding, len(sections))
	for i, section := range sections {
		results[i] = make(chan []finding, 1)
		running.Go(func() { results[i] <- section.find(ctx) })
	}
	report := CheckReport{advice: a.Advice, columns: a.Columns, marks: a.Columns > 0 && !process.NoColor(a.Environ)}
	for i, section := range sections {
		findings := <-results[i]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		report.add(section.name, findings)
		if !asJSON {
			if _, err := io.WriteString(process.Exact(a.Stdout), report.text(section.name, findings)); err != nil {
				return fmt.Errorf("print check: %w", err)
			}
		}
	}
	if err := printSummary(a, &report, asJSON); err != nil {
		return err
	}
	if n := report.Failures; n > 0 {
		return &cli.Error{Code: cli.ExitCheck, Err: errors.New("the check found " + cli.Counted(n, "blocking problem"))}
	}
	return nil
}

func printSummary(a *cli.App, r *CheckReport, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(a.Stdout, r)
	}
	warnings, failures := cli.Counted(r.Warnings, "warning"), cli.Counted(r.Failures, "failure")
	if _, err := fmt.Fprintf(a.Stdout, "  %d ok, %s, %s\n", r.OK, warnings, failures); err != nil {
		return fmt.Errorf("print check: %w", err)
	}
	return nil
}

// CheckReport is the JSON form of the findings.
type CheckReport struct {
	Sections []reportedSection `json:"sections"`
	OK       int               `json:"ok"`
	Warnings int               `json:"warnings"`
	Failures int               `json:"failures"`

	advice  func(text, stream string) string // completes commands
	columns int
	marks   bool // colours for the levels
}

type reportedSection struct {
	Name     string    `json:"name"`
	Findings []finding `json:"findings"`
}

func (r *CheckReport) add(name string, findings []finding) {
	r.Sections = append(r.Sections, reportedSection{name, findings})
	for _, f := range findings {
		switch f.Level {
		case levelOK:
			r.OK++
		case levelWarn:
			r.Warnings++
		case levelFail:
			r.Failures++
		}
	}
}

// text returns the text of a section. Only the first line has the section's name.
func (r *CheckReport) text(name string, findings []finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "  %-8s %s %s\n", name, r.mark(f.Level), r.wrapped(f.Text))
		if f.Hint != "" {
			fmt.Fprintf(&b, "%s%s\n", checkIndent, r.wrapped("Try: "+r.advice(f.Hint, "")))
		}
		if f.Items != nil {
			b.WriteString(r.table(*f.Items))
		}
		name = ""
	}
	return b.String()
}

// table shows sampled items. Time and topic stay whole.
func (r *CheckReport) table(items []sampledItem) string {
	rows := [][]string{{"ITEM", "ID", "TIME", "TYPE", "KEY", "TOPIC"}}
	for i := range items {
		s := &items[i]
		row := []string{strconv.Itoa(s.Item), cmp.Or(s.ID, "(hash)")}
		for _, value := range []string{s.Time, s.Type, s.Key, s.Topic} {
			row = append(row, cmp.Or(value, "-"))
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	_, _ = cli.PrintTable(&b, rows, r.columns, 2, 5) // into memory
	return b.String()
}

// checkIndent is the space before the text of a finding.
const checkIndent = "                "

// wrapped joins the lines of a text, and breaks it at the terminal's width.
func (r *CheckReport) wrapped(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	text = process.Printable(strings.Join(lines, "; "))
	return strings.Join(cli.Wrap(text, r.columns-len(checkIndent)), "\n"+checkIndent)
}

// mark is the level, four columns wide.
func (r *CheckReport) mark(l level) string {
	word := fmt.Sprintf("%-4s", l)
	colour := ""
	switch l {
	case levelOK:
		colour = "\x1b[32m"
	case levelWarn:
		colour = "\x1b[33m"
	case levelFail:
		word, colour = "FAIL", "\x1b[1;31m"
	}
	if !r.marks || colour == "" {
		return word
	}
	return colour + word + "\x1b[0m"
}

// checkSections lists the sections of these systems.
func checkSections(s *config.Settings, need config.Uses, show int, timeout time.Duration) []checkSection {
	sections := []checkSection{{"config", func(context.Context) []finding { return checkConfig(s) }}}
	add := func(system config.Uses, name string, find func(context.Context) []finding) {
		if need&system != 0 {
			sections = append(sections, checkSection{name, find})
		}
	}
	perStream := func(find func(context.Context, *config.Stream) []finding) func(context.Context) []finding {
		return func(ctx context.Context) []finding { return eachStream(ctx, s, timeout, find) }
	}
	add(config.UsesExport, "api", perStream(func(ctx context.Context, st *config.Stream) []finding {
		return checkAPI(ctx, st, show)
	}))
	add(config.UsesKafka, "kafka", perStream(func(ctx context.Context, st *config.Stream) []finding {
		return checkKafka(ctx, s, st, need)
	}))
	add(config.UsesCursor, "redis", func(ctx context.Context) []finding { return checkRedis(ctx, s, need, timeout) })
	add(config.UsesCursor, "owner", func(ctx context.Context) []finding { return checkOwners(ctx, s, need, timeout) })
	return sections
}

// eachStream checks several streams at a time, each until a timeout that begins with it. It
// returns a finding of all streams once.
func eachStream(
	ctx context.Context, s *config.Settings, timeout time.Duration,
	find func(context.Context, *config.Stream) []finding,
) []finding {
	found := make([][]finding, len(s.Streams))
	control.Each(len(found), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		found[i] = find(ctx, &s.Streams[i])
	})
	shared := func(f finding) bool {
		return !slices.ContainsFunc(found, func(list []finding) bool { return !slices.Contains(list, f) })
	}
	var all []finding
	for i, list := range found {
		for _, f := range list {
			switch name := s.Streams[i].Name; {
			case !shared(f):
				f.Text, f.Hint = name+": "+f.Text, process.NameStream(f.Hint, name)
			case i > 0:
				continue
			case len(found) > 1:
				f.Hint = process.NameStream(f.Hint, "")
			}
			all = append(all, f)
		}
	}
	return all
}

// checkConfig counts the settings, and warns of doubtful ones.
func checkConfig(s *config.Settings) []finding {
	set, files := 0, 0
	for _, row := range s.Effective {
		if row.Origin != config.FromDefault {
			set++
		}
		if row.Origin == config.FromFile {
			files++
		}
	}
	text := cli.Counted(set, "value") + " set"
	if files > 0 {
		text += fmt.Sprintf(", %d from files", files)
	}
	found := []finding{fine(text + ", others are defaults")}
	for _, line := range s.Warnings {
		found = append(found, warn(line))
	}
	unsafe := slices.Concat(s.HTTP.Unsafe(), s.Unsafe())
	for i := range s.Streams {
		unsafe = append(unsafe, s.Streams[i].Unsafe()...)
	}
	for _, name := range unsafe {
		why, remedy := config.UnsafeReason(name)
		if f := warn(name+" "+why, remedy); !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
	return found
}

// checkKafka checks the brokers, topics and permissions, and that the checkpoint belongs to
// the settings. The topics must hold the records up to the checkpoint, and those that windows
// may list again. If need includes Redis, the newer of the checkpoints in Kafka and in Redis
// counts.
func checkKafka(ctx context.Context, s *config.Settings, st *config.Stream, need config.Uses) []finding {
	cfg := st.Kafka
	redis, redisErr := bridge.Checkpoint{}, error(nil)
	if need&config.UsesCursor != 0 { // the section about Redis has its errors
		// Kafka is read later, so that it has this checkpoint, or has lost it.
		redis, redisErr = stored(ctx, s, st.Name)
		cfg.Known = func(context.Context) (bridge.Checkpoint, error) { return redis, noCheckpoint(redisErr) }
	}
	var found []finding
	needs, at := cfg.Needs(), bridge.Checkpoint{}
	newest := needs.Past.Newest
	needs.Past.Newest = func(ctx context.Context, client *kafkaclient.Client) (c bridge.Checkpoint, err error) {
		if c, err = newest(ctx, client); err == nil {
			at = c
		}
		return c, err
	}
	for _, f := range needs.Check(ctx) {
		hint := cmp.Or(f.Hint, cli.EngineHints[f.HintCode])
		if f.HintCode == bridge.HintTopicMissing && strings.Contains(f.Text, " "+cfg.Topic+" ") {
			hint = strings.Replace(hint, "KAFKA_TOPIC", cli.WithSimilar(ctx, &cfg.Config.Config, "KAFKA_TOPIC", cfg.Topic), 1)
		}
		found = append(found, finding{Level: level(f.Level), Text: strings.TrimPrefix(f.Text, "Kafka: "), Hint: hint})
	}
	if st.Export.Private.Encrypts() {
		found = append(found, checkKeys(ctx, st)...)
	}
	if need&config.UsesCursor != 0 && (redisErr == nil || errors.Is(redisErr, bridge.ErrNoCheckpoint)) &&
		!slices.ContainsFunc(found, func(f finding) bool { return f.Level == levelFail }) {
		found = append(found, checkResumption(ctx, st, redis)...)
	}
	found = append(found, checkOrigin(at, st)...)
	from := at.Position()
	if w, ok := from.Watermark(); ok && at.Listing != nil && st.Windows.Windows() {
		err := cfg.Published().Covers(ctx, at.Listing.Since(w.At, st.Engine.LookBack))
		if err != nil && bridge.FaultOf(err).Reason == bridge.ReasonRetention { // others are said above
			found = append(found, failure(err))
		}
	}
	return found
}

// checkKeys reads the topic of keys with the master keys. The findings of Kafka say why it is
// not readable.
func checkKeys(ctx context.Context, st *config.Stream) []finding {
	r, err := keyring.NewReader(ctx, process.KeyConfig(st))
	if err == nil {
		r.Close()
		return []finding{fine("EVENT_ENCRYPT_KEY decrypts all data keys")}
	}
	if bridge.FaultOf(err).Reason == bridge.ReasonConfig {
		return []finding{failure(err)}
	}
	return nil
}

// checkOrigin checks that a checkpoint, if there is one, belongs to the settings.
func checkOrigin(at bridge.Checkpoint, st *config.Stream) []finding {
	if at.Zero() || at.Unread() { // the bridge adopts the settings
		at.Origin = st.Engine.Origin
	}
	if fault := bridge.OriginFault(&at, st.Engine.Origin, st.Engine.Topic); fault != nil {
		return []finding{fail(fault.Error(), cli.EngineHints[fault.HintCode])}
	}
	source := " (these settings are source " + st.Engine.Origin.Request.Digest() + ")"
	if at.Cursor != "" && at.PendingSource() == "" && !at.Origin.Request.Known() {
		if err := st.Export.StrayCursor(at.Cursor); err != nil {
			return []finding{fail(err.Error()+source, cli.EngineHints[bridge.HintRequest])}
		}
	}
	if unproven := at.RequestChange(st.Engine.Origin.Request).Unproven; len(unproven) > 0 {
		text := "the settings changed the request (" + strings.Join(unproven, ", ") +
			"): the stream goes on only with a page that lists items published before"
		return []finding{warn(text+source, cli.EngineHints[bridge.HintRequest])}
	}
	return nil
}

// failure is the finding of an adapter's error.
func failure(err error) finding {
	f := fail(err.Error())
	if e, ok := errors.AsType[*cli.Error](cli.Explain(err)); ok {
		f.Hint = e.Hint
	}
	return f
}
