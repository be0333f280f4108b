// The upper half: is it moving, and if not, why and what helps.

import { $, copyable, el, fill, forbid, setText, time } from './dom.js';
import { age, bytes, clock, command, count, duration, explain, instant, place, plural, rate } from './format.js';
import { down, downText, model, now, report, trouble, whyNot } from './model.js';

const names = {
  starting: 'Starting', standby: 'Standby', running: 'Running', idle: 'Caught up', backoff: 'Retrying',
  paused: 'Paused', blocked: 'Blocked', stopped: 'Stopped', none: 'Not running', unknown: 'Unknown',
};

// stateOf is the state to show. A stream that has caught up is idle and running
// in turns, many times a minute: that is one state to people. A pause may be
// committed where no bridge runs.
export function stateOf(r) {
  if (r.live?.state === 'running' && r.live.caught_up) return 'idle';
  if (r.live) return Object.hasOwn(names, r.live.state) ? r.live.state : 'unknown';
  const until = r.checkpoint?.paused_until;
  if (until === -1 || until > now()) return 'paused';
  return r.members_known && !(r.members?.length > 0) ? 'none' : 'unknown';
}

const healthy = (state) => ['running', 'idle'].includes(state);

// look is how a state is shown: in amber while events flow without one of the
// servers, or with a warning.
export function look(stream) {
  const r = report(stream);
  const state = stateOf(r);
  const behind = state === 'running' && r.lag > 60;
  const name = behind ? (r.left > 0 ? 'Catching up' : 'Behind') : names[state];
  const doubts = healthy(state) ? doubtsOf(r, down(stream)) : [];
  if (doubts.length > 0) return { state, css: 'degraded', name: [name, ...doubts].join(', ') };
  return { state, css: behind ? 'behind' : state, name };
}

// manyDead is the share of dead letters from which the state names it.
const manyDead = 0.01;

const deadShare = (l) => (l?.dead_lettered > 0 ? l.dead_lettered / (l.dead_lettered + l.published) : 0);

const percent = (share) => (share > 0 && share < 0.01 ? '< 1 %' : `${Math.floor(100 * share)} %`);

// doubtsOf is what keeps a stream that flows from being shown as well.
function doubtsOf(r, away) {
  const share = deadShare(r.live);
  const warned = warnings(r).length;
  return [
    away.length > 0 ? downText(r.stream, away).replaceAll(' is down', ' down') : '',
    share >= manyDead ? `${percent(share)} dead letters` : '',
    warned > 0 ? plural(warned, 'warning') : '',
  ].filter(Boolean);
}

const warnings = (r) => r.live?.warnings ?? [];

// endDoubtful says that the end of the results may not be their end.
const endDoubtful = (r) => warnings(r).some((w) => ['full_page_without_next', 'older_page', 'unread_cursor', 'future_start'].includes(w.code));

// atRest says what the topic has of a stream that has nothing to read.
function atRest(r) {
  const l = r.live;
  if (deadShare(l) >= manyDead) return `${count(l.dead_lettered)} of the events since the start are in the dead-letter topic.`;
  if (l.events + l.published + l.dead_lettered === 0) return 'The API has listed no event so far.';
  return endDoubtful(r) ? 'All events that were read are in Kafka; the API may have more.' : 'All exported events are in Kafka.';
}

let shownStreams = '';

// mostTabs is how many streams have a button each: more are in the table only.
const mostTabs = 6;

// renderStreams builds the buttons anew only when one of them changes: a click
// on one that is replaced meanwhile would be lost.
export function renderStreams(select) {
  const { streams: all } = model.session;
  const names = all.length > mostTabs ? all.filter((stream) => stream === model.stream) : all;
  const streams = names.map((stream) => ({ stream, ...look(stream) }));
  const key = JSON.stringify([model.stream, streams]);
  if (key === shownStreams) return;
  shownStreams = key;
  const overview = el('button', { type: 'button', class: 'stream', 'data-key': '', 'aria-current': model.stream === '' ? 'true' : null, onclick: () => select('') }, 'All streams');
  fill($('streams'), [...(all.length > 1 ? [overview] : []), ...streams.map(({ stream, css, name }) => {
    const button = el('button', {
      type: 'button', class: `stream is-${css}`, 'data-key': stream, 'aria-current': stream === model.stream ? 'true' : null,
      'aria-label': `Stream ${stream}: ${name}`,
    }, el('span', { class: 'dot', 'aria-hidden': 'true' }), el('span', { class: 'name' }, stream));
    button.addEventListener('click', () => select(stream));
    return button;
  })]);
}

