package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
)

// repairedAtOnce is how many events are in one transaction at most: their mark,
// 22 bytes an event, fits into any usable topic.
const repairedAtOnce = 300

// repairMarkKept is how long a mark stays: the next repair after that removes it,
// and still knows it. The events are seen in the topic, or the topic has deleted
// them as others of their age.
const repairMarkKept = 90 * 24 * time.Hour

// repairMark is what a transaction of a repair leaves behind. Its JSON form is
// frozen.
type repairMark struct {
	Version int `json:"v"`
	// At is when the events were published, in milliseconds since the epoch.
	At int64  `json:"at"`
	By string `json:"by,omitempty"`
	// IDs are 16 bytes of the SHA-256 of each event's record id, as markOf returns
	// them, one after the other, in base64.
	IDs []byte `json:"ids"`
}

// markOf names an event in marks: by its record id, and by its bytes too where
// different events have that.
func markOf(e *bridge.Event) kafkasink.Fingerprint {
	name := kafkasink.FingerprintOf(e.AppendRecordID(nil))
	if e.Shared {
		return formName(name, crc32.Checksum(e.Raw, castagnoli))
	}
	return name
}

// repaired is what became of the missing events, or would.
type repaired struct {
	Events int64 `json:"events"`
	// Live counts those that the running stream may still bring, Unproven those
	// of which a dry run cannot tell: they do not say when the API took them in.
	Live     int64 `json:"left_to_live"`
	Unproven int64 `json:"without_ingestion_time,omitempty"`
	// Before counts those that a repair has published before; the topic has
	// deleted them, or they cannot be read.
	Before int64 `json:"repaired_before"`
	// Refused counts those that the topic cannot take, with the first reasons.
	Refused int64    `json:"refused"`
	Reasons []string `json:"reasons,omitempty"`
}

func (r *repaired) rows(executed bool) [][]string {
	done := "would be published"
	if executed {
		done = "published"
	}
	rows := [][]string{{"repair", humanize.Comma(r.Events) + " " + done}}
	for _, left := range []struct {
		n    int64
		text string
	}{
		{r.Live, "left to the running stream, which has not passed them"},
		{r.Unproven, "do not say when the API took them in: they may be on their way, which --execute finds out while a bridge runs"},
		{r.Before, "published by an earlier repair, and not in the topic any more"},
		{r.Refused, "cannot be published"},
	} {
		if left.n > 0 {
			rows = append(rows, []string{"", humanize.Comma(left.n) + " " + left.text})
		}
	}
	for _, why := range r.Reasons {
		rows = append(rows, []string{"", printable(why)})
	}
	return rows
}

// repairer publishes missing events that the stream can no longer publish.
type repairer struct {
	*kafkasink.Repair
	repaired
	frontier
	known map[kafkasink.Fingerprint]bool // published by earlier repairs
	// unmoved is asked before each commit.
	unmoved func(context.Context) error
}

// repairable reports why the window must not be repaired.
func (v *verifier) repairable() error {
	c := &v.live
	refuse := func(hint, format string, values ...any) error {
		return &exitError{code: exitUsage, err: fmt.Errorf(format, values...), hint: hint}
	}
	switch {
	case c.Zero():
		return refuse("exportbridge run", "stream %s has no position yet: it will publish the window itself", v.stream.Name)
	case c.PositionTime == 0:
		return refuse("the same command in a minute, while exportbridge run runs; exportbridge status tells the position",
			"stream %s was moved, and has not said since how far it is: what is missing may be on its way", v.stream.Name)
	case v.report.To > c.PositionTime:
		return refuse("--to "+instantText(c.PositionTime), "the window ends after the live position %s: what is missing may be on its way", instantText(c.PositionTime))
	case c.Origin.Resource != v.stream.Engine.Origin.Resource || strings.Join(c.Origin.Events, ",") != strings.Join(v.stream.Engine.Origin.Events, ","):
		return refuse("the EXPORT_RESOURCE and EXPORT_EVENTS of the bridge", "the stream exports %s, these settings ask for %s",
			originText(c.Origin), originText(v.stream.Engine.Origin))
	}
	return nil
}

