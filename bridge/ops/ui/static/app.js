// The page of a running bridge: wires the parts in the other files.

import { getJSON, getText, streamPath, token } from './api.js';
import { Chart, Series, times } from './charts.js';
import { Actions } from './dialogs.js';
import { $, setText } from './dom.js';
import { Feed } from './feed.js';
import { compact, duration, explain, rate, span } from './format.js';
import { History } from './history.js';
import { Jobs } from './jobs.js';
import { Meter } from './metrics.js';
import { mayRead, model, now, refreshed, report } from './model.js';
import * as overview from './overview.js';
import { Letters, Log, Samples } from './panels.js';
import { Streams } from './streams.js';

const meter = new Meter();
let series = new Series(); // of the shown stream
const charts = [
  new Chart($('chart-lag'), 'lag', { format: duration, tick: span, ticks: times }),
  new Chart($('chart-rate'), 'rate', { format: rate, tick: compact, clipped: $('clipped') }),
];
const samples = new Samples();
const log = new Log();
const letters = new Letters();
const streams = new Streams();
const actions = new Actions({ refreshed: refreshAll, signedIn });
const jobs = new Jobs(actions);
const history = new History((entry) => actions.move(entry));

function render() {
  if (!model.session) return;
  overview.renderStreams(select);
  renderSession();
  const none = model.session.streams.length === 0;
  const all = model.stream === '';
  $('empty').hidden = !none || !mayRead();
  $('page').hidden = $('footer').hidden = none;
  if (none) return;
  $('page').classList.toggle('overview', all);
  $('guarantee').parentElement.hidden = all;
  if (all) {
    streams.render();
    jobs.follow();
    return;
  }
  streams.trouble();
  overview.renderState((action) => actions[action]());
  overview.renderFigures();
  overview.renderServers(meter);
  overview.renderMembers();
  overview.renderPosition();
  history.follow();
  jobs.follow();
  for (const chart of charts) chart.draw(series);
}

function renderSession() {
  const { version, write, needs_token: needs } = model.session;
  setText($('version'), version);
  const button = $('unlock');
  button.disabled = !write && !needs;
  button.hidden = write && !needs;
  setText(button, write ? 'Lock' : needs ? 'Unlock…' : 'Read-only');
  button.title = write ? 'Forget the token' : needs ? 'Actions require the token' : 'HTTP actions are restricted to localhost';
}

// renderLink shows whether the page is live.
function renderLink() {
  const lost = !model.connected && (model.heard > 0 || model.refused !== null);
  $('link').className = `link is-${model.connected ? 'live' : lost ? 'lost' : 'waiting'}`;
  setText($('link'), model.connected ? 'Live' : lost ? 'Reconnecting' : 'Connecting');
  $('lost').hidden = !lost;
  if (lost) {
    const then = model.heard > 0 ? `Last update ${duration((Date.now() - model.heard) / 1000)} ago; the data on this page is from then.` : '';
    setText($('lost-text'), `${model.refused ? explain(model.refused) : ''} ${then} Reconnecting automatically.`.trim());
  }
  document.body.classList.toggle('stale', lost);
}

function select(stream) {
  if (stream === model.stream || (stream === '' && model.session.streams.length === 1)) return;
  model.stream = stream;
  model.detail = null;
  series = new Series();
  seen = {};
  feed.show(stream);
  if (stream !== chosenStream(model.session.streams)) window.history.pushState(null, '', `#${encodeURIComponent(stream)}`);
  history.clear();
  letters.clear();
  samples.clear();
  render();
  refreshAll();
}

function chosenStream(streams) {
  let wanted = '';
  try {
    wanted = decodeURIComponent(location.hash.slice(1));
  } catch { /* somebody's hand-made address */ }
  if (streams.includes(wanted)) return wanted;
  return streams.length === 1 ? streams[0] : '';
}

async function loadSession() {
  const asked = Date.now();
  let session;
  try {
    session = await getJSON('api/v1/session');
  } catch (error) {
    if (!error.wrongToken || !token.get()) throw error;
    token.drop(); // the token is no longer valid
    session = await getJSON('api/v1/session');
  }
  model.skew = Date.parse(session.now) - (asked + Date.now()) / 2 || 0;
  takeSession(session);
}

const reloadSession = () => loadSession().catch(() => {}); // renderLink shows that the bridge does not answer

function takeSession(session) {
  model.session = { ...session, streams: session.streams ?? [] };
  const stream = model.session.streams.includes(model.stream) ? model.stream : chosenStream(model.session.streams);
  if (stream !== model.stream) select(stream);
  else render();
}

function signedIn(session) {
  if (session) takeSession(session);
  else loadSession().then(() => { if (!mayRead()) location.reload(); }).catch(() => {});
}

let seen = {};

// loadChanged reads history and dead letters at once when the detail shows that they have
// changed.
function loadChanged() {
  const { live } = report();
  const was = seen;
  seen = { known: true, epoch: live?.place.epoch, dead: live?.dead_lettered };
  if (!was.known) return; // select is reading them
  if (seen.epoch !== was.epoch) loadHistory();
  if (seen.dead !== was.dead) loadLetters();
}

// forStream loads a part of the shown stream. It drops an answer that arrives after another
// stream was selected.
async function forStream(path, show, fail) {
  const stream = model.stream;
  if (!stream) return;
  try {
    const answer = await getJSON(streamPath(stream, path));
    if (stream === model.stream) show(answer);
  } catch (error) {
    if (stream === model.stream) fail(error);
  }
}