export function renderState(act) {
  const r = report(model.stream);
  const { state, css, name } = look(model.stream);
  const box = $('state');
  box.className = `card state is-${css}`;
  setText($('state-name'), name);
  setText($('state-stream'), model.stream);
  setText($('state-text'), sentence(r, state, down(model.stream)));
  setText($('state-facts'), facts(r, state));
  cause(r, state, act);
  const paused = state === 'paused';
  $('pause').hidden = paused;
  $('resume').hidden = !paused;
  for (const action of ['pause', 'resume', 'move']) forbid($(action), whyNot(model.stream, action));
  const why = whyNot(model.stream, paused ? 'resume' : 'pause');
  setText($('act-why'), why);
  $('act-why').hidden = why === '';
  $('pause').onclick = () => act('pause');
  $('resume').onclick = () => act('resume');
  document.title = `${name} · ${model.stream} · exportbridge`;
}

// sentence says what the stream does, and first what it does without. The API is
// the matter of the state itself.
function sentence(r, state, away) {
  const text = phrase(r, state, away);
  const without = away.filter((server) => server !== 'api');
  if (without.length === 0 || state === 'backoff') return text;
  return `${downText(r.stream, without)}; ${['running', 'idle'].includes(state) ? 'events flow; ' : ''}actions wait. ${text}`;
}

