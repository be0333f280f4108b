// Numbers, times and durations for people.

const integer = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

export const count = (n) => integer.format(n);

// plural is "1 event", "2 events".
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;

// rate is events per second, with one decimal below 10.
export const rate = (n) => (n > 0 && n < 10 ? n.toFixed(1) : count(n));

export function duration(seconds) {
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${pad(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${pad(Math.floor((s % 3600) / 60))} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// age is a duration that grows while the page shows it.
export const age = (seconds) => (seconds < 1 ? 'under 1 s' : duration(seconds));

const short = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });

// compact is a count for the ticks of a chart: 3K, 1.5M.
export const compact = (n) => short.format(n);

// span is a duration in one unit, for the ticks of a chart.
export function span(seconds) {
  if (seconds === 0) return '0';
  for (const [size, unit] of [[86400, 'd'], [3600, 'h'], [60, 'min']]) {
    if (seconds >= size) return `${Number((seconds / size).toFixed(1))} ${unit}`;
  }
  return `${Number(seconds.toFixed(1))} s`;
}

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  if (n < 1024 ** 2) return `${(n / 1024).toFixed(1)} KiB`;
  return `${(n / 1024 ** 2).toFixed(1)} MiB`;
}

const pad = (n) => String(n).padStart(2, '0');

// instant reads a time of the server: RFC 3339, or milliseconds since the epoch. An absent,
// zero or invalid time is null.
export function instant(value) {
  if (!value) return null;
  const when = new Date(value);
  return Number.isNaN(when.getTime()) || when.getUTCFullYear() < 1970 ? null : when;
}

// clock is the time of day in UTC, with the date unless it is today's.
export function clock(when, now) {
  const iso = when.toISOString();
  const day = iso.slice(0, 10);
  const hour = `${iso.slice(11, 19)}Z`;
  return day === new Date(now).toISOString().slice(0, 10) ? hour : `${day} ${hour}`;
}

export const place = (p) => `${p.epoch}.${p.seq}`;

// again says how many events a move publishes again: the number, its known bounds, or why it
// is unknown. A null bound is unknown.
export function again(least, most = least, why = '') {
  if (most === 0) return 'no event comes again';
  if (least === null) return `how many events come again is not known${why && `: ${why}`}`;
  if (least === most) return `${plural(least, 'event')} ${least === 1 ? 'comes' : 'come'} again`;
  if (most === null) return `at least ${plural(least, 'event')} come again`;
  return least > 0 ? `${count(least)} to ${plural(most, 'event')} come again` : `at most ${plural(most, 'event')} come again`;
}

// command matches a hint that is a command line.
export const command = /^(exportbridge|kafka-[a-z-]+\.sh|redis-cli)\b/;

export const capital = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;

export function sentence(text) {
  const begun = command.test(text) ? `Run ${text}` : capital(text);
  return /[.!?]$/.test(text) ? begun : `${begun}.`;
}

// remedyOf is an error's hint, unless the hint is for the command line or for a request's
// body.
export const remedyOf = ({ hint }) => (hint && !/(^|\s)--\w|"\w+":/.test(hint) ? sentence(hint) : '');

// explain describes an error and its remedy in sentences.
export const explain = (error, begin = '') => `${sentence(begin + error.message)} ${remedyOf(error)}`.trim();
