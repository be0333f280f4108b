// The upper half of a stream's page: its state, the cause, the remedy and the figures.

import { $, copyable, el, fill, forbid, setText, time } from './dom.js';
import { age, bytes, clock, command, count, duration, instant, place, plural, rate } from './format.js';
import { down, downText, model, now, report, trouble, whyNot } from './model.js';

const names = {
  blocked: 'Blocked', stopped: 'Stopped', 'not running': 'Not running', backoff: 'Retrying', unknown: 'Unknown', degraded: 'In doubt', behind: 'Behind',
  paused: 'Paused', starting: 'Starting', running: 'Running', standby: 'Standby', idle: 'Caught up', ended: 'Ended',
};

// nameOf is the name of a condition, cssOf its CSS class. An unknown condition, of a newer
// bridge, is shown as unknown.
export const nameOf = (condition) => (Object.hasOwn(names, condition) ? names[condition] : names.unknown);
export const cssOf = (condition) => (Object.hasOwn(names, condition) ? condition.replace(' ', '-') : 'unknown');

// briefOf is the brief of a stream; its condition is unknown until the brief arrives.
export const briefOf = (stream) => model.briefs.get(stream) ?? { stream, condition: 'unknown', state: 'unknown', rate: 0 };

const healthy = (state) => ['running', 'idle'].includes(state);

const deadShare = (l) => (l?.dead_lettered > 0 ? l.dead_lettered / (l.dead_lettered + l.published) : 0);

const percent = (share) => (share > 0 && share < 0.01 ? '< 1 %' : `${Math.floor(100 * share)} %`);

// atRest says what the topic has of a stream that has caught up.
function atRest(r) {
  const l = r.live;
  if (r.many_dead_letters) return `${count(l.dead_lettered)} of the events since the start are in the dead-letter topic.`;
  if (l.events + l.published + l.dead_lettered === 0) return 'The API has listed no event so far.';
  return r.end_doubtful ? 'All events that were read are in Kafka; the API may have more.' : 'All exported events are in Kafka.';
}

let shownStreams = '';

// mostTabs is the maximum number of streams with buttons; the table has all streams.
const mostTabs = 6;

// renderStreams rebuilds the buttons only after a change: replacing a button during a click
// loses the click.
export function renderStreams(select) {
  const { streams: all } = model.session;
  const names = all.length > mostTabs ? all.filter((stream) => stream === model.stream) : all;
  const streams = names.map(briefOf).map(({ stream, condition }) => ({ stream, condition }));
  const key = JSON.stringify([model.stream, streams]);
  if (key === shownStreams) return;
  shownStreams = key;
  const overview = el('button', { type: 'button', class: 'stream', 'data-key': '', 'aria-current': model.stream === '' ? 'true' : null, onclick: () => select('') }, 'All streams');
  fill($('streams'), [...(all.length > 1 ? [overview] : []), ...streams.map(({ stream, condition }) => {
    const button = el('button', {
      type: 'button', class: `stream is-${cssOf(condition)}`, 'data-key': stream, 'aria-current': stream === model.stream ? 'true' : null,
      'aria-label': `Stream ${stream}: ${nameOf(condition)}`,
    }, el('span', { class: 'dot', 'aria-hidden': 'true' }), el('span', { class: 'name' }, stream));
    button.addEventListener('click', () => select(stream));
    return button;
  })]);
}

export function renderState(act) {
  const r = report();
  const { condition, state } = r.brief ?? briefOf(model.stream);
  const name = condition === 'degraded' ? `${nameOf(state)}, in doubt` : condition === 'behind' && r.left > 0 ? 'Catching up' : nameOf(condition);
  const box = $('state');
  box.className = `card state is-${cssOf(condition)}`;
  setText($('state-name'), name);
  setText($('state-stream'), model.stream);
  setText($('state-text'), sentence(r, state, down()));
  setText($('state-facts'), facts(r, state));
  cause(r, state, act);
  const paused = state === 'paused';
  $('pause').hidden = paused;
  $('resume').hidden = !paused;
  for (const action of ['pause', 'resume', 'move']) forbid($(action), whyNot(action));
  const why = whyNot(paused ? 'resume' : 'pause');
  setText($('act-why'), why);
  $('act-why').hidden = why === '';
  $('pause').onclick = () => act('pause');
  $('resume').onclick = () => act('resume');
  document.title = `${name} · ${model.stream} · exportbridge`;
}

