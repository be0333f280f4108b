package command

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/records"
	"exportbridge/cmd/internal/process"
)

// jobReport is the JSON form of a job.
type jobReport struct {
	backfill.Listed
	// TotalEvents counts the events that the windows' cursors passed, with dead letters.
	TotalEvents       int64    `json:"total_events"`
	TotalPages        int64    `json:"total_pages"`
	TotalDeadLettered int64    `json:"total_dead_lettered"`
	TotalOutside      int64    `json:"total_outside_range,omitempty"`
	TotalDropped      int64    `json:"total_dropped_by_route,omitempty"`
	WindowsDone       int      `json:"windows_done"`
	RequestsPerSecond float64  `json:"requests_per_second,omitempty"`
	Notes             []string `json:"notes,omitempty"`
	// Executed is false for a dry run.
	Executed bool `json:"executed"`
}

func reportOf(j *backfill.Job) jobReport {
	r := jobReport{Listed: backfill.Listed{Job: *j}, WindowsDone: j.Ended()}
	t := j.Totals()
	r.TotalEvents, r.TotalPages, r.TotalDeadLettered, r.TotalOutside = t.Events, t.Pages, t.DeadLettered, t.Outside
	r.TotalDropped = t.Dropped
	return r
}

// print prints the plan.
func (p *jobPlan) print() error {
	if j := &p.job; p.resume == "" { // --execute makes another id
		if j.Kind == backfill.Replay && !p.flags.Changed("topic") {
			j.Topic = strings.TrimSuffix(j.Topic, j.ID) + "<id>"
		}
		j.ID = ""
	}
	if *p.json {
		report := reportOf(&p.job)
		report.Parallel, report.RequestsPerSecond, report.Notes = p.job.AtOnce(), p.perSecond(), p.notes
		return cli.PrintJSON(p.app.Stdout, report)
	}
	return p.write(p.app.Stdout, "dry run: nothing was changed. Add --execute to start.")
}

// announce prints the plan and the id of a job when it starts.
func (p *jobPlan) announce() {
	last := fmt.Sprintf("job %s; to resume after an interruption: exportbridge %s --resume %[1]s --execute",
		p.job.ID, p.kind)
	_ = p.write(p.app.Stderr, p.app.Advice(last, ""))
}

func (p *jobPlan) write(to io.Writer, last string) error {
	j := &p.job
	what := "all events"
	if len(j.Events) > 0 {
		what = strings.Join(j.Events, ",")
	} else if j.Resource != "events" {
		what = "all " + j.Resource
	}
	pageSize := cmp.Or(j.PageSize, p.beside.PageSize)
	rows := [][2]string{
		{string(p.kind), fmt.Sprintf("%s of stream %s, from %s to %s", what, j.Stream, bridge.BoundText(j.From),
			bridge.BoundText(j.To))},
		{"into", strings.Join(j.Topics(), ", ")},
		{"windows", windowsText(j, p.here)},
		{"requests", fmt.Sprintf("%s, %d %s per page", limitText(p.perSecond()), pageSize, j.Resource)},
		{"guarantee", "exactly-once; ordered within a window. The stream's cursor is unaffected"},
	}
	if p.resume != "" {
		events := j.Totals().Events
		rows = append(rows, [2]string{"so far", fmt.Sprintf("%s done, %s", cli.Counted(j.Ended(), "window"),
			cli.Counted(events, "event"))})
	}
	for _, n := range p.notes {
		rows = append(rows, [2]string{"note", n})
	}
	if err := cli.PrintFields(to, rows, p.app.Columns); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "  %s\n", last)
	return err
}

// windowsText describes the windows of a job, and how many run at a time. here is --here,
// with which the job leaves its lanes.
func windowsText(j *backfill.Job, here bool) string {
	n, w := len(j.Windows), &j.Windows[0]
	length := cli.RoundDuration(time.Duration(w.To-w.From) * time.Millisecond)
	if n == 1 {
		return "1, of " + length
	}
	if j.Lanes > 0 && !here {
		return fmt.Sprintf("%d of %s each, in %s, at most %d lanes at a time in a process", n, length,
			cli.Counted(j.Lanes, "lane"), process.LaneCapacity)
	}
	return fmt.Sprintf("%d of %s each, %d at a time", n, length, min(j.AtOnce(), n))
}

func limitText(perSecond float64) string {
	if perSecond == 0 {
		return "unlimited (EXPORT_RATE_LIMIT is not set)"
	}
	return "at most " + rateText(perSecond) + " for all windows"
}

