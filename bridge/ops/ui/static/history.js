// The cursor's history: a slider over time and a table. Choosing an entry opens
// the plan of a move to it, and nothing more.

import { $, el, fill, setText, time } from './dom.js';
import { clock, count, instant, place, plural } from './format.js';
import { model, now } from './model.js';

const bars = 120;

// A finger does not hover, but what it touched last looks as if it did.
const hovers = matchMedia('(hover: hover)');

// History shows the entries of one stream; move is called with the one that is
// to be gone back to.
export class History {
  entries = []; // newest first
  chosen = null; // place of the chosen entry; null is the newest

  constructor(move) {
    this.move = move;
    this.slider = $('slider');
    this.slider.addEventListener('input', () => this.choose(this.nearest(Number(this.slider.value))));
    this.slider.addEventListener('keydown', (event) => this.step(event));
    $('slider-move').addEventListener('click', () => move(this.current()));
    $('slider-now').addEventListener('click', () => this.choose(null));
    $('changes-only').addEventListener('change', () => this.render());
    new ResizeObserver(() => this.drawBars()).observe($('bars'));
  }

  // busy is true while somebody is choosing: then the list stays as it is.
  get busy() { return this.chosen !== null || (hovers.matches && $('history-rows').matches(':hover')); }

  clear() {
    this.entries = [];
    this.chosen = null;
    this.say('Loading…');
  }

  show({ source, note, entries }) {
    this.entries = entries ?? [];
    if (this.entries.length === 0) setText($('history-source'), '');
    else setText($('history-source'), note || ({ redis: 'from Redis', kafka: 'from the checkpoint topic (none in Redis)' }[source] ?? ''));
    this.say(this.entries.length > 0 ? '' : 'No commits yet. Committed cursors are listed here as targets for a rewind.');
    this.render();
  }

  fail(error) {
    this.entries = [];
    this.say(`Reading the history failed: ${error.message}.${error.hint ? ` Try: ${error.hint}` : ''}`);
    this.render();
  }

  say(text) {
    $('history-empty').hidden = text === '';
    setText($('history-empty'), text);
    $('history').hidden = text !== '';
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
    const after = this.entries[0].epoch === e.epoch ? `, ${plural(this.entries[0].events - e.events, 'event')} ago` : '';
    const text = this.chosen ? `entry ${place(e)}, committed ${when}${after}` : `now: entry ${place(e)}, committed ${when}`;
    this.slider.setAttribute('aria-valuetext', text);
    setText($('slider-text'), text);
    $('slider-move').disabled = $('slider-now').disabled = !this.chosen;
    setText($('slider-from'), clock(new Date(this.entries.at(-1).at), now()));
    setText($('slider-to'), clock(new Date(this.entries[0].at), now()));
    this.renderMarks();
  }

  // renderMarks shows above the slider where operators stepped in.
  renderMarks() {
    const [from, to] = [Number(this.slider.min), Number(this.slider.max)];
    $('marks').replaceChildren(...this.entries.filter(isChange).map((e) => {
      const mark = el('span', { class: `mark is-${kindOf(e)}`, title: `${e.kind} at ${clock(new Date(e.at), now())}: ${e.change?.reason || 'no reason'}` });
      mark.style.left = `${(100 * (Date.parse(e.at) - from)) / (to - from)}%`;
      return mark;
    }));
  }

  renderTable() {
    const only = $('changes-only').checked;
    const rows = this.entries.map((e, i) => ({ e, before: this.entries[i + 1] })).filter(({ e }) => !only || isChange(e));
    $('history-none').hidden = rows.length > 0 || this.entries.length === 0;
    fill($('history-rows'), rows.map(({ e, before }) => this.row(e, before)));
  }

  row(e, before) {
    const position = instant(e.position);
    const more = before && before.epoch === e.epoch ? e.events - before.events : 0;
    const newest = e === this.entries[0];
    return el('tr', { class: place(e) === this.chosen ? 'chosen' : null },
      el('td', { class: 'mono' }, place(e)),
      el('td', null, time(new Date(e.at), clock(new Date(e.at), now()))),
      el('td', { class: 'wide' }, position ? time(position, clock(position, now())) : '–'),
      el('td', { class: 'wide' }, isChange(e) ? el('span', { class: `badge is-${kindOf(e)}` }, e.kind) : el('span', { class: 'dim' }, e.kind)),
      el('td', { class: 'num wide' }, more > 0 ? `+${count(more)}` : ''),
      el('td', { class: 'num wide' }, count(e.events)),
      el('td', { class: 'mono wide dim' }, e.cursor_hash || 'start'),
      el('td', { class: 'why' }, isChange(e) ? el('span', { class: 'narrow' }, `${e.kind}: `) : null, isChange(e) ? whyText(e) : ''),
      el('td', { class: 'end' }, newest ? el('span', { class: 'dim' }, 'now') : el('button', {
        type: 'button', class: 'quiet small', 'data-key': place(e), 'aria-label': `Rewind to entry ${place(e)}`, onclick: () => this.move(e),
      }, 'Rewind…')));
  }

  // drawBars draws how many events were committed when.
  drawBars() {
    const canvas = $('bars');
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    if (w === 0 || this.entries.length < 2) return;
    const scale = devicePixelRatio || 1;
    canvas.width = w * scale;
    canvas.height = h * scale;
    const sums = this.sums();
    const most = Math.max(1, ...sums);
    const paint = canvas.getContext('2d');
    paint.scale(scale, scale);
    paint.fillStyle = getComputedStyle(canvas).color;
    sums.forEach((sum, i) => {
      const height = sum > 0 ? Math.max(1, (h * sum) / most) : 0;
      paint.fillRect((i * w) / bars, h - height, w / bars - 1, height);
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

const kinds = ['start', 'data', 'heartbeat', 'reset', 'pause', 'resume'];
const kindOf = (e) => (kinds.includes(e.kind) ? e.kind : 'other');
const isChange = (e) => ['reset', 'pause', 'resume'].includes(e.kind);
