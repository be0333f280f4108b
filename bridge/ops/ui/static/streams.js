// The overview of all streams: their number in each condition, and a table, worst first.

import { $, el, fill, setText } from './dom.js';
import { count, duration, plural, rate } from './format.js';
import { model, now } from './model.js';
import { briefOf, cssOf, nameOf } from './overview.js';

// ranks are the conditions of a stream, worst first, as in control.Conditions. Conditions
// before mild are trouble.
const ranks = ['blocked', 'stopped', 'not running', 'backoff', 'unknown', 'degraded', 'behind', 'paused', 'starting', 'running', 'standby', 'idle', 'ended'];
const mild = ranks.indexOf('behind');
const grave = ranks.indexOf('backoff');

const step = 100; // rows

// The orders of the table; equal rows are ordered by name.
const orders = {
  state: (a, b) => a.rank - b.rank || b.lag - a.lag,
  stream: () => 0,
  lag: (a, b) => b.lag - a.lag,
  rate: (a, b) => b.rate - a.rate,
  owner: (a, b) => a.owner.localeCompare(b.owner),
};

function rowOf(stream) {
  const { condition, reason, why = '', position, caught_up: caughtUp, rate: speed, owner = '' } = briefOf(stream);
  const known = ranks.includes(condition) ? condition : 'unknown';
  const lag = caughtUp ? 0 : position ? Math.max(0, (now() - Date.parse(position)) / 1000) : -1;
  return { stream, condition: known, name: reason ? `${nameOf(known)} (${reason})` : nameOf(known), rank: ranks.indexOf(known), lag, rate: speed, owner, why };
}

export class Streams {
  order = 'state';
  state = ''; // the only shown condition; '' is all
  most = step;
  shown = ''; // the last drawn content: the same content is not drawn again

  constructor() {
    $('streams-search').addEventListener('input', () => this.change({ most: step }));
    $('streams-more').addEventListener('click', () => this.change({ most: this.most + step }));
    for (const button of document.querySelectorAll('#streams-table [data-order]')) button.addEventListener('click', () => this.change({ order: button.dataset.order }));
    $('streams-rows').addEventListener('keydown', (event) => this.walk(event));
  }

  change(to) {
    Object.assign(this, to);
    this.render();
  }

  walk(event) {
    const links = [...$('streams-rows').querySelectorAll('a')];
    const to = links.indexOf(event.target) + ({ ArrowDown: 1, ArrowUp: -1 }[event.key] ?? NaN);
    if (!links[to]) return;
    event.preventDefault();
    links[to].focus();
  }

  // trouble shows the number of streams in trouble in title and icon, and returns the rows.
  trouble() {
    const all = model.session.streams.map(rowOf);
    const bad = all.filter((r) => r.rank < mild).length;
    const icon = all.some((r) => r.rank < grave) ? 'favicon-bad.svg' : bad > 0 ? 'favicon-warn.svg' : 'favicon.svg';
    if ($('icon').getAttribute('href') !== icon) $('icon').href = icon;
    if (model.stream === '') document.title = `${bad > 0 ? `${count(bad)} of ${plural(all.length, 'stream')} in trouble` : plural(all.length, 'stream')} · exportbridge`;
    return all;
  }

  render() {
    const all = this.trouble();
    const text = $('streams-search').value.trim().toLowerCase();
    const found = all.filter((r) => (!this.state || r.condition === this.state) && [r.stream, r.owner, r.name, r.why].some((s) => s.toLowerCase().includes(text)))
      .sort((a, b) => orders[this.order](a, b) || a.stream.localeCompare(b.stream));
    const rows = found.slice(0, this.most).map((r) => [r.stream, r.condition, r.name, r.lag < 0 ? '–' : r.lag < 1 ? '0 s' : duration(r.lag), rate(r.rate), r.owner, r.why]);
    const counts = ranks.map((condition) => [condition, all.filter((r) => r.condition === condition).length]).filter(([condition, n]) => n > 0 || condition === this.state);
    const key = JSON.stringify([rows, counts, this.state, this.order]);
    setText($('streams-total'), `${count(rows.length)} of ${count(all.length)}`);
    $('streams-more').hidden = rows.length === found.length;
    $('streams-none').hidden = rows.length > 0;
    if (key === this.shown || $('streams-rows').matches(':active')) return; // replacing a link during a click loses the click
    this.shown = key;
    for (const button of document.querySelectorAll('#streams-table [data-order]')) button.closest('th').setAttribute('aria-sort', button.dataset.order === this.order ? 'other' : 'none');
    fill($('states'), counts.map(([condition, n]) => el('button', {
      type: 'button', class: `tile is-${cssOf(condition)}`, 'data-key': `state ${condition}`, 'aria-pressed': String(condition === this.state), onclick: () => this.change({ state: condition === this.state ? '' : condition, most: step }),
    }, el('span', { class: 'dot', 'aria-hidden': 'true' }), el('strong', null, count(n)), ` ${nameOf(condition).toLowerCase()}`)));
    fill($('streams-rows'), rows.map(([stream, condition, name, lag, speed, owner, why]) => el('tr', null,
      el('td', { class: 'job' }, el('a', { href: `#${encodeURIComponent(stream)}`, 'data-key': `stream ${stream}` }, stream)),
      el('td', { class: 'job' }, el('span', { class: `chip is-${cssOf(condition)}` }, el('span', { class: 'dot', 'aria-hidden': 'true' }), name), why ? el('div', { class: 'dim' }, why) : null),
      el('td', { class: 'num' }, lag), el('td', { class: 'num wide' }, speed), el('td', { class: 'wide cut dim', title: owner || null }, owner))));
    this.processes(all);
  }

  // processes counts the streams of each owner.
  processes(all) {
    const owners = Object.entries(Object.groupBy(all.filter((r) => r.owner && r.condition !== 'standby'), (r) => r.owner)).sort();
    $('processes-empty').hidden = owners.length > 0;
    fill($('processes'), owners.map(([owner, rows]) => {
      const bad = rows.filter((r) => r.rank < mild).length;
      return el('li', null, el('span', { class: 'mono' }, owner), el('span', { class: 'dim' }, plural(rows.length, 'stream')), bad > 0 ? el('span', { class: 'badge is-error' }, `${count(bad)} in trouble`) : null);
    }));
  }
}