// sentence names the failing servers, then what the stream does. The state itself tells about
// the API.
function sentence(r, state, away) {
  if (!model.detail) return 'Loading…';
  const text = phrase(r, state, away);
  const without = away.filter((server) => server !== 'api');
  if (without.length === 0 || state === 'backoff') return text;
  return `${downText(without)}; ${['running', 'idle'].includes(state) ? 'events flow; ' : ''}actions wait. ${text}`;
}

function phrase(r, state, away) {
  const l = r.live;
  switch (state) {
    case 'running':
      if (r.left > 0) return `${duration(r.lag)} behind; caught up in about ${duration(r.left)}.`;
      return l.pace > 0 && r.lag > 60 ? `${duration(r.lag)} behind, not catching up at this pace.` : 'Reading and publishing.';
    case 'idle': return `${atRest(r)} Next poll ${wait(l)}.`;
    case 'backoff': return `${away.length > 0 ? `${downText(away)}; the stream waits` : 'Recovering from an error'}; no event is lost. Next attempt ${wait(l)}.`;
    case 'blocked': return `Stopped without losing or skipping events. Resumes once the cause is fixed; next check ${wait(l)}.`;
    case 'paused': return `Paused ${until(l?.paused_until ?? r.checkpoint?.paused_until)}. Resumes at this position; no event is lost.`;
    case 'standby': return 'This process does not run the stream, and takes over when nobody does. The owner is not known yet.';
    case 'starting': return 'Reading the checkpoint.';
    case 'ended': return `Ended: ${l?.ended ?? r.brief.why}.`;
    case 'stopped': return 'This process has stopped the stream.';
  }
  if (l) return `The owner reports the state “${l.state}”, unknown to this version.`;
  if (r.members?.length > 0) return 'The owner cannot reach Redis.';
  if (!r.asked) return 'No status yet.';
  if (!r.members_known) return 'Not known whether a process runs this stream.';
  return r.checkpoint ? 'No owner. The data on this page is the last commit.' : 'No owner and no commits yet.';
}

function wait(l) {
  const at = instant(l.next_try);
  const seconds = at ? (at.getTime() - now()) / 1000 : 0;
  return seconds > 2 ? `in ${duration(seconds)}` : 'now';
}

function until(ms) {
  const at = instant(ms);
  if (ms === -1 || !at) return 'until resumed';
  return `until ${clock(at, now())}, ${duration(Math.max(0, (at.getTime() - now()) / 1000))} left`;
}

const ageSince = (when) => age((now() - when.getTime()) / 1000);

function facts(r, state) {
  const all = [];
  const since = instant(r.live?.since);
  if (since && state !== 'idle') all.push(`for ${ageSince(since)}`);
  if (r.live?.owner) all.push(`owner ${r.live.owner}`);
  if (r.elsewhere) all.push('reported by the owner');
  if (r.head) all.push(`epoch ${r.head.epoch}`);
  return all.join(' · ');
}

let shownCause = '';

// cause shows the causes and remedies. It is rebuilt only after a change: the reader may be
// selecting text.
function cause(r, state, act) {
  const rows = [];
  const l = r.live;
  if (l?.error && (state === 'blocked' || state === 'backoff')) {
    rows.push(['Cause', l.error, l.reason]);
    if (l.hint) rows.push(['Try', l.hint]);
  }
  for (const w of healthy(state) ? l?.warnings ?? [] : []) {
    rows.push(['Warning', w.text]);
    if (w.hint) rows.push(['Try', w.hint]);
  }
  if (r.many_dead_letters && model.deadLetters) rows.push(['Dead letters', `most often ${model.deadLetters}`]);
  if (r.checkpoint?.routes) rows.push(['Routes', r.checkpoint.routes]);
  if (l?.schema?.mismatches > 0) rows.push(...schemaRows(l.schema));
  if (l?.dropped_by_route > 0) rows.push(['Dropped', `${plural(l.dropped_by_route, 'event')} by a route, since the start`]);
  if (l?.border_repeats > 0) rows.push(['Borders', `${plural(l.border_repeats, 'item')} listed again at the beginning of the next page and dropped`]);
  const late = Object.entries(l?.late_events ?? {});
  if (late.length > 0) rows.push(['Late', `events that the API showed late, by how late: ${late.map(([to, n]) => `${n} up to ${to}`).join(', ')}`.replace('up to more', 'later')]);
  const change = r.changes?.[0];
  if (state === 'paused' && change?.kind === 'pause') rows.push(['Reason', change.reason || 'no reason'], ['By', change.who || 'unknown']);
  const overlap = l?.overlap ?? r.checkpoint?.overlap;
  if (overlap && !overlap.done) rows.push(['Read again', `overlap: ${plural(overlap.dropped ?? 0, 'duplicate')} dropped`]);
  for (const note of r.notes ?? []) rows.push(['Note', note]);
  const key = JSON.stringify([model.stream, rows, whyNot('move')]);
  if (key === shownCause) return;
  shownCause = key;
  $('cause').hidden = rows.length === 0;
  $('cause').replaceChildren(...rows.flatMap(([name, text, code]) => [
    el('dt', null, name),
    el('dd', null, code ? el('span', { class: 'code' }, code) : null, ...(name === 'Try' ? remedy(text, act) : [text])),
  ]));
}

