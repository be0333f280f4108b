package rules

import "slices"

// All lists the rules of the protocol that can be removed.
var All = []Rule{
	{
		Name: "save-before-commit", Without: "the checkpoint is committed before its events",
		Notice: Processes,
		Edits: slices.Concat(withhold, []Edit{{"bridge/kafkasink/transaction.go", `
 func (s *session) transact(ctx context.Context, b *bridge.Batch) error {
+	defer s.releaseWithheld()
+	if protocol.Broken("save-before-commit") && len(s.withheld) > 0 {
+		if err := s.commit(ctx, b); err != nil {
+			return err
+		}
+	}
+	if err := s.sendWithheld(ctx); err != nil {
+		return err
+	}
+	return s.commit(ctx, b)
+}
+
+func (s *session) commit(ctx context.Context, b *bridge.Batch) error {
`}}),
	},
	{
		Name: "heal-with-tryabort", Without: "an unknown outcome is taken for an abort",
		Notice: Processes,
		Edits: []Edit{{"bridge/kafkasink/transaction.go", `
 	failpoint.Reach(failpoint.Ending)
-	if err := s.txn.end(ending); err != nil {
+	err = s.txn.end(ending)
+	if err != nil && protocol.Broken("heal-with-tryabort") && s.txn.client.EndTransaction(ending, kgo.TryAbort) == nil {
+		if err := s.sendWithheld(ctx); err != nil {
+			return err
+		}
+		return s.commit(ctx, b)
+	}
+	if err != nil {
 		return err
 	}
`}},
	},
	{
		Name: "forget-grown", Without: "a batch is committed without the pages that it grew by",
		Notice: Processes,
		Edits: []Edit{{"bridge/kafkasink/publish.go", `
+	if protocol.Broken("forget-grown") && s.open != nil {
+		page.Release()
+		return nil
+	}
 	p := s.kept.pages.take()
 	p.page = page
`}},
	},
	{
		Name: "ignore-promise", Without: "a record that failed does not stop the commit",
		Notice: Processes,
		Edits: []Edit{{"bridge/kafkasink/delivery.go", `
-	if err != nil {
+	if err != nil && !protocol.Broken("ignore-promise") {
 		d.fail(r.Topic, err)
 	}
`}},
	},
	{
		Name: "read-before-init", Without: "the checkpoint is read before the producer id is taken",
		Notice: Processes,
		Edits: []Edit{{"bridge/kafkasink/recover.go", `
+	if protocol.Broken("read-before-init") {
+		c, err := s.kept.checkpoints.newest(ctx, s, nil)
+		return c, errors.Join(err, s.txn.take(ctx))
+	}
 	if err := s.txn.take(ctx); err != nil {
 		return bridge.Checkpoint{}, err
 	}
`}},
	},
	{
		Name: "skip-barrier", Without: "the checkpoint is read up to the last stable offset, without a barrier",
		Notice: Processes,
		Edits: []Edit{{"bridge/kafkasink/recover.go", `
+	if protocol.Broken("skip-barrier") {
+		return s.kept.checkpoints.newest(ctx, s, nil)
+	}
 	b, err := s.commitBarrier(ctx)
`}, {"bridge/kafkasink/newest.go", `
-	low, err := b.await(ctx, &s.txn, l, &found)
+	var low int64
+	var err error
+	if b != nil {
+		low, err = b.await(ctx, &s.txn, l, &found)
+	} else if all, failed := l.Bounds(ctx); failed != nil {
+		return bridge.Checkpoint{}, failed
+	} else {
+		b, low = &barrier{offset: all.To - 1}, all.To
+	}
`}},
	},
	{
		Name: "trust-redis", Without: "Redis is believed whenever it has a checkpoint",
		Notice: Engine | Processes,
		Edits: []Edit{{"bridge/engine/merge.go", `
+	if protocol.Broken("trust-redis") && !rec.store.Zero() {
+		return resumption{Checkpoint: rec.store}, nil
+	}
 	switch {
 	case rec.sink.Zero() && rec.store.Zero() && rec.storeErr != nil:
`}},
	},
	{
		Name: "mix-epochs", Without: "the stream goes on in the epoch of which Kafka lost a part",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/merge.go", `
+		if protocol.Broken("mix-epochs") {
+			return resumption{Checkpoint: rec.sink, lost: lost}, nil
+		}
 		to = rec.resumeAt(rec.sink, "Kafka lost data")
`}},
	},
	{
		Name: "go-on-from-memory", Without: "a session goes on from what it remembers",
		Notice: Engine | Processes,
		Edits: []Edit{{"bridge/engine/recover.go", `
+	if protocol.Broken("go-on-from-memory") && !s.committed.Zero() {
+		c = s.committed.Checkpoint
+	}
 	s.rejoin(c)
 	if on := s.blockedOn; on == bridge.ReasonCheckpointLost || on == bridge.ReasonCheckpoint {
`}},
	},
	{
		Name: "adopt-before-publish", Without: "a checkpoint counts before its batch is published",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/commit.go", `
 	from := f.committed.Checkpoint
+	if protocol.Broken("adopt-before-publish") {
+		f.adopt(next)
+	}
 	receipt, err := f.publish(hard, bridge.Batch{Checkpoint: next, From: from}, b.pages)
`}},
	},
	{
		Name: "skip-tail", Without: "the identities at the end of the results are not kept",
		Notice: Engine | Processes,
		Edits: []Edit{{"bridge/engine/position/trim.go", `
+	if protocol.Broken("skip-tail") {
+		at.Tail = nil
+	}
 	return nil
 }

 // sift removes the page's items from t.left, and keeps those in the page that were not in
`}},
	},
	{
		Name: "answer-before-commit", Without: "a command is acknowledged before it is committed",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/command.go", `
+	if protocol.Broken("answer-before-commit") {
+		_ = r.answer(hard, cmd, by, bridge.Answer{Applied: true, Version: f.committed.Version})
+	}
 	note, err := f.session.acceptTopics(hard, f.committed.Checkpoint, cmd, &f.incidents)
`}},
	},
	{
		Name: "claim-outlives", Without: "a command is applied by whoever finds it claimed, past its deadline too",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/command.go", `
+	case got.Late && protocol.Broken("claim-outlives"):
+		return true, nil, nil
 	case got.Late:
 		return false, &by, nil
`}},
	},
	{
		Name: "own-claim-decides", Without: "a session decides about a command that it may have committed",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/command.go", `
-	r.claimed = seenClaim{id: cmd.ID, by: got.By, seen: s.id, open: s.open}
+	r.claimed = seenClaim{id: cmd.ID, by: got.By, seen: s.id, open: s.open && !protocol.Broken("own-claim-decides")}
`}},
	},
	{
		Name: "sink-is-stored", Without: "what the sink has counts as stored, in at-least-once mode",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/recover.go", `
+	if protocol.Broken("sink-is-stored") {
+		s.stale = false
+		return nil
+	}
 	s.stale = s.stale && stored.Version.Compare(s.committed.Version) < 0 // committed is the sink's
`}},
	},
	{
		Name: "any-topic", Without: "the topics are not compared with what the checkpoint says",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/topic.go", `
-	if fault := bridge.TopicsLost(s.committed.Checkpoint, found); fault != nil {
+	if fault := bridge.TopicsLost(s.committed.Checkpoint, found); fault != nil && !protocol.Broken("any-topic") {
 		return fault
 	}
`}},
	},
	{
		Name: "any-border", Without: "what ended the page before is published again",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/position/border.go", `
-	if len(border) == 0 {
+	if len(border) == 0 || protocol.Broken("any-border") {
 		return r
 	}
`}},
	},
	{
		Name: "trust-any-page", Without: "the first page is taken at any cursor",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/position/border.go", `
-		bridge.DigestCursor(p.Next) == first
+		bridge.DigestCursor(p.Next) == first && !protocol.Broken("trust-any-page")
`}},
	},
	{
		Name: "any-request", Without: "the settings are not compared with the request that the cursor came from",
		Notice: Engine,
		Edits: []Edit{{"bridge/engine/source.go", `
-	if !want.Known() {
+	if !want.Known() || protocol.Broken("any-request") {
 		return nil
 	}
`}},
	},
	{
		Name: "list-forgets-topic", Without: "what the topic holds is published again after a restart",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/windows/memory.go", `
-		if news = !m.inTopic(e, shared); news {
+		if news = protocol.Broken("list-forgets-topic") || !m.inTopic(e, shared); news {
`}},
	},
	{
		Name: "list-moves-early", Without: "the watermark moves before the last page of its window",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/windows/collect.go", `
-		if n == len(items) && to > w.At {
+		if n == len(items) && to > w.At || protocol.Broken("list-moves-early") {
 			next = bridge.Watermark{At: to}.Cursor()
`}},
	},
	{
		Name: "list-unsettled", Without: "a window ends now",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/windows/lister.go", `
 func (l *Lister) settled() int64 {
+	if protocol.Broken("list-unsettled") {
+		return floor(l.clock.now().UnixMilli())
+	}
`}},
	},
	{
		Name: "list-no-look-back", Without: "a window begins at the watermark",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/windows/lister.go", `
-	back, began := l.cfg.LookBack, time.Now()
+	back, began := l.cfg.LookBack, time.Now()
+	if protocol.Broken("list-no-look-back") {
+		back = 0
+	}
`}},
	},
	{
		Name: "list-trusts-numbers", Without: "two listings of numbered pages have the same items",
		Notice: Lists,
		Edits: []Edit{{"bridge/windows/list.go", `
-		case err == nil && listed == before && !l.memory.missed:
+		case err == nil && (listed == before || protocol.Broken("list-trusts-numbers")) && !l.memory.missed:
`}},
	},
	{
		Name: "list-no-late", Without: "the range of EXPORT_LATE is listed again",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/windows/lister.go", `
-	if late, every, _ := l.cfg.late(); late > 0 && began.Sub(l.deep) >= every {
+	if late, every, _ := l.cfg.late(); late > 0 && began.Sub(l.deep) >= every && !protocol.Broken("list-no-late") {
`}},
	},
	{
		Name: "list-keeps-memory", Without: "what was given out counts as published after it was dropped",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/windows/lister.go", `
-	case at.Held != l.held: // a new session, or the engine dropped pages
+	case at.Held != l.held && protocol.Broken("list-keeps-memory") && l.held != nil:
+		l.held, l.pending, l.listed = at.Held, nil, 0
+	case at.Held != l.held: // a new session, or the engine dropped pages
`}},
	},
	{
		Name: "list-counts-half", Without: "the items of a listing that broke off count as published",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/windows/memory.go", `
 func (m *memory) undo() {
+	if protocol.Broken("list-counts-half") {
+		return
+	}
`}},
	},
	{
		Name: "list-forgets-early", Without: "an item is forgotten while it can be listed again",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/windows/memory.go", `
-		if is.last < before {
+		if is.last < before || protocol.Broken("list-forgets-early") {
`}},
	},
	{
		Name: "list-ends-first", Without: "a list without a start ends with its first page of older items",
		Notice: Lists,
		Edits: []Edit{{"bridge/windows/walk.go", `
-		return w.run >= firstOld
+		return w.run >= firstOld || protocol.Broken("list-ends-first") && w.run > 0
`}},
	},
	{
		Name:    "list-ends-unknown",
		Without: "a list without a start ends with older items that the listing before did not see",
		Notice:  Lists,
		Edits: []Edit{{"bridge/windows/walk.go", `
-	case w.old > 0 && (w.run > 0 || w.before == nil || !w.unknown):
+	case w.old > 0 && (w.run > 0 || w.before == nil || !w.unknown || protocol.Broken("list-ends-unknown")):
`}},
	},
	{
		Name: "list-keeps-older", Without: "a list without a start publishes what is older than its listing begins",
		Notice: Lists,
		Edits: []Edit{{"bridge/windows/walk.go", `
-	if w.last = e.Time; e.Time >= w.from {
+	if w.last = e.Time; e.Time >= w.from || protocol.Broken("list-keeps-older") {
`}},
	},
	{
		Name: "list-future", Without: "a list without an end publishes items of the future",
		Notice: Lists,
		Edits: []Edit{{"bridge/windows/walk.go", `
-	case timed && e.Time > w.ahead:
+	case timed && e.Time > w.ahead && !protocol.Broken("list-future"):
`}},
	},
	{
		Name: "list-below-floor", Without: "a listing begins before its floor",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/windows/lister.go", `
-	if start <= lowest { // nothing earlier is listed, so that items of the unit before it are dropped
+	if start <= lowest && !protocol.Broken("list-below-floor") {
`}},
	},
	{
		Name: "list-exact-bounds", Without: "a request begins at the start of its range",
		Notice: Lists,
		Edits: []Edit{{"bridge/windows/list.go", `
-	at := l.cfg.Range(max(0, from-unit), to)
+	at := l.cfg.Range(max(0, from-unit), to)
+	if protocol.Broken("list-exact-bounds") {
+		at.Start = from
+	}
`}},
	},
	{
		Name: "list-one-copy", Without: "equal items without an id are one item",
		Notice: Lists,
		Edits: []Edit{{"bridge/windows/memory.go", `
-	if e.ID == nil {
+	if e.ID == nil && !protocol.Broken("list-one-copy") {
 		of := m.listed[k]
`}},
	},
	{
		Name: "list-trusts-end", Without: "an API that names no next page has listed all",
		Notice: Ranges,
		Edits: []Edit{{"bridge/windows/list.go", `
-	if err == nil && (middle > from || l.cfg.NoEnd && !l.cfg.NoStart) {
+	if err == nil && (middle > from || l.cfg.NoEnd && !l.cfg.NoStart) && !protocol.Broken("list-trusts-end") {
`}},
	},
	{
		Name: "range-no-border", Without: "a part of a range has what the part before it lists",
		Notice: Ranges,
		Edits: []Edit{{"bridge/windows/range.go", `
-	if p.from > unit {
+	if p.from > unit && !protocol.Broken("range-no-border") {
`}},
	},
	{
		Name: "range-forgets-border", Without: "what the part before lists is forgotten when a listing is repeated",
		Notice: Ranges,
		Edits: []Edit{{"bridge/windows/range.go", `
-	l.memory.keep(bridge.NoTime)
+	if !protocol.Broken("range-forgets-border") {
+		l.memory.keep(bridge.NoTime)
+	}
`}},
	},
	{
		Name: "range-gives-again", Without: "a part that is listed again gives out all of it",
		Notice: Ranges,
		Edits: []Edit{{"bridge/windows/range.go", `
 func (s *share) keeps(i *item) bool {
+	if protocol.Broken("range-gives-again") {
+		s.after = nil
+	}
`}},
	},
	{
		Name: "range-splits-equals", Without: "equal items are on two pages",
		Notice: Ranges,
		Edits: []Edit{{"bridge/windows/collect.go", `
-		if n > 0 && (n >= l.cfg.PageSize || size >= pageBytes) && !together {
+		if n > 0 && (n >= l.cfg.PageSize || size >= pageBytes) && (!together || protocol.Broken("range-splits-equals")) {
`}},
	},
	{
		Name: "range-drops-rest", Without: "a second that memory does not hold ends with its first items",
		Notice: Ranges,
		Edits: []Edit{{"bridge/windows/range.go", `
-	items, cursor, whole := c.items, at.Cursor, c.share.until == nil
+	items, cursor, whole := c.items, at.Cursor, c.share.until == nil || protocol.Broken("range-drops-rest")
`}},
	},
	{
		Name: "rewind-counts-all", Without: "after a reset within the look-back all that the topic holds counts",
		Notice: Windows,
		Edits: []Edit{{"bridge/engine/position/published.go", `
-	if e.Defect == bridge.DefectNone && e.Time >= r.From {
+	if e.Defect == bridge.DefectNone && e.Time >= r.From && !protocol.Broken("rewind-counts-all") {
`}},
	},
	{
		Name: "rewind-counts-none", Without: "after a reset within the look-back nothing before it counts",
		Notice: Windows,
		Edits: []Edit{{"bridge/engine/listing.go", `
-	return &position.ResetIndex{From: l.Again, Before: held, Again: again}, err
+	from := l.Again
+	if protocol.Broken("rewind-counts-none") {
+		from = 0
+	}
+	return &position.ResetIndex{From: from, Before: held, Again: again}, err
`}},
	},
	{
		Name: "rewind-placed-again", Without: "each session counts behind the ends that it finds after a reset",
		Notice: Windows,
		Edits: []Edit{{"bridge/engine/listing.go", `
-	case l.Again != 0 && l.Behind == nil:
+	case l.Again != 0 && (l.Behind == nil || protocol.Broken("rewind-placed-again")):
`}},
	},
	{
		Name: "rewind-keeps-listing", Without: "the listing goes on after a reset to before it began",
		Notice: Windows,
		Edits: []Edit{{"bridge/listing.go", `
-	if to.At <= max(l.Lowest(), next.Lowest()) {
+	if to.At <= from.At-lookBack.Milliseconds() || to.At <= max(l.Lowest(), next.Lowest()) && !protocol.Broken("rewind-keeps-listing") {
`}},
	},
	{
		Name: "rewind-keeps-border", Without: "items that ended the page before are dropped from a listing",
		Notice: Windows,
		Edits: []Edit{{"bridge/engine/position/position.go", `
-	if !rules.Listing { // pages of windows do not overlap, but may be equal
+	if !rules.Listing || protocol.Broken("rewind-keeps-border") {
`}, {"bridge/engine/position/border.go", `
-	if rules.Listing {
+	if rules.Listing && !protocol.Broken("rewind-keeps-border") {
`}},
	},
	{
		Name: "mark-too-new", Without: "the topic is read back from the newest mark",
		Notice: Lists | Windows,
		Edits: []Edit{{"bridge/listing.go", `
-	for i > 0 && l.Marks[i].At > at-lookBack.Milliseconds()-ListingMargin {
+	for i > 0 && l.Marks[i].At > at-lookBack.Milliseconds()-ListingMargin && !protocol.Broken("mark-too-new") {
`}},
	},
}