// rateText formats a rate like --rate-limit, in the first unit in which it is at least 1,
// with up to three decimals.
func rateText(perSecond float64) string {
	n, unit := perSecond, "/s"
	switch { // 0.9999, because 1/60 is not exact
	case perSecond*60 < 0.9999:
		n, unit = perSecond*3600, "/h"
	case perSecond < 0.9999:
		n, unit = perSecond*60, "/m"
	}
	return strconv.FormatFloat(math.Round(n*1000)/1000, 'f', -1, 64) + unit
}

// report prints the result of a job that is done. took is 0 if the job was done before the
// command began.
func (p *jobPlan) report(took time.Duration) error {
	report := reportOf(&p.job)
	report.Executed = p.execute
	cut := shortfall(&p.job)
	if *p.json {
		return cmp.Or(cli.PrintJSON(p.app.Stdout, report), cut)
	}
	rows := [][]string{{"WINDOW", "FROM", "TO", "EVENTS", "PAGES", "ENDED"}}
	for n := range p.job.Windows {
		w := &p.job.Windows[n]
		rows = append(rows, []string{strconv.Itoa(n + 1), bridge.BoundText(w.From), bridge.BoundText(w.To),
			humanize.Comma(w.Events), humanize.Comma(w.Pages), w.Ended})
	}
	if err := p.app.PrintTable(rows); err != nil {
		return err
	}
	end := "was already done"
	if took > 0 {
		rate := float64(report.TotalEvents) / took.Seconds()
		end = fmt.Sprintf("%s in %s, %.0f events/s", stateText(&report.Listed), cli.RoundDuration(took), rate)
	}
	dropped := ""
	if report.TotalDropped > 0 {
		dropped = ", " + humanize.Comma(report.TotalDropped) + " dropped by a route"
	}
	_, err := fmt.Fprintf(p.app.Stdout, "\n  %s in %s into %s, %s of them dead letters%s; job %s %s\n",
		cli.Counted(report.TotalEvents, "event"), cli.Counted(report.TotalPages, "page"),
		strings.Join(p.job.Topics(), ", "), humanize.Comma(report.TotalDeadLettered), dropped, p.job.ID, end)
	if err == nil && report.TotalOutside > 0 {
		_, err = fmt.Fprintf(p.app.Stdout, "  note: %s\n", records.OutsideNote(report.TotalOutside, report.TotalEvents))
	}
	return cmp.Or(err, cut)
}

// shortfall returns the error of a job that is done, but published nothing of its range, or
// had windows that empty pages ended.
func shortfall(j *backfill.Job) error {
	n := j.EndedEmpty()
	switch {
	case j.Missed():
		return cli.Errorf(cli.ExitEmptyEnd, "correct EXPORT_START_PARAM, EXPORT_END_PARAM or EXPORT_TIME_FORMAT, "+
			"then start a new job, a backfill with --allow-overlap; published events stay",
			"job %s is done, but published nothing of the range: the times of all events are outside", j.ID)
	case n > 0:
		return cli.Errorf(cli.ExitEmptyEnd, cli.EngineHints[bridge.HintEmptyEnd],
			"job %s is done as far as read: empty pages ended %s, more events may follow", j.ID, cli.Counted(n, "window"))
	}
	return nil
}

// stateText describes the state of a job.
func stateText(l *backfill.Listed) string {
	state := l.Status()
	switch {
	case l.Missed():
		return "done, but nothing of the range"
	case state == backfill.Done && l.EndedEmpty() > 0:
		return "done, as far as read"
	}
	return string(state)
}

// tellProgress reports the progress of a job until stop is called. On a terminal it updates
// one line, elsewhere it prints a line every ten seconds.
func tellProgress(line *process.StatusLine, progress func() backfill.Progress) (stop func()) {
	began, first := time.Now(), progress()
	text := func(now time.Time) string {
		p := progress()
		return progressText(&p, &first, now.Sub(began))
	}
	return line.Keep(text, func(now time.Time) {
		_, _ = io.WriteString(line, process.Printable(text(now))+"\n") // fails only if stderr is closed
	})
}

// progressText describes the progress of a job that began at first.
func progressText(p, first *backfill.Progress, took time.Duration) string {
	text := fmt.Sprintf("  [%d/%d]  %3.0f %%  %s events   %.0f/s", p.Ended, p.Windows, 100*p.Share,
		humanize.Comma(p.Events), float64(p.Events-first.Events)/took.Seconds())
	switch left := float64(took) * (1 - p.Share) / (p.Worked - first.Worked); {
	case p.Share == 1:
	case left >= 0 && left < math.MaxInt64:
		text += "   eta " + cli.RoundDuration(time.Duration(left))
	default: // empty windows have no pace, and the first events of a long one show none
		text += "   eta unknown"
	}
	if p.Trouble != "" {
		text += "   retrying: " + process.Cut(p.Trouble, 80)
	}
	return text
}
