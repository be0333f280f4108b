package setup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaadmin"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

func newTopicsCommand(a *cli.App) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:                   "topics",
		Short:                 "Plan and create topics",
		Example:               "  exportbridge topics plan",
		GroupID:               cli.GroupSetup,
		DisableFlagsInUseLine: true,
	}, newTopicsPlanCommand(a), newTopicsCreateCommand(a))
}

// topicsOptions are the flags of topics plan and create.
type topicsOptions struct {
	stream  string
	acls    bool
	execute bool
	create  bool // the command is create
	wait    time.Duration
	json    *bool
}

func newTopicsPlanCommand(a *cli.App) *cobra.Command {
	var o topicsOptions
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Compare topics with the settings",
		Long: `Show the topics of the streams, whether they exist, and how they differ from the
settings. The command is read-only. A topic of jobs or of the attestation that
may not be described is denied. --acls prints the commands that grant the
required permissions, for the administrator of the cluster.`,
		Example: `  exportbridge topics plan
  exportbridge topics plan --acls
  exportbridge topics plan --stream users --json`,
		Args: cli.NoArgs,
	}
	o.take(a, cmd)
	cmd.Flags().BoolVar(&o.acls, "acls", false, "print only the commands that grant permissions")
	return cmd
}

func newTopicsCreateCommand(a *cli.App) *cobra.Command {
	o := topicsOptions{create: true}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create missing topics",
		Long: `Create missing topics with KAFKA_PARTITIONS, KAFKA_REPLICATION and
KAFKA_RETENTION. Existing topics stay as they are. The command goes on after a
topic that it may not create, names the streams that failed, and lists what it
created.

Without --execute, the command is a dry run. With --wait, it waits for brokers
that are still starting.`,
		Example: `  exportbridge topics create
  exportbridge topics create --execute
  exportbridge topics create --execute --wait 1m
  exportbridge topics create --execute --kafka-partitions 12`,
		Args: cli.NoArgs,
	}
	o.take(a, cmd)
	wait := cli.Parsed(&o.wait, bridge.ParseDuration, "DURATION")
	cmd.Flags().Var(wait, "wait", "how long to wait until a broker answers")
	cli.TakeExecute(cmd, &o.execute)
	return cmd
}

// take adds the flags that both commands have, and sets the function that they run.
func (o *topicsOptions) take(a *cli.App, cmd *cobra.Command) {
	o.json = cli.TakeJSON(cmd)
	a.TakeWide(cmd)
	a.TakeSettings(cmd)
	cli.TakeStreams(cmd, &o.stream)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runTopics(cmd.Context(), a, *o) }
}

// TopicsReport is the JSON form of topics plan and create.
type TopicsReport struct {
	Topics []reportedTopic `json:"topics"`
	ACLs   []string        `json:"acls"`
	// JobACLs are what replay, backfill and repairs need too.
	JobACLs []string `json:"job_acls,omitempty"`
	// Lost are the missing topics that held records, according to a checkpoint.
	Lost []finding `json:"lost,omitempty"`
	// Created names the topics that this command created.
	Created []string `json:"created,omitempty"`
	// Changed is false for a dry run and where nothing was missing.
	Changed bool `json:"changed"`

	partial bool // the topics of some streams are unknown
}

// reportedTopic is a topic and the first stream that needs it.
type reportedTopic struct {
	Stream string `json:"stream"`
	kafkaadmin.PlannedTopic
}

func runTopics(ctx context.Context, a *cli.App, o topicsOptions) error {
	s, err := a.StreamsSettings(config.UsesCursor, o.stream)
	if err != nil {
		return err
	}
	if o.acls {
		return printACLs(a, s.Streams, *o.json)
	}
	if o.wait < 0 {
		return cli.WrongUsage("exportbridge topics create --execute --wait 1m", "--wait is %s, want 0 or more", o.wait)
	}
	deadline := time.Now().Add(o.wait)
	var report TopicsReport
	var failed []error
	for i := range s.Streams {
		st := &s.Streams[i]
		st.Kafka.Known = known(s, st.Name)
		if err := report.await(ctx, a, st, o.execute, deadline); err != nil {
			failed = append(failed, explained(s, st.Name, err))
			if bridge.FaultOf(err).Class == bridge.Transient { // the brokers are away for all
				break
			}
		}
	}
	report.partial = len(failed) > 0
	switch err := errors.Join(failed...); {
	case len(report.Topics) == 0, len(failed) == len(s.Streams) && !report.Changed:
		return err
	case *o.json:
		return errors.Join(cli.PrintJSON(a.Stdout, report), err)
	default:
		return errors.Join(printTopics(a, &report, o), err)
	}
}

// explained adds the stream to an error, unless there is only one, and the exit code and the hint.
func explained(s *config.Settings, stream string, err error) error {
	if len(s.Streams) > 1 {
		err = fmt.Errorf("stream %s: %w", stream, err)
	}
	return cli.Explain(err)
}