func originText(o bridge.Origin) string {
	if len(o.Events) == 0 {
		return o.Resource
	}
	return o.Resource + " (" + strings.Join(o.Events, ", ") + ")"
}

// openRepair begins the repair, before the topic is read: then nothing that an
// earlier one has left open can appear behind our back.
func (v *verifier) openRepair(ctx context.Context) (*repairer, error) {
	begin := kafkasink.Rehearse
	if v.opts.execute {
		begin = kafkasink.OpenRepair
	}
	kafka := v.stream.Kafka
	kafka.Report = v.app.sayWaiting()
	k, err := begin(ctx, kafka, kafkasink.JobVerify)
	if err != nil {
		return nil, repairError(err)
	}
	r := &repairer{Repair: k, known: make(map[kafkasink.Fingerprint]bool), unmoved: func(context.Context) error { return nil }}
	if v.opts.execute {
		r.unmoved = v.unmoved
	}
	if r.frontier, err = v.passed(ctx); err != nil {
		k.Close()
		return nil, err
	}
	var old []string
	for name, value := range k.Marks() {
		var m repairMark
		if err := json.Unmarshal(value, &m); err != nil || m.Version != 1 || len(m.IDs)%len(kafkasink.Fingerprint{}) != 0 {
			k.Close()
			return nil, &exitError{code: exitFailed, err: fmt.Errorf("mark %s of an earlier repair cannot be read", name), hint: "a newer exportbridge"}
		}
		for ids := m.IDs; len(ids) > 0; ids = ids[len(kafkasink.Fingerprint{}):] {
			r.known[kafkasink.Fingerprint(ids)] = true
		}
		if time.Since(time.UnixMilli(m.At)) > repairMarkKept {
			old = append(old, name)
		}
	}
	if v.opts.execute && len(old) > 0 {
		if err := k.Forget(ctx, old); err != nil {
			k.Close()
			return nil, repairError(err)
		}
	}
	return r, nil
}

// publish publishes the missing events of a page, as far as they may be. A
// rehearsal leaves those open that only the running stream can decide on.
func (r *repairer) publish(ctx context.Context, page *bridge.Page, missing []bridge.Event) error {
	var events []bridge.Event
	for i := range missing {
		switch e := &missing[i]; {
		case r.known[markOf(e)]:
			r.Before++
		case takenIn(e) > max(0, r.ingested):
			r.Live++
		case takenIn(e) == 0 && !r.drained:
			r.Unproven++
		default:
			events = append(events, *e)
		}
	}
	for len(events) > 0 {
		if err := r.unmoved(ctx); err != nil {
			return err
		}
		n := min(len(events), repairedAtOnce)
		if err := r.commit(ctx, page, events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// commit publishes events in one transaction with a mark that names them. If
// one of them is refused, the others are published without it.
func (r *repairer) commit(ctx context.Context, page *bridge.Page, events []bridge.Event) error {
	m := repairMark{Version: 1, At: time.Now().UnixMilli(), By: operator()}
	for i := range events {
		name := markOf(&events[i])
		m.IDs = append(m.IDs, name[:]...)
	}
	value, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the mark: %w", err)
	}
	page.Events = events
	_, err = r.Publish(ctx, page, rand.Text(), value)
	switch {
	case err == nil:
		r.Events += int64(len(events))
		return nil
	case !errors.Is(err, bridge.ErrRefused):
		return repairError(err)
	case len(events) == 1:
		if r.Refused++; len(r.Reasons) < namedEvents {
			r.Reasons = append(r.Reasons, refusal(err))
		}
		return nil
	}
	half := len(events) / 2
	if err := r.commit(ctx, page, events[:half]); err != nil {
		return err
	}
	return r.commit(ctx, page, events[half:])
}
