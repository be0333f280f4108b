// The history of the cursor: a slider over time and a table. Choosing an entry only opens the
// plan of a move to the entry.

import { usualTop } from './charts.js';
import { $, el, fill, Folds, forbid, runs, setText, time } from './dom.js';
import { again, clock, count, explain, instant, place } from './format.js';
import { down, model, now, report, whyNot } from './model.js';

const bars = 120;

// Without a mouse, the element touched last would keep the style of hovering.
const hovers = matchMedia('(hover: hover)');

// History shows the entries of one stream. move is called with the entry to rewind to.
export class History {
  listed = []; // newest first, as the server listed them
  entries = []; // the stream's newest commit, as on the rest of the page, and the entries before it
  chosen = null; // version of the chosen entry; null is the newest
  why = ''; // why a rewind cannot work now
  folds = new Folds(); // of entries without events
  reach = null; // version of the row that the Tab key reaches; null is the first

  constructor(move) {
    this.move = move;
    this.slider = $('slider');
    this.slider.addEventListener('input', () => this.choose(this.nearest(Number(this.slider.value))));
    this.slider.addEventListener('keydown', (event) => this.step(event));
    $('slider-move').addEventListener('click', () => move(this.current()));
    $('slider-now').addEventListener('click', () => this.choose(null));
    $('history-rows').addEventListener('keydown', (event) => this.walk(event));
    $('history-rows').addEventListener('focusin', (event) => this.reachable(event.target));
    $('changes-only').addEventListener('change', () => this.render());
    new ResizeObserver(() => this.drawBars()).observe($('bars'));
  }

  // busy is true while the reader chooses an entry: the list must not change.
  get busy() { return this.chosen !== null || (hovers.matches && $('history-rows').matches(':hover')); }

  clear() {
    this.listed = this.entries = [];
    this.chosen = this.reach = null;
    this.say('Loading…');
  }

  show({ source, note, entries }) {
    this.listed = entries ?? [];
    this.take(report().head);
    if (this.entries.length === 0) setText($('history-source'), '');
    else setText($('history-source'), note || ({ redis: 'from Redis', kafka: 'from the checkpoint topic (none in Redis)' }[source] ?? ''));
    const none = down().length > 0 ? 'Not known while a server is down.' : 'No commits yet. Committed cursors are listed here as targets for a rewind.';
    this.say(this.entries.length > 0 ? '' : none);
    this.render();
  }

  fail(error) {
    this.listed = this.entries = [];
    this.say(explain(error, 'not known: '), true);
    this.render();
  }

  say(text, failed = false) {
    $('history-empty').hidden = text === '';
    setText($('history-empty'), text);
    $('history-retry').hidden = !failed;
    $('history').hidden = text !== '';
  }

  // take puts the newest commit before the listed entries. A later commit replaces it, so
  // that no other row moves.
  take(head) {
    const older = this.listed.filter((e) => !head || head.epoch < this.listed[0].epoch || e.epoch < head.epoch || (e.epoch === head.epoch && e.seq < head.seq));
    const same = this.listed.find((e) => head && place(e) === place(head));
    this.entries = !head || head.epoch < this.listed[0]?.epoch ? this.listed : [same ?? head, ...older];
  }

  // follow shows the newest commit, and whether a rewind can work now.
  follow() {
    const why = whyNot('move');
    if (why !== this.why) {
      this.why = why;
      this.render();
    }
    const { head } = report();
    const first = this.entries[0];
    if (!first || !head || place(head) === place(first) || head.epoch !== first.epoch || head.seq < first.seq) return;
    this.entries = [head, ...this.entries.slice(1)];
    this.renderSlider();
    const row = $('history-rows').querySelector('tr.newest');
    row?.replaceWith(this.row(head, this.entries[1]));
    this.drawBars();
  }

  // walk moves the focus from row to row: the Tab key stops at the table once.
  walk(event) {
    const all = [...$('history-rows').querySelectorAll('button:not(.fold, :disabled)')];
    const at = all.indexOf(event.target);
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    all[Math.min(all.length - 1, Math.max(0, to))].focus();
  }

