// The lower half of a stream's page: samples of events, log, dead letters.

import { $, copyable, el, fill, Folds, runs, setText, time } from './dom.js';
import { bytes, clock, count, explain, instant, plural } from './format.js';
import { down, downText, model, now, report } from './model.js';

const samplesKept = 50;
const logKept = 200;

// Samples are the last samples of the shown stream.
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

  clear() {
    this.all = [];
    this.render();
  }

  add(sample) {
    if (sample.stream !== model.stream) return;
    this.all.unshift(sample);
    this.all.length = Math.min(this.all.length, samplesKept);
    if (!this.held) this.render();
  }

  render() {
    const type = $('samples-type').value.trim().toLowerCase();
    const rows = this.all.filter((s) => String(s.type ?? '').toLowerCase().includes(type));
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
    typeCell(s),
    payload ? el('td', { class: 'mono dim wide' }, s.key_hash || 'no key') : null,
    el('td', { class: 'mono num wide' }, `${s.partition}@${s.offset}`),
    payload ? el('td', { class: 'mono dim cut', title: s.id }, s.id) : null,
    payload ? el('td', { class: 'mono cut', title: text(s.value) }, text(s.value)) : null);
}

// typeCell shortens the beginning of a long type: types differ at the end.
function typeCell({ type, origin }) {
  const [, begin, end] = /^(.*\.)?(.*)$/s.exec(type || '–');
  return el('td', { class: 'type', title: type }, el('div', null,
    begin ? el('bdi', { class: 'begin' }, begin) : null, el('bdi', null, end), origin && origin !== 'live' ? el('span', { class: 'badge' }, origin) : null));
}

const text = (value) => (value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value));

// Log is the log of the process. Each connection sends the last lines again.
export class Log {
  all = []; // newest first
  known = new Set();
  folds = new Folds();

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
    fill($('log'), runs(rows, sameAs).flatMap((run) => this.lines(run)));
  }

  // lines shows the newest of equal messages; a button shows the others.
  lines(run) {
    const { key } = run.at(-1);
    const [first, ...others] = run;
    if (others.length === 0) return [logLine(first)];
    const fold = this.folds.button(key, `${plural(run.length, 'equal message')}`, () => this.render());
    return [logLine(first, el('span', { class: 'count' }, `× ${count(run.length)}`), fold), ...(this.folds.open.has(key) ? others.map((e) => logLine(e)) : [])];
  }
}

function severity(e) {
  const level = String(e.level ?? '').toUpperCase();
  if (level.startsWith('ERR')) return 'error';
  return level.startsWith('WARN') ? 'warn' : 'info';
}

// sameAs is the same for messages that differ in details only.
const sameAs = ({ level, msg, attrs }) => JSON.stringify([level, msg, attrs?.stream, attrs?.error]);

function logLine(e, ...folded) {
  const at = instant(e.time);
  const attrs = Object.entries(e.attrs ?? {});
  return el('li', null,
    at ? time(at, clock(at, now())) : el('span', null, '–'),
    el('span', { class: `badge is-${severity(e)}` }, severity(e)), ...folded,
    el('span', { class: 'message' }, String(e.msg ?? ''), ' ',
      el('span', { class: 'dim mono' }, attrs.map(([name, value]) => `${name}=${text(value)}`).join(' '))));
}

// Listing is a panel with a list from the server, or the error of the request.
export class Listing {
  constructor(name, empty) {
    this.name = name;
    this.empty = empty;
  }

  clear() { this.say('Loading…'); }

  fail(error) { this.say(explain(error, 'not known: '), true); }

  // show shows the rows, and their total: a number or a text.
  show(rows, total) {
    const away = down().includes('kafka');
    this.say(rows.length > 0 ? '' : away ? `Not known: ${downText(['kafka'])}.` : this.empty);
    setText($(`${this.name}-total`), typeof total === 'string' ? total : total > 0 ? count(total) : '');
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
  folds = new Folds();

  constructor() {
    super('letters', 'No dead letters. Events that cannot be published are listed here; none is skipped.');
  }

  clear() {
    this.folds.open.clear();
    super.clear();
  }

  list({ letters, more }) {
    const all = letters ?? [];
    const known = report().live?.dead_lettered ?? 0;
    const of = known > all.length ? ` of ${count(known)} since the process started` : '; there are older ones';
    this.render = () => fill($('letters-rows'), all.flatMap((l) => this.rows(l)));
    this.show(all.flatMap((l) => this.rows(l)), more ? `newest ${count(all.length)}${of}` : all.length);
    model.deadLetters = mostOften(all);
    setText($('letters-most'), model.deadLetters && `Most often ${model.deadLetters}.`);
    $('letters-most').hidden = model.deadLetters === '';
  }

  say(message, failed) {
    super.say(message, failed);
    if (message === '') return;
    model.deadLetters = '';
    $('letters-most').hidden = true;
  }

  rows(l) {
    const at = instant(l.time);
    const letter = `${l.partition}:${l.offset}`;
    return [el('tr', null,
      el('td', { class: 'folding' }, this.folds.button(letter, `Details of letter ${letter}`, () => this.render()), at ? time(at, clock(at, now())) : '–'),
      el('td', null, el('span', { class: 'badge is-error' }, l.reason)),
      el('td', { class: 'why' }, l.message),
      el('td', { class: 'mono num wide' }, letter),
      el('td', { class: 'num wide' }, bytes(l.bytes))), this.folds.open.has(letter) && this.details(l, letter)].filter(Boolean);
  }

  // details are the commands that show and retry a dead letter, and the letter's headers.
  details(l, letter) {
    const commands = [['show it', `show ${letter}`], ['plan its retry', `retry ${letter}`], ['list its kind', `list --reason ${quoted(l.reason)}`], ['plan their retry', `retry --all --reason ${quoted(l.reason)}`]];
    const facts = [['letter', letter], ['page#item', `${l.cursor_hash || 'start'}#${l.index}`], ['size', bytes(l.bytes)], ...Object.entries(l.headers ?? {}).sort()];
    return el('tr', { class: 'details' }, el('td', { colspan: 5 }, el('dl', { class: 'facts' },
      ...commands.flatMap(([name, command]) => [el('dt', null, name), el('dd', null, ...copyable(`exportbridge dlq ${command} --stream ${quoted(model.stream)}`, name))]),
      ...facts.flatMap(([name, value]) => [el('dt', null, name), el('dd', { class: 'mono' }, value)]))));
  }
}

// mostOften is the most frequent reason, with the most frequent pointer in its messages; ''
// if no reason occurs twice.
function mostOften(letters) {
  const most = (names) => Object.entries(Object.groupBy(names, (n) => n)).map(([n, all]) => [n, all.length]).sort(([, a], [, b]) => b - a)[0] ?? ['', 0];
  const [reason, n] = most(letters.map((l) => l.reason));
  if (n < 2) return '';
  const pointers = letters.filter((l) => l.reason === reason).flatMap((l) => /(?<=^|\s)\/[^\s,]+/.exec(l.message) ?? []);
  const at = pointers.length > 0 ? ` at ${most(pointers)[0]}` : '';
  return `${reason}${at}: ${count(n)} of the newest ${count(letters.length)}`;
}

// quoted is a name quoted for a shell.
const quoted = (name) => (/^[\w.-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`);
