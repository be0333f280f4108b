package engine_test

import (
	"bytes"
	"strconv"
	"time"

	"exportbridge/bridge"
)

// foreign is what the numbers of items of the other list begin with. The stream's
// settings never accept it.
const foreign = 1 << 20

// settingsOf are the settings of a process: which request they make.
type settingsOf string

const (
	settingsRight   settingsOf = "right"
	settingsRenamed settingsOf = "renamed" // of the same list; an operator must say so, or a page show it
	settingsOther   settingsOf = "other"   // of another list, with the same cursors
	settingsLaptop  settingsOf = "laptop"  // of an operator's machine, which requests nothing
)

// form returns the fingerprint of settings. Of a plan with an even order the others
// differ by the host alone.
func (w *world) form(s settingsOf) bridge.Fingerprint {
	param, host := string(s), string(settingsRight)
	if w.plan.order%2 == 0 {
		param, host = host, param
	}
	return request(host, param)
}

// restartWith starts an instance again with other settings, or as another version.
func (w *world) restartWith(who int, s settingsOf, older bool) {
	if who == 2 {
		return
	}
	w.settings[who], w.older[who] = s, older && !w.plan.inclusive
	w.crash(who, false)
}

// rename changes the settings of both instances: the request has another form, and
// leads to the same list.
func (w *world) rename() {
	w.right = settingsRenamed
	for who := range 2 {
		w.restartWith(who, w.right, w.older[who])
	}
}

// deny is an operator's reset that accepts another list, which no instance requests.
func (w *world) deny() {
	if !w.plan.has(twistOther) {
		w.accept(settingsOther)
	}
}

// denied reports whether a command is to be refused, or to expire.
func (w *world) denied(cmd bridge.Command) bool {
	return cmd.AcceptSource == w.form(settingsOther).Digest() && time.Now().UnixMilli() <= cmd.Deadline
}

// correct gives the instances the right settings and the newest version.
func (w *world) correct() {
	for who := range 2 {
		if w.settings[who] != w.right || w.older[who] {
			w.settings[who], w.older[who] = w.right, false
			w.kill(who)
		}
	}
}

// accept is an operator's reset to the current position that accepts settings.
func (w *world) accept(s settingsOf) {
	at := w.store.value
	if w.inbox.pending != nil || at.Zero() {
		return
	}
	w.push(bridge.Command{Kind: bridge.KindReset, BaseEpoch: at.Epoch, AcceptSource: w.form(s).Digest(), Target: stay(at)})
}

// accepts reports whether the newest checkpoint accepts settings.
func (w *world) accepts(s settingsOf) bool {
	change := w.newest().Change
	return change != nil && change.AcceptSource == w.form(s).Digest()
}

// settles has an operator's process apply, or answer, the command where both instances
// leave the stream to the other one.
func (w *world) settles() bool {
	a := w.inbox.pending
	if a == nil || w.owner >= 0 || w.procs[2] != nil || w.denied(a.cmd) {
		return false
	}
	w.note("- an operator settles %s", a.cmd.ID)
	w.apply()
	return true
}

// stay is the target of a reset to the current position.
func stay(at bridge.Checkpoint) bridge.Target {
	return bridge.Target{
		Cursor: at.Cursor, Tail: at.Tail, Carried: at.Carried, Border: at.Border, Start: at.Origin.Start, Events: at.Events,
		Pages: at.Pages, Entry: &at.Version,
	}
}

// unknown reports whether nothing says any more which request the stream makes: neither a
// checkpoint nor those before it. Then the settings are believed.
func (w *world) unknown(at bridge.Checkpoint) bool {
	known := func(c bridge.Checkpoint) bool { return c.Origin.Request.Known() }
	before := w.store.before(at, func(c *bridge.Checkpoint) bool { return known(*c) })
	return at.Unread() || !known(at) && before.Zero()
}

// believes reports whether the process would believe settings of another list. A session that
// was fenced meanwhile may know less than the newest checkpoint says.
func (p *process) believes() bool {
	p.w.mu.Lock()
	knows := p.knows
	p.w.mu.Unlock()
	return p.w.unknown(p.w.newest()) || p.w.unknown(knows)
}

// begins reports whether a process would begin the stream with another list, which then
// were the right one.
func (p *process) begins(c bridge.Checkpoint) bool {
	return p.settings == settingsOther && c.Kind == bridge.KindStart
}

// list makes a page one of the list that the settings of the process request.
func (p *process) list(page *bridge.Page) {
	if p.settings != settingsOther {
		return
	}
	var body []byte
	for line := range bytesLines(page.Body) {
		body = append(append(append(body, 'x'), line...), '\n')
	}
	page.Body = body
}

// numberOf returns the number of an item of either list.
func numberOf(raw []byte) (int, error) {
	number, other := bytes.CutPrefix(raw, []byte("x"))
	n, err := strconv.Atoi(string(number))
	if other {
		n += foreign
	}
	return n, err
}

// ours checks that items are of the stream's list.
func (w *world) ours(items []int) {
	for _, n := range items {
		if n >= foreign {
			w.fail(ruleSource, "item %d of the other list is sent", n-foreign)
		}
	}
}

// as returns a checkpoint as the version of the process reads and writes it.
func (p *process) as(c bridge.Checkpoint) bridge.Checkpoint {
	if !p.older {
		return c
	}
	c.Origin.Request, c.Border = "", bridge.Border{}
	if c.Change != nil {
		change := *c.Change
		change.AcceptSource = ""
		c.Change = &change
	}
	return c
}

// accepting gives an operator's reset for blocked settings the digest of the right ones.
func (w *world) accepting(cmd bridge.Command) bridge.Command {
	if w.right != settingsRight && cmd.Kind == bridge.KindReset {
		cmd.AcceptSource = w.form(w.right).Digest()
	}
	return cmd
}