function phrase(r, state, away) {
  const l = r.live;
  switch (state) {
    case 'running':
      if (r.left > 0) return `${duration(r.lag)} behind; caught up in about ${duration(r.left)}.`;
      return l.pace > 0 && r.lag > 60 ? `${duration(r.lag)} behind, not catching up at this pace.` : 'Reading and publishing.';
    case 'idle': return `${atRest(r)} Next poll ${wait(l)}.`;
    case 'backoff': return `${away.length > 0 ? `${downText(r.stream, away)}; the stream waits` : 'Recovering from an error'}; no event is lost. Next attempt ${wait(l)}.`;
    case 'blocked': return `Stopped without losing or skipping events. Resumes once the cause is fixed; next check ${wait(l)}.`;
    case 'paused': return `Paused ${until(l?.paused_until ?? r.checkpoint?.paused_until)}. Resumes at this position; no event is lost.`;
    case 'standby': return 'Another process owns this stream. This one takes over when the owner stops.';
    case 'starting': return 'Reading the checkpoint.';
    case 'stopped': return l.ended ? `Ended: ${l.ended}.` : 'This process has stopped the stream.';
  }
  if (l) return `The owner reports the state “${l.state}”, unknown to this version.`;
  if (r.members?.length > 0) return 'The owner cannot reach Redis.';
  if (r.members_known === undefined) return 'No status yet.';
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

// cause shows why, and what helps. It is built anew only when it changes: the
// reader may be selecting from it.
function cause(r, state, act) {
  const rows = [];
  const l = r.live;
  if (l?.error && (state === 'blocked' || state === 'backoff')) {
    rows.push(['Cause', l.error, l.reason]);
    if (l.hint) rows.push(['Try', l.hint]);
  }
  for (const w of healthy(state) ? warnings(r) : []) {
    rows.push(['Warning', w.text]);
    if (w.hint) rows.push(['Try', w.hint]);
  }
  if (deadShare(l) >= manyDead && model.deadLetters) rows.push(['Dead letters', `most often ${model.deadLetters}`]);
  if (l?.border_repeats > 0) rows.push(['Borders', `${plural(l.border_repeats, 'item')} listed again at the beginning of the next page and dropped`]);
  const late = Object.entries(l?.late_events ?? {});
  if (late.length > 0) rows.push(['Late', `events that the API showed late, by how late: ${late.map(([to, n]) => `${n} up to ${to}`).join(', ')}`.replace('up to more', 'later')]);
  const change = r.changes?.[0];
  if (state === 'paused' && change?.kind === 'pause') rows.push(['Reason', change.reason || 'no reason'], ['By', change.who || 'unknown']);
  const overlap = l?.overlap ?? r.checkpoint?.overlap;
  if (overlap && !overlap.done) rows.push(['Read again', `overlap: ${plural(overlap.dropped ?? 0, 'duplicate')} dropped`]);
  for (const note of r.notes ?? []) rows.push(['Note', note]);
  if (model.statusError && model.connected) rows.push(['Note', explain(model.statusError, 'reading the status from Redis and Kafka failed: ')]);
  const key = JSON.stringify([model.stream, rows, whyNot(model.stream, 'move')]);
  if (key === shownCause) return;
  shownCause = key;
  $('cause').hidden = rows.length === 0;
  $('cause').replaceChildren(...rows.flatMap(([name, text, code]) => [
    el('dt', null, name),
    el('dd', null, code ? el('span', { class: 'code' }, code) : null, ...(name === 'Try' ? remedy(text, act) : [text])),
  ]));
}

// remedy shows a hint: a button where this page can do it, a command to copy, or
// a sentence.
function remedy(hint, act) {
  const here = [[/\bresume\b/i, 'resume', 'Resume…'], [/\b(rewind|reset)\b/i, 'move', 'Move the cursor…']].find(([word]) => word.test(hint));
  const why = here ? whyNot(model.stream, here[1]) : '';
  return [
    ...(command.test(hint) ? copyable(hint, 'the hint') : [hint]),
    here ? el('button', { type: 'button', disabled: why !== '', title: why, onclick: () => act(here[1]) }, here[2]) : null,
  ];
}

export function renderFigures() {
  const r = report(model.stream);
  const l = r.live;
  const c = r.checkpoint;
  figure('lag', r.lag >= 0 ? (l?.caught_up ? '0 s' : duration(r.lag)) : '–', l?.caught_up ? (endDoubtful(r) ? 'to the end of what was read' : 'caught up') : remaining(r), 'not known');
  const pace = l?.state === 'running' && l.pace > 0 && !l.caught_up;
  figure('rate', l ? rate(l.rate) : '–', pace ? `${l.pace.toFixed(1)} × real time` : 'over 10 s');
  const events = l?.events ?? c?.events;
  figure('events', events === undefined ? '–' : count(events), `in ${plural(l?.pages ?? c?.pages ?? 0, 'page')}`);
  figure('dead', l ? count(l.dead_lettered) : '–', `${l?.dead_lettered > 0 ? `${percent(deadShare(l))} of events ` : ''}since the process started`);
  $('figure-dead').classList.toggle('is-bad', l?.dead_lettered > 0);
  figure('ahead', l ? bytes(l.prefetched_bytes) : '–', l ? plural(l.prefetched_pages, 'page') : '');
  const committed = instant(r.head?.at);
  figure('commit', committed ? ageSince(committed) : '–', committed ? `ago, entry ${place(r.head)}` : '', down(model.stream).length > 0 ? 'not known' : 'no commits');
  setText($('guarantee'), r.guarantee ?? '');
}

function remaining(r) {
  if (r.left > 0) return `caught up in ${duration(r.left)}`;
  return r.live ? 'behind the export' : 'age of the position';
}

// figure shows a value with a note; a value that is absent has another one.
function figure(name, value, note, absent = '') {
  const box = $(`figure-${name}`);
  setText(box.querySelector('.value'), value);
  box.classList.toggle('absent', value === '–');
  setText(box.querySelector('.note'), value === '–' ? absent : note);
}

const servers = [['api', 'Export API'], ['kafka', 'Kafka'], ['redis', 'Redis']];

export function renderServers(meter) {
  const dependencies = report(model.stream).live?.dependencies ?? {};
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

// mean is the average of a histogram, and says if it is of all streams together.
function mean(meter, noun, name) {
  const seconds = meter.mean(name, model.stream);
  return seconds === null ? [] : [`${noun} ${duration(seconds)}${meter.whole(`${name}_count`) ? ' (all streams)' : ''}`];
}

const parts = (...all) => all.flat().join(' · ');

// failed counts failures, where anything was tried.
function failed(meter, name, bad, noun) {
  const results = meter.change(name, model.stream, 'result');
  const sum = (keys) => keys.reduce((n, key) => n + (results.get(key) ?? 0), 0);
  return sum([...results.keys()]) > 0 ? plural(sum(bad), `failed ${noun}`) : [];
}

// What is measured of each server, in the last minute.
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
  const r = report(model.stream);
  const members = r.members ?? [];
  $('members-empty').hidden = members.length > 0;
  const kafka = down(model.stream).includes('kafka');
  setText($('members-empty'), membersUnknown(r) ? `Not known: ${kafka ? downText(model.stream, ['kafka']) : 'the group cannot be read'}.` : 'No known members.');
  fill($('members'), members.map((m) => el('li', null,
    el('span', { class: m.owner ? 'badge good' : 'badge' }, m.owner ? 'owner' : 'standby'),
    el('span', { class: 'mono' }, m.process || m.instance_id || m.client_id), el('span', { class: 'dim' }, m.host))));
}

const membersUnknown = (r) => r.members_known === false || (down(model.stream).includes('kafka') && !r.members);

export function renderPosition() {
  const { head } = report(model.stream);
  const position = instant(head?.position);
  setText($('position'), head ? `entry ${place(head)}` : down(model.stream).length > 0 ? 'not known' : 'no commits yet');
  $('position-time').replaceChildren(position ? time(position, `position ${clock(position, now())}`) : '');
  setText($('position-hash'), head?.cursor_hash ? `cursor ${head.cursor_hash}` : head ? 'no cursor: at the start of the export' : '');
}