  reachable(button) {
    if (!button.dataset.key || button.matches('.fold')) return;
    for (const other of $('history-rows').querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    button.tabIndex = 0;
    this.reach = button.dataset.key;
  }

  current() { return this.entries.find((e) => place(e) === this.chosen) ?? this.entries[0]; }

  index() { return Math.max(0, this.entries.findIndex((e) => place(e) === this.chosen)); }

  nearest(at) {
    let best = null;
    for (const e of this.entries) {
      if (best === null || Math.abs(Date.parse(e.at) - at) < Math.abs(Date.parse(best.at) - at)) best = e;
    }
    return best;
  }

  // step moves the slider by entries, not by milliseconds.
  step(event) {
    const by = { ArrowLeft: 1, ArrowDown: 1, ArrowRight: -1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: Infinity, End: -Infinity }[event.key];
    if (by === undefined || this.entries.length === 0) return;
    event.preventDefault();
    this.choose(this.entries[Math.min(this.entries.length - 1, Math.max(0, this.index() + by))]);
  }

  choose(entry) {
    this.chosen = entry && entry !== this.entries[0] ? place(entry) : null;
    this.render();
    document.querySelector('#history-rows tr.chosen')?.scrollIntoView({ block: 'nearest' });
  }

  render() {
    this.renderSlider();
    this.renderTable();
    this.drawBars();
  }

  renderSlider() {
    const e = this.current();
    if (!e) return;
    this.slider.min = Date.parse(this.entries.at(-1).at);
    this.slider.max = Math.max(Date.parse(this.entries[0].at), Number(this.slider.min) + 1);
    this.slider.value = Date.parse(e.at);
    const when = clock(new Date(e.at), now());
    const text = this.chosen ? `entry ${place(e)}, committed ${when}: ${this.repeats(e)}` : `now: entry ${place(e)}, committed ${when}`;
    this.slider.setAttribute('aria-valuetext', text);
    setText($('slider-text'), text);
    forbid($('slider-now'), this.chosen ? '' : 'The newest entry is selected.');
    forbid($('slider-move'), this.why || (this.chosen ? '' : 'Select an earlier entry first.'));
    setText($('slider-from'), clock(new Date(this.entries.at(-1).at), now()));
    setText($('slider-to'), clock(new Date(this.entries[0].at), now()));
    this.renderMarks();
  }

  // repeats says how many events a rewind to an entry publishes again. The count continues
  // after a rewind, a pause and a resume: the first entry of such an epoch has a parent in an
  // earlier epoch. Until a rewind ends, the events that it has yet to publish come again, too.
  repeats(e) {
    const newer = this.entries.slice(0, this.entries.indexOf(e));
    const cut = this.listed[0]?.news_after || newer.some((n, i) => n.epoch !== this.entries[i + 1].epoch && !(Number.parseInt(n.parent, 10) < n.epoch));
    const events = this.entries[0].events - e.events;
    if (cut) return 'the plan says how many events come again';
    return events < 0 ? 'ahead of the stream' : again(events);
  }

  // renderMarks marks the operators' changes above the slider.
  renderMarks() {
    const [from, to] = [Number(this.slider.min), Number(this.slider.max)];
    $('marks').replaceChildren(...this.entries.filter(isChange).map((e) => {
      const mark = el('span', { class: `mark ${look(e)}`, title: `${kindOf(e)} at ${clock(new Date(e.at), now())}: ${e.change?.reason || 'no reason'}` });
      mark.style.left = `${(100 * (Date.parse(e.at) - from)) / (to - from)}%`;
      return mark;
    }));
  }

  renderTable() {
    const only = $('changes-only').checked;
    const rows = this.entries.map((e, i) => ({ e, before: this.entries[i + 1] })).filter(({ e }) => !only || isChange(e));
    $('history-none').hidden = rows.length > 0 || this.entries.length === 0;
    fill($('history-rows'), runs(rows, (r) => this.empty(r)).flatMap((run) => this.rows(run)));
    const first = $('history-rows').querySelector('[tabindex="0"]') ?? $('history-rows').querySelector('button:not(.fold)');
    if (first) first.tabIndex = 0;
  }

  // empty is the same for entries without new events, except the newest.
  empty({ e, before }) { return e !== this.entries[0] && !isChange(e) && before?.epoch === e.epoch && before.events === e.events ? e.epoch : null; }

  // rows shows the newest of a run of empty entries; a button, or choosing one of them, shows
  // the others.
  rows(run) {
    const key = place(run.at(-1).e);
    if (run.length === 1) return [this.row(run[0].e, run[0].before)];
    const text = `${count(run.length)} entries without new events`;
    const fold = this.folds.button(key, text, () => this.renderTable());
    const open = this.folds.open.has(key) || run.some(({ e }) => place(e) === this.chosen);
    return (open ? run : run.slice(0, 1)).map(({ e, before }, i) => (i === 0 ? this.row(e, before, fold, text) : this.row(e, before)));
  }

  row(e, before, fold = null, folded = '') {
    const position = instant(e.position);
    const more = before && before.epoch === e.epoch ? e.events - before.events : 0;
    const newest = e === this.entries[0];
    return el('tr', { class: newest ? 'newest' : place(e) === this.chosen ? 'chosen' : null },
      el('td', { class: fold ? 'mono folding' : 'mono' }, fold, place(e)),
      el('td', null, time(new Date(e.at), clock(new Date(e.at), now()))),
      el('td', { class: 'wide' }, position ? time(position, clock(position, now())) : '–'),
      el('td', { class: 'wide' }, el('span', { class: isChange(e) ? `badge ${look(e)}` : 'dim' }, kindOf(e))),
      el('td', { class: 'num wide' }, more > 0 ? `+${count(more)}` : ''),
      el('td', { class: 'num wide' }, count(e.events)),
      el('td', { class: 'mono wide dim' }, e.cursor_hash || 'start'),
      el('td', { class: 'why' }, isChange(e) ? el('span', { class: 'narrow' }, `${kindOf(e)}: `) : null, isChange(e) ? whyText(e) : el('span', { class: 'dim' }, folded)),
      el('td', { class: 'end' }, newest ? el('span', { class: 'dim' }, 'now') : el('button', {
        type: 'button', class: 'quiet small', 'data-key': place(e), 'aria-label': `Rewind to entry ${place(e)}`, onclick: () => this.move(e),
        disabled: this.why !== '', title: this.why || null, tabindex: place(e) === this.reach ? '0' : '-1',
      }, 'Rewind…')));
  }

  // drawBars draws the committed events over time, on a scale for the usual values.
  drawBars() {
    const canvas = $('bars');
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    if (w === 0 || this.entries.length < 2) return;
    const scale = devicePixelRatio || 1;
    canvas.width = w * scale;
    canvas.height = h * scale;
    const sums = this.sums();
    const most = Math.max(1, usualTop(sums));
    const paint = canvas.getContext('2d');
    paint.scale(scale, scale);
    paint.fillStyle = getComputedStyle(canvas).color;
    sums.forEach((sum, i) => {
      const height = sum > 0 ? Math.max(1, h * Math.min(1, sum / most)) : 0;
      paint.fillRect((i * w) / bars, h - height, w / bars - 1, height);
      if (sum > most) paint.clearRect((i * w) / bars, 5, w / bars, 3); // a gap marks a bar above the scale
    });
  }

  sums() {
    const sums = new Array(bars).fill(0);
    const from = Date.parse(this.entries.at(-1).at);
    const span = Math.max(1, Date.parse(this.entries[0].at) - from);
    for (let i = 0; i + 1 < this.entries.length; i++) {
      const [e, before] = [this.entries[i], this.entries[i + 1]];
      if (e.epoch !== before.epoch) continue;
      const at = Math.floor(((Date.parse(e.at) - from) / span) * bars);
      sums[Math.min(bars - 1, at)] += Math.max(0, e.events - before.events);
    }
    return sums;
  }
}

function whyText({ change }) {
  return `${change?.reason || 'no reason'}${change?.who ? ` (${change.who})` : ''}`;
}

const isChange = (e) => ['reset', 'pause', 'resume'].includes(e.kind);

// kindOf is the requested kind: the commit of a rewind has the kind reset.
const kindOf = (e) => (isChange(e) && e.change?.kind) || e.kind;

const kinds = ['start', 'data', 'heartbeat', 'reset', 'rewind', 'pause', 'resume'];
const look = (e) => `is-${kinds.includes(kindOf(e)) ? kindOf(e) : 'other'}`;
