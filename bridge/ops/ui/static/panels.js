// The lower half: events as they pass, log, dead letters.

import { $, el, fill, setText, time } from './dom.js';
import { bytes, clock, count, explain, instant } from './format.js';
import { down, downText, model, now } from './model.js';

const samplesKept = 50;
const logKept = 200;

// Samples are the last events, of all streams; the one that is shown is drawn.
export class Samples {
  all = []; // newest first
  held = false;

  constructor() {
    $('samples-hold').addEventListener('click', () => this.hold(!this.held));
    $('samples-type').addEventListener('input', () => this.render());
  }

  hold(held) {
    this.held = held;
    $('samples-hold').setAttribute('aria-pressed', String(held));
    setText($('samples-hold'), held ? 'Resume' : 'Freeze');
    this.render();
  }

  add(sample) {
    const same = this.all.filter((s) => s.stream === sample.stream);
    if (same.length >= samplesKept) this.all.splice(this.all.lastIndexOf(same.at(-1)), 1);
    this.all.unshift(sample);
    if (!this.held && sample.stream === model.stream) this.render();
  }

  render() {
    const type = $('samples-type').value.trim().toLowerCase();
    const rows = this.all.filter((s) => s.stream === model.stream && String(s.type ?? '').toLowerCase().includes(type));
    const payload = Boolean(model.session?.show_events);
    for (const column of ['key', 'id', 'value']) $(`samples-${column}`).hidden = !payload;
    $('samples-table').hidden = rows.length === 0;
    $('samples-empty').hidden = rows.length > 0;
    setText($('samples-empty'), type ? 'No events of this type since the page was opened.' : 'No events since the page was opened. This panel shows a sample, at most five per second.');
    fill($('samples-rows'), rows.map((s) => sampleRow(s, payload)));
  }
}

function sampleRow(s, payload) {
  const at = instant(s.time);
  return el('tr', null,
    el('td', null, at ? time(at, clock(at, now())) : '–'),
    el('td', { class: 'type', title: s.type }, el('bdi', null, s.type || '–'), s.origin && s.origin !== 'live' ? el('span', { class: 'badge' }, s.origin) : null),
    payload ? el('td', { class: 'mono dim wide' }, s.key_hash || 'no key') : null,
    el('td', { class: 'mono num wide' }, `${s.partition}@${s.offset}`),
    payload ? el('td', { class: 'mono dim cut', title: s.id }, s.id) : null,
    payload ? el('td', { class: 'mono cut', title: text(s.value) }, text(s.value)) : null);
}

const text = (value) => (value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value));

// Log is what the process logged. Each connection sends the last lines again.
export class Log {
  all = []; // newest first
  known = new Set();

  constructor() {
    $('log-warnings').addEventListener('change', () => this.render());
    this.render();
  }

  add(entry) {
    const key = JSON.stringify(entry);
    if (this.known.has(key)) return;
    this.known.add(key);
    this.all.unshift({ ...entry, key });
    while (this.all.length > logKept) this.known.delete(this.all.pop().key);
    this.render();
  }

  render() {
    const only = $('log-warnings').checked;
    const rows = this.all.filter((e) => !only || severity(e) !== 'info');
    $('log-empty').hidden = rows.length > 0;
    setText($('log-empty'), this.all.length > 0 ? 'No warnings.' : 'No messages. Changes of state and warnings are listed here.');
    fill($('log'), rows.map(logLine));
  }
}

function severity(e) {
  const level = String(e.level ?? '').toUpperCase();
  if (level.startsWith('ERR')) return 'error';
  return level.startsWith('WARN') ? 'warn' : 'info';
}

function logLine(e) {
  const at = instant(e.time);
  const attrs = Object.entries(e.attrs ?? {});
  return el('li', null,
    at ? time(at, clock(at, now())) : el('span', null, '–'),
    el('span', { class: `badge is-${severity(e)}` }, severity(e)),
    el('span', { class: 'message' }, String(e.msg ?? ''), ' ',
      el('span', { class: 'dim mono' }, attrs.map(([name, value]) => `${name}=${text(value)}`).join(' '))));
}

// Listing is a panel that asks the server, and says what became of it.
export class Listing {
  constructor(name, empty) {
    this.name = name;
    this.empty = empty;
  }

  clear() { this.say('Loading…'); }

  fail(error) { this.say(explain(error, 'not known: '), true); }

  show(rows, total, more = false) {
    const away = down(model.stream).includes('kafka');
    this.say(rows.length > 0 ? '' : away ? `Not known: ${downText(model.stream, ['kafka'])}.` : this.empty);
    setText($(`${this.name}-total`), total > 0 ? `${count(total)}${more ? '+' : ''}` : '');
    fill($(`${this.name}-rows`), rows);
  }

  say(message, failed = false) {
    $(`${this.name}-retry`).hidden = !failed;
    if (failed) setText($(`${this.name}-total`), '');
    setText($(`${this.name}-empty`), message);
    $(`${this.name}-empty`).hidden = message === '';
    $(`${this.name}-table`).hidden = message !== '';
  }
}

export class Letters extends Listing {
  constructor() {
    super('letters', 'No dead letters. Events that cannot be published are listed here; none is skipped.');
  }

  list({ letters, total, more }) {
    this.show((letters ?? []).map((l) => {
      const at = instant(l.time);
      return el('tr', null,
        el('td', null, at ? time(at, clock(at, now())) : '–'),
        el('td', null, el('span', { class: 'badge is-error' }, l.reason)),
        el('td', { class: 'why' }, l.message),
        el('td', { class: 'mono num wide' }, `${l.partition}:${l.offset}`),
        el('td', { class: 'mono dim wide' }, `${l.cursor_hash || 'start'}#${l.index}`),
        el('td', { class: 'num wide' }, bytes(l.bytes)));
    }), total, more);
  }
}