// await calls add until a broker answers, or until the deadline.
func (r *TopicsReport) await(
	ctx context.Context, a *cli.App, st *config.Stream, create bool, deadline time.Time,
) error {
	for told := false; ; told = true {
		err := r.add(ctx, st, create)
		fault, ok := errors.AsType[*bridge.Fault](err)
		if !ok || fault.Class != bridge.Transient || !time.Now().Before(deadline) {
			return err
		}
		if !told {
			fmt.Fprintf(a.Stderr, "waiting for Kafka: %v\n", err)
		}
		if bridge.Sleep(ctx, time.Second); ctx.Err() != nil {
			return err
		}
	}
}

// add adds the topics of a stream. It creates missing ones if create is true. With an error, some may be created.
func (r *TopicsReport) add(ctx context.Context, st *config.Stream, create bool) error {
	needs := st.Kafka.Needs()
	plan, err := needs.Plan(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, topic := range plan.Topics {
		if topic.Lacks() {
			missing = append(missing, topic.Name)
		}
	}
	var gone []*bridge.Fault
	if len(missing) > 0 {
		if gone, err = needs.Vanished(ctx); err != nil {
			return err
		}
	}
	var failed error
	if create && len(missing) > 0 {
		if plan, failed = needs.Create(ctx); failed != nil {
			if plan, err = needs.Plan(ctx); err != nil {
				return failed
			}
		}
		for _, topic := range plan.Topics {
			if slices.Contains(missing, topic.Name) && !topic.Lacks() {
				r.Created = append(r.Created, topic.Name)
			}
		}
		r.Changed = len(r.Created) > 0
	}
	r.addLost(gone, st.Name, create && failed == nil)
	for _, topic := range plan.Topics {
		known := func(t reportedTopic) bool { return t.Name == topic.Name }
		if i := slices.IndexFunc(r.Topics, known); i < 0 {
			r.Topics = append(r.Topics, reportedTopic{st.Name, topic})
		} else if r.Topics[i].Stream == st.Name { // an attempt that failed listed it
			r.Topics[i].PlannedTopic = topic
		}
	}
	r.ACLs, r.JobACLs = merged(r.ACLs, plan.ACLs), merged(r.JobACLs, plan.JobACLs)
	return failed
}

// addLost adds the missing topics of a stream that held records.
func (r *TopicsReport) addLost(gone []*bridge.Fault, stream string, created bool) {
	for _, fault := range gone {
		f := warn(fault.Error(), fault.Hint)
		if created { // the fault's own hint begins with the creation
			f.Text += "; it was created again, empty"
			f.Hint = process.NameStream("publish everything again: exportbridge cursor reset --to-earliest --execute; "+
				"or keep the position: exportbridge cursor reset --to-current --execute", stream)
		}
		if !slices.Contains(r.Lost, f) {
			r.Lost = append(r.Lost, f)
		}
	}
}

// knownTimeout bounds reading from Redis in a command that works without it.
const knownTimeout = 3 * time.Second

// known reads the checkpoint of a stream from Redis. Any error is a
// bridge.ErrNoCheckpoint.
func known(s *config.Settings, stream string) func(context.Context) (bridge.Checkpoint, error) {
	return func(ctx context.Context) (bridge.Checkpoint, error) {
		c, err := stored(ctx, s, stream)
		return c, noCheckpoint(err)
	}
}

// stored reads the checkpoint of a stream from Redis.
func stored(ctx context.Context, s *config.Settings, stream string) (c bridge.Checkpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	client, err := cli.OpenRedis(s)
	if err != nil {
		return c, err
	}
	defer client.Close()
	return client.Stream(stream).Load(ctx)
}

// merged adds the elements that the list lacks.
func merged(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// missing counts the missing topics, apart from those that are created on demand.
func (r *TopicsReport) missing() (required, onDemand int) {
	for i := range r.Topics {
		switch t := &r.Topics[i]; {
		case !t.Lacks():
		case t.OnDemand:
			onDemand++
		default:
			required++
		}
	}
	return required, onDemand
}

// printACLs prints the commands that grant permissions. It connects to no broker: the client
// may have no permission yet.
func printACLs(a *cli.App, streams []config.Stream, asJSON bool) error {
	var commands, ofJobs []string
	for i := range streams {
		needs := streams[i].Kafka.Needs()
		commands, ofJobs = merged(commands, needs.ACLs()), merged(ofJobs, needs.JobACLs())
	}
	if asJSON {
		return cli.PrintJSON(a.Stdout, struct {
			ACLs    []string `json:"acls"`
			JobACLs []string `json:"job_acls"`
		}{commands, ofJobs})
	}
	lines := slices.Concat(commands, []string{"# for replay, backfill, dlq retry and verify --repair:"}, ofJobs)
	if _, err := fmt.Fprintln(a.Stdout, strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("print ACLs: %w", err)
	}
	if strings.Contains(commands[0], "<principal>") {
		fmt.Fprintln(a.Stderr, "Replace <principal> by the principal of this client.")
	}
	if strings.Contains(commands[0], "<region>") {
		fmt.Fprintln(a.Stderr,
			"Replace <region>, <account> and <cluster>, and add the statements to the policy of this client.")
	}
	return nil
}

func printTopics(a *cli.App, r *TopicsReport, o topicsOptions) error {
	table := [][]string{{"TOPIC", "STREAM", "FOR", "STATE", "PARTITIONS", "REPLICAS"}}
	var notes []string
	for i := range r.Topics {
		t := &r.Topics[i]
		state := "exists"
		switch {
		case t.Denied:
			state = "denied"
		case slices.Contains(r.Created, t.Name):
			state = "created"
		case !t.Exists && t.OnDemand:
			state = "on demand"
		case !t.Exists:
			state = "missing"
		}
		partitions, replicas := strconv.Itoa(int(t.Partitions)), strconv.Itoa(int(t.Replication))
		switch {
		case t.Denied:
			partitions, replicas = "unknown", "unknown"
		case t.Replication < 0:
			replicas = "default"
		}
		table = append(table, []string{t.Name, t.Stream, t.Role, state, partitions, replicas})
		notes = append(notes, t.notes()...)
	}
	if err := a.PrintTable(table); err != nil {
		return err
	}
	for i, note := range notes {
		text := strings.TrimLeft(note, " ")
		notes[i] = note[:len(note)-len(text)] + strings.Join(cli.Wrap(text, a.Columns-4), "\n    ")
	}
	_, err := fmt.Fprintf(a.Stdout, "\n%s\n\n%s\n", strings.Join(notes, "\n"), a.Advice(r.outcome(o), ""))
	if err != nil {
		return fmt.Errorf("print topics: %w", err)
	}
	for _, f := range r.Lost {
		fmt.Fprintf(a.Stderr, "  warning: %s\n  The stream is blocked (topic) until an operator decides. Try: %s\n",
			f.Text, a.Advice(f.Hint, ""))
	}
	return nil
}

// outcome is the last line of the text: what was done, or can be done.
func (r *TopicsReport) outcome(o topicsOptions) string {
	missing, later := r.missing()
	onDemand := cli.Counted(later, "topic") + " for jobs will be created on demand"
	lacking := cli.Counted(missing+later, "topic") + " missing"
	if later > 0 {
		lacking += fmt.Sprintf(" (%d for jobs, otherwise created on demand)", later)
	}
	switch {
	case r.Changed && missing > 0:
		return fmt.Sprintf("%s created, %d still missing.", cli.Counted(len(r.Created), "topic"), missing)
	case r.Changed:
		return cli.Counted(len(r.Created), "topic") + " created."
	case o.execute && missing > 0:
		return fmt.Sprintf("Nothing was created, %s.", lacking)
	case missing == 0 && r.partial:
		return "Nothing was changed; other streams failed."
	case missing+later == 0 && slices.ContainsFunc(r.Topics, func(t reportedTopic) bool { return t.Denied }):
		return "Every required topic exists; nothing was changed."
	case missing+later == 0:
		return "Every topic exists; nothing was changed."
	case missing == 0 && o.create:
		return "dry run: nothing was changed. Every required topic exists;\n" + onDemand + ", or now with --execute."
	case missing == 0:
		return "Every required topic exists; nothing was changed. " + onDemand + "."
	case o.create:
		return fmt.Sprintf("dry run: nothing was changed, %s. Add --execute to create.", lacking)
	}
	return fmt.Sprintf("Nothing was changed, %s. Try: exportbridge topics create --execute", lacking)
}

// notes are the lines about a topic below the table.
func (t *reportedTopic) notes() []string {
	if t.Denied {
		return []string{t.Name + " may not be described, and is left out: the stream itself does not need it; " +
			"for the grants: exportbridge topics plan --acls"}
	}
	lines := []string{t.Name + " " + retentionText(t.Configs)}
	if len(t.Configs) > 0 {
		lines = append(lines, "  "+configText(t.Configs))
	}
	for _, difference := range t.Differences {
		lines = append(lines, "  differs: "+difference+"; left unchanged")
	}
	return lines
}

func configText(configs map[string]string) string {
	names := slices.Sorted(maps.Keys(configs))
	for i, name := range names {
		names[i] = name + "=" + configs[name]
	}
	return strings.Join(names, " ")
}

// retentionText describes the retention of a topic.
func retentionText(configs map[string]string) string {
	by := "by event time, or by publish time with KAFKA_TIMESTAMP=publish"
	if configs["message.timestamp.type"] == "LogAppendTime" {
		by = "by append time"
	}
	ms, err := strconv.ParseInt(configs["retention.ms"], 10, 64)
	switch {
	case configs["cleanup.policy"] == "compact":
		return "is compacted: it keeps the newest record of each key"
	case err != nil:
		return "has an unknown retention (no permission to read it)"
	case ms < 0:
		return "keeps records forever"
	case ms > int64(time.Duration(1<<63-1)/time.Millisecond):
		return "keeps records for centuries"
	}
	return fmt.Sprintf("keeps records for %s %s", config.FormatDuration(time.Duration(ms)*time.Millisecond), by)
}
