// The state of the page, and what follows from it.

import { capital, instant } from './format.js';

export const model = {
  session: null,
  stream: '', // the shown one; '' is the overview
  briefs: new Map(), // stream -> its brief
  detail: null, // the last detail of the shown stream
  deadLetters: '', // the most frequent kind
  connected: false,
  refused: null, // the error of the refused live connection
  heard: 0, // when the last event arrived, by the browser's clock
  skew: 0, // the server's clock minus the browser's
  at: Date.now(), // the server's time of the last refresh
};

// now is the server's time of the last refresh: everything on the page is as of now.
export const now = () => model.at;

// refreshed sets now to the current time.
export function refreshed() { model.at = Date.now() + model.skew; }

// report is the detail of the shown stream; empty until the first one arrives.
export function report() {
  const all = model.detail ?? {};
  return { ...all, lag: all.lag_seconds ?? -1, left: all.caught_up_in_seconds ?? -1, head: head(all) };
}

// head is the newest commit, as an entry of the history; null if unknown.
function head({ live: l, checkpoint: c }) {
  if (instant(l?.last_commit)) return { ...l.place, kind: 'data', at: l.last_commit, events: l.events, pages: l.pages, cursor_hash: l.cursor_hash, position: l.position };
  if (!c) return null;
  return { epoch: c.epoch, seq: c.seq, kind: 'data', at: c.written_at, events: c.events, pages: c.pages, cursor_hash: c.cursor_hash, position: c.position_time };
}

export const mayRead = () => model.session?.read ?? true;

export const mayAct = () => Boolean(model.session?.write);

export const serverNames = { api: 'the export API', kafka: 'Kafka', redis: 'Redis' };

// down lists the servers that are not up: those of the stream's owner, or of this
// process, which sends the requests.
export const down = () => Object.keys(serverNames).filter((name) => failing(name));

const failing = (name) => [model.detail?.live?.dependencies, model.detail?.servers].map((all) => all?.[name]).find((d) => d?.up === false);

// trouble describes the failure of a server: a server that answers is not down.
export const trouble = (d) => d.trouble || 'is down';

// downText is "Redis is down", or "Redis is down and the export API refuses the key".
export function downText(servers) {
  return capital(servers.map((name) => `${serverNames[name]} ${trouble(failing(name))}`).join(' and '));
}

// whyNot is why an action cannot work now; '' if it can.
export function whyNot(action) {
  const away = down();
  const r = report();
  if (!mayAct() && !model.session?.needs_token) return 'Read-only: HTTP actions are restricted to localhost unless HTTP_ADMIN_TOKEN_FILE is set.';
  if (action === 'job') return away.includes('kafka') ? `Actions wait: ${downText(['kafka'])}, and jobs are kept in Kafka.` : '';
  if (away.includes('redis')) return `Actions wait: ${downText(['redis'])}, and requests reach the stream through Redis.`;
  if (away.includes('kafka') && (r.live?.mode ?? r.checkpoint?.mode) !== 'at-least-once') return `Actions wait: ${downText(['kafka'])}, and changes are committed to Kafka.`;
  if (action === 'pause' && !r.head && r.asked) return 'Pausing requires a first commit.';
  return '';
}
