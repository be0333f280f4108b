// What the page knows, and which of it counts.

import { capital, instant } from './format.js';

export const model = {
  session: null,
  stream: '', // the one that is shown
  live: new Map(), // stream -> what this process says, from the live connection
  full: new Map(), // stream -> what Redis and Kafka know too, asked for now and then
  deadLetters: '', // which are most frequent
  statusError: null, // why the last such question failed
  connected: false,
  refused: null, // why the live connection was
  heard: 0, // when something came last, by the browser's clock
  skew: 0, // the server's clock minus the browser's
  at: Date.now(), // the server's time of the last refresh
};

// now is the server's time when the page was refreshed last: whatever is drawn
// is of this one moment.
export const now = () => model.at;

// refreshed begins another moment.
export function refreshed() { model.at = Date.now() + model.skew; }

// report is the status of a stream, with the lag as of now. A process that
// stands by knows little: then what the owner told Redis counts.
export function report(stream) {
  const own = model.live.get(stream);
  const full = model.full.get(stream);
  const elsewhere = Boolean(own?.live && !own.live.leader && full?.live?.leader);
  const best = own?.live && !elsewhere ? own : (full ?? own ?? {});
  const all = { ...full, ...best, elsewhere };
  return { ...all, ...behind(all), head: head(all) };
}

// behind is how many seconds a stream is behind, and how many it takes to catch
// up; -1 where that is not known.
function behind({ live, checkpoint }) {
  if (live?.caught_up) return { lag: 0, left: 0 };
  const position = instant(live ? live.position : checkpoint?.position_time);
  if (!position) return { lag: -1, left: -1 };
  const lag = Math.max(0, (now() - position.getTime()) / 1000);
  return { lag, left: live?.state === 'running' && live.pace > 1 ? Math.ceil(lag / (live.pace - 1)) : -1 };
}

// head is the newest commit, as an entry of the history; null where none is
// known.
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
export const down = (stream) => Object.keys(serverNames).filter((name) => failing(stream, name));

const failing = (stream, name) => [report(stream).live, model.live.get(stream)?.live]
  .map((l) => l?.dependencies?.[name]).find((d) => d?.up === false);

// trouble is what a server does that is not up: one that answers is not down.
export const trouble = (d) => d.trouble || 'is down';

// downText is "Redis is down", or "Redis is down and the export API refuses the key".
export function downText(stream, servers) {
  return capital(servers.map((name) => `${serverNames[name]} ${trouble(failing(stream, name))}`).join(' and '));
}

// whyNot says why an action cannot work now; '' is that it can.
export function whyNot(stream, action) {
  const away = down(stream);
  const r = report(stream);
  if (!mayAct() && !model.session?.needs_token) return 'Read-only: HTTP actions are restricted to localhost unless HTTP_ADMIN_TOKEN_FILE is set.';
  if (action === 'job') return away.includes('kafka') ? `Actions wait: ${downText(stream, ['kafka'])}, and jobs are kept in Kafka.` : '';
  if (away.includes('redis')) return `Actions wait: ${downText(stream, ['redis'])}, and requests reach the stream through Redis.`;
  if (away.includes('kafka') && (r.live?.mode ?? r.checkpoint?.mode) !== 'at-least-once') return `Actions wait: ${downText(stream, ['kafka'])}, and changes are committed to Kafka.`;
  if (action === 'pause' && !r.head && model.full.has(stream) && !model.statusError) return 'Pausing requires a first commit.';
  return '';
}
