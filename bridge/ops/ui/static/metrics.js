// The figures of the last minute, from /metrics.

const line = /^(\w+)\{(.*)\} (\S+)$/;
const label = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const window = 60_000;

// parse reads the counters and sums of Prometheus's text format into
// name -> [{labels, value}].
export function parse(text) {
  const all = new Map();
  for (const row of text.split('\n')) {
    const found = line.exec(row);
    if (!found || found[1].endsWith('_bucket')) continue;
    const labels = {};
    for (const [, name, value] of found[2].matchAll(label)) labels[name] = value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
    const name = found[1].replace(/^exportbridge_/, '');
    if (!all.has(name)) all.set(name, []);
    all.get(name).push({ labels, value: Number(found[3]) });
  }
  return all;
}

// Meter keeps the readings of a minute, and computes the changes.
export class Meter {
  readings = [];

  add(text, at) {
    this.readings.push({ at, all: parse(text) });
    while (this.readings.length > 2 && this.readings[1].at < at - window) this.readings.shift();
  }

  get ready() { return this.readings.length > 0; }

  // whole reports whether a metric is of all streams together: its stream has no name.
  whole(name) { return this.readings.at(-1)?.all.get(name)?.[0].labels.stream === ''; }

  // change is the increase of a stream's series, by a label; of all streams if the metric is
  // of all streams together. With a single reading, or after a restart, it is the total since
  // the start.
  change(name, stream, by) {
    const of = this.whole(name) ? '' : stream;
    const last = this.readings.at(-1)?.all;
    const first = this.readings.length > 1 ? this.readings[0].all : undefined;
    const sum = (all) => {
      const totals = new Map();
      for (const { labels, value } of all?.get(name) ?? []) {
        if (labels.stream !== of) continue;
        const key = by ? labels[by] : '';
        totals.set(key, (totals.get(key) ?? 0) + value);
      }
      return totals;
    };
    const before = sum(first);
    const grown = new Map();
    for (const [key, value] of sum(last)) {
      const base = before.get(key) ?? 0;
      grown.set(key, value >= base ? value - base : value);
    }
    return grown;
  }

  // mean is the average of a histogram in seconds, null without observations.
  mean(name, stream) {
    const n = this.change(`${name}_count`, stream).get('') ?? 0;
    return n > 0 ? this.change(`${name}_sum`, stream).get('') / n : null;
  }

  // stages are the stages of a page, with mean time and share of the total.
  stages(stream) {
    const sums = this.change('stage_duration_seconds_sum', stream, 'stage');
    const counts = this.change('stage_duration_seconds_count', stream, 'stage');
    const total = [...sums.values()].reduce((a, b) => a + b, 0);
    return ['wait', 'fetch', 'decode', 'publish', 'checkpoint']
      .filter((stage) => counts.get(stage) > 0)
      .map((stage) => ({ stage, mean: sums.get(stage) / counts.get(stage), share: total > 0 ? sums.get(stage) / total : 0 }));
  }
}