const loadHistory = () => (history.busy ? undefined : forStream(`history?limit=${$('history-limit').value}`, (answer) => {
  series.seed(answer.entries ?? [], now() / 1000);
  history.show(answer);
}, (error) => history.fail(error)));

const loadLetters = () => forStream('dead-letters?limit=50', (answer) => letters.list(answer), (error) => letters.fail(error));

async function loadJobs() {
  try {
    jobs.list(await getJSON('api/v1/jobs'));
    jobs.follow();
  } catch (error) {
    jobs.fail(error);
  }
}

async function loadMetrics() {
  if (model.stream === '') return;
  try {
    meter.add(await getText('metrics'), Date.now());
    overview.renderStages(meter);
  } catch { /* the figures of before stay */ }
}

const tasks = [];

// every runs load at once, on demand, and every ms milliseconds while the page is visible.
function every(ms, load) {
  const task = { timer: 0, run: null };
  task.run = async () => {
    clearTimeout(task.timer);
    if (!document.hidden) await load();
    clearTimeout(task.timer);
    task.timer = setTimeout(task.run, ms);
  };
  tasks.push(task);
  return task;
}

function refreshAll() {
  for (const task of tasks) task.run();
}

const feed = new Feed({
  briefs({ all, briefs, removed = [] }) {
    model.heard = Date.now();
    refreshed();
    if (all) model.briefs.clear();
    for (const brief of briefs) model.briefs.set(brief.stream, brief);
    for (const stream of removed) model.briefs.delete(stream);
    const { streams } = model.session;
    if (streams.length !== model.briefs.size || streams.some((stream) => !model.briefs.has(stream))) reloadSession();
    render();
  },
  detail(detail) {
    if (detail.stream !== model.stream) return;
    model.heard = Date.now();
    refreshed();
    model.detail = detail;
    const { live, elsewhere, lag } = report();
    if (live && !elsewhere) series.add(now() / 1000, lag < 0 ? null : lag, live.rate);
    render();
    loadChanged();
  },
  log: (entry) => log.add(entry),
  sample: (sample) => samples.add(sample),
  connected(up) {
    model.connected = up;
    if (up) model.refused = null;
    renderLink();
    if (up && model.heard > 0) { // reconnected: another version may answer
      reloadSession();
      refreshAll();
    }
  },
  refused(error) {
    model.refused = error;
    renderLink();
    if (error.status === 404) reloadSession(); // the stream was removed
  },
});

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  localStorage.setItem('theme', root.dataset.theme);
  restyle();
}

function restyle() {
  for (const chart of charts) chart.restyle();
  render();
  history.drawBars();
}

function search() {
  select('');
  $('streams-search').focus();
}

const everywhere = {
  '?': () => actions.help(),
  t: toggleTheme,
  o: () => select(''),
  '/': search,
  '[': () => neighbour(-1),
  ']': () => neighbour(1),
};

const shortcuts = {
  ...everywhere,
  p: () => ($('resume').hidden ? actions.pause() : actions.resume()),
  m: () => actions.move(history.chosen ? history.current() : null),
  h: () => $('slider').focus(),
  f: () => $('samples-type').focus(),
  e: () => samples.hold(!samples.held),
};

function neighbour(by) {
  const { streams: all } = model.session;
  if (all.length > 0) select(all[(Math.max(all.indexOf(model.stream), by < 0 ? 0 : -1) + by + all.length) % all.length]);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.target.closest('input:not([type=range]):not([type=checkbox]), textarea, select')) return;
  const keys = model.stream ? shortcuts : everywhere;
  if (!model.session?.streams.length || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
}

function start() {
  $('theme').addEventListener('click', toggleTheme);
  $('help').addEventListener('click', () => actions.help());
  $('move').addEventListener('click', () => actions.move(history.chosen ? history.current() : null));
  $('unlock').addEventListener('click', () => (model.session.write ? actions.lock() : actions.unlock()));
  $('history-limit').addEventListener('change', () => {
    history.choose(null);
    loadHistory();
  });
  $('letters-refresh').addEventListener('click', loadLetters);
  document.addEventListener('keydown', onKey);
  window.addEventListener('popstate', () => select(chosenStream(model.session.streams)));
  document.addEventListener('visibilitychange', () => { if (!document.hidden) refreshAll(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', restyle);
  for (const [name, load] of [['history', loadHistory], ['letters', loadLetters], ['jobs', loadJobs]]) $(`${name}-retry`).addEventListener('click', load);
  setInterval(renderLink, 1000);
  every(10_000, loadHistory);
  every(60_000, loadLetters);
  every(15_000, loadJobs);
  every(5_000, () => (jobs.running ? loadJobs() : undefined));
  every(5_000, loadMetrics);
  feed.follow();
}

async function begin() {
  try {
    await loadSession();
    if (!mayRead()) {
      $('loading-text').textContent = 'Reading requires a token. Reload the page to enter it.';
      actions.unlock(begin);
      return;
    }
    start();
    refreshAll();
  } catch (error) {
    $('loading-text').textContent = `${explain(error)} Retrying.`;
    setTimeout(begin, 3000);
    return;
  }
  $('loading').hidden = true;
}

begin();