// schemaRows show how events differ from EVENT_SCHEMA.
function schemaRows(found) {
  const rows = [['Schema', `${plural(found.mismatches, 'event')} unlike EVENT_SCHEMA, since the start`]];
  for (const d of found.differences) rows.push(['Differs', `${d.pointer || 'the event'} ${d.difference}`]);
  if (found.more_differences) rows.push(['Differs', 'further differences: exportbridge schema check']);
  return rows;
}

// remedy shows a hint as a button of this page, a command to copy, or a sentence.
function remedy(hint, act) {
  const here = [[/\bresume\b/i, 'resume', 'Resume…'], [/\b(rewind|reset)\b/i, 'move', 'Move the cursor…']].find(([word]) => word.test(hint));
  const why = here ? whyNot(here[1]) : '';
  return [
    ...(command.test(hint) ? copyable(hint, 'the hint') : [hint]),
    here ? el('button', { type: 'button', disabled: why !== '', title: why, onclick: () => act(here[1]) }, here[2]) : null,
  ];
}

export function renderFigures() {
  const r = report();
  const l = r.live;
  const c = r.checkpoint;
  figure('lag', r.lag >= 0 ? (l?.caught_up ? '0 s' : duration(r.lag)) : '–', l?.caught_up ? (r.end_doubtful ? 'to the end of what was read' : 'caught up') : remaining(r), r.brief?.condition === 'ended' ? 'ended' : 'not known');
  const pace = l?.state === 'running' && l.pace > 0 && !l.caught_up;
  figure('rate', l ? rate(l.rate) : '–', pace ? `${l.pace.toFixed(1)} × real time` : 'over 10 s');
  const events = l?.events ?? c?.events;
  figure('events', events === undefined ? '–' : count(events), `in ${plural(l?.pages ?? c?.pages ?? 0, 'page')}`);
  figure('dead', l ? count(l.dead_lettered) : '–', `${l?.dead_lettered > 0 ? `${percent(deadShare(l))} of events ` : ''}since the process started`);
  $('figure-dead').classList.toggle('is-bad', l?.dead_lettered > 0);
  figure('ahead', l ? bytes(l.prefetched_bytes) : '–', l ? plural(l.prefetched_pages, 'page') : '');
  const committed = instant(r.head?.at);
  figure('commit', committed ? ageSince(committed) : '–', committed ? `ago, entry ${place(r.head)}` : '', down().length > 0 ? 'not known' : 'no commits');
  renderAttested(l?.attested);
  setText($('guarantee'), r.guarantee ?? '');
}

// renderAttested shows the last attested period of a stream with BRIDGE_ATTEST.
function renderAttested(a) {
  $('figure-attested').hidden = !a;
  if (!a) return;
  const to = instant(a.to);
  const pending = a.pending > 0 ? [`${plural(a.pending, 'period')} pending`] : [];
  figure('attested', a.seq > 0 && to ? clock(to, now()) : '–', [`${count(a.missing)} missing`, `${count(a.repaired)} repaired`, ...pending].join(', '), 'no record');
  $('figure-attested').classList.toggle('is-bad', a.missing > 0 || Boolean(a.error));
}

function remaining(r) {
  if (r.left > 0) return `caught up in ${duration(r.left)}`;
  return r.live ? 'behind the export' : 'age of the position';
}

// figure shows a value with a note, or the note absent if there is no value.
function figure(name, value, note, absent = '') {
  const box = $(`figure-${name}`);
  setText(box.querySelector('.value'), value);
  box.classList.toggle('absent', value === '–');
  setText(box.querySelector('.note'), value === '–' ? absent : note);
}

const servers = [['api', 'Export API'], ['kafka', 'Kafka'], ['redis', 'Redis']];

export function renderServers(meter) {
  const dependencies = report().live?.dependencies ?? {};
  for (const [key] of servers) {
    const box = $(`server-${key}`);
    const d = dependencies[key];
    const state = d ? (d.up ? 'up' : 'down') : 'unknown';
    box.className = `card server is-${state}`;
    setText(box.querySelector('.badge'), state === 'down' ? trouble(d).replace(/^is /, '') : state);
    const since = instant(d?.since);
    setText(box.querySelector('.since'), since ? `for ${ageSince(since)}` : '');
    setText(box.querySelector('.error'), d?.error ?? '');
    setText(box.querySelector('.measured'), meter.ready ? measured[key](meter) : '');
  }
}

// mean is the average of a histogram, marked if it is of all streams together.
function mean(meter, noun, name) {
  const seconds = meter.mean(name, model.stream);
  return seconds === null ? [] : [`${noun} ${duration(seconds)}${meter.whole(`${name}_count`) ? ' (all streams)' : ''}`];
}

const parts = (...all) => all.flat().join(' · ');

// failed counts failures; empty without attempts.
function failed(meter, name, bad, noun) {
  const results = meter.change(name, model.stream, 'result');
  const sum = (keys) => keys.reduce((n, key) => n + (results.get(key) ?? 0), 0);
  return sum([...results.keys()]) > 0 ? plural(sum(bad), `failed ${noun}`) : [];
}

// The measurements of each server in the last minute.
const measured = {
  api(meter) {
    const codes = meter.change('source_requests_total', model.stream, 'code');
    const all = [...codes.values()].reduce((a, b) => a + b, 0);
    const shares = [...codes].filter(([, n]) => n > 0).map(([code, n]) => `${code}: ${((100 * n) / all).toFixed(n === all ? 0 : 1)} %`);
    return parts(mean(meter, 'request', 'source_request_duration_seconds'), shares);
  },
  kafka(meter) {
    return parts(mean(meter, 'transaction', 'transaction_duration_seconds'), failed(meter, 'transactions_total', ['fenced', 'unknown'], 'transaction'));
  },
  redis(meter) {
    return parts(mean(meter, 'write', 'cursor_commit_duration_seconds'), failed(meter, 'checkpoint_store_writes_total', ['error', 'conflict'], 'write'));
  },
};

export function renderStages(meter) {
  const stages = meter.ready ? meter.stages(model.stream) : [];
  $('stages-empty').hidden = stages.length > 0;
  setText($('stages-of'), meter.whole('stage_duration_seconds_count') ? 'last minute, all streams' : 'last minute');
  $('stages').replaceChildren(...stages.map(({ stage, mean: seconds, share }) => {
    const bar = el('span', { class: 'bar' });
    bar.style.width = `${Math.max(1, 100 * share)}%`;
    return el('li', null,
      el('span', { class: 'stage' }, stage), el('span', { class: 'track', 'aria-hidden': 'true' }, bar),
      el('span', { class: 'num' }, duration(seconds)), el('span', { class: 'num dim' }, `${Math.round(100 * share)} %`));
  }));
}

export function renderMembers() {
  const r = report();
  const members = r.members ?? [];
  $('members-empty').hidden = members.length > 0;
  const kafka = down().includes('kafka');
  setText($('members-empty'), membersUnknown(r) ? `Not known: ${kafka ? downText(['kafka']) : 'the group cannot be read'}.` : 'No known members.');
  fill($('members'), members.map((m) => el('li', null,
    el('span', { class: m.owner ? 'badge good' : 'badge' }, m.owner ? 'owner' : 'standby'),
    el('span', { class: 'mono' }, m.process || m.instance_id || m.client_id), el('span', { class: 'dim' }, m.host))));
}

const membersUnknown = (r) => r.asked && !r.members_known || (down().includes('kafka') && !r.members);

export function renderPosition() {
  const { head } = report();
  const position = instant(head?.position);
  setText($('position'), head ? `entry ${place(head)}` : down().length > 0 ? 'not known' : 'no commits yet');
  $('position-time').replaceChildren(position ? time(position, `position ${clock(position, now())}`) : '');
  setText($('position-hash'), head?.cursor_hash ? `cursor ${head.cursor_hash}` : head ? 'no cursor: at the start of the export' : '');
}
