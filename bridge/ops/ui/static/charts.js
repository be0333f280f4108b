// Lag and rate over the last hour, first from the history, then from the live status.

import { el, setText } from './dom.js';

/* global uPlot */

const keep = 3600; // seconds
const least = 120; // minimum range of a chart, in seconds
const average = 10; // seconds over which the live rate is averaged
const lost = 5; // seconds without a live figure before a gap is drawn
const sparse = 60; // seconds between two commits after which the lag is unknown

// times are the possible steps of a time axis, in seconds.
export const times = [0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000];

// Series is the last hour of one stream's figures.
export class Series {
  at = [];
  lag = [];
  rate = [];
  seeded = false;

  // seed inserts the history before the first live figure. now is in seconds.
  seed(entries, now) {
    if (this.seeded) return;
    this.seeded = true;
    const first = this.at[0] ?? now;
    const old = entries.toReversed();
    const at = [];
    const lag = [];
    const rate = [];
    let j = 0;
    for (const entry of old) {
      const when = Date.parse(entry.at) / 1000;
      while (Date.parse(old[j + 1]?.at) / 1000 <= when - average) j++;
      if (when <= at.at(-1) || when >= first || when < now - keep) continue;
      const before = old.slice(j).find((e) => e.epoch === entry.epoch); // counts of different epochs cannot be compared
      const took = when - Date.parse(before.at) / 1000;
      const position = Date.parse(entry.position) / 1000;
      if (at.length > 0 && when - at.at(-1) > sparse) { // nothing was committed: the lag is unknown
        at.push(at.at(-1) + 1, when - 1);
        lag.push(null, null);
        rate.push(0, 0);
      }
      at.push(when);
      lag.push(position > 0 ? Math.max(0, when - position) : null);
      rate.push(took > 0 ? Math.max(0, entry.events - before.events) / took : null);
    }
    const last = at.at(-1);
    if (first - last > least / 8) { // nothing was committed since
      at.push(last + 1, first - 0.001);
      lag.push(null, null);
      rate.push(0, 0);
    }
    this.at.unshift(...at);
    this.lag.unshift(...lag);
    this.rate.unshift(...rate);
  }

  add(at, lag, rate) {
    const last = this.at.at(-1);
    if (at <= last) return;
    if (at - last > lost) {
      this.at.push(last + 0.001);
      this.lag.push(null);
      this.rate.push(null);
    }
    this.at.push(at);
    this.lag.push(lag);
    this.rate.push(rate);
    while (this.at[0] < at - keep) {
      this.at.shift();
      this.lag.shift();
      this.rate.shift();
    }
  }
}

const hour = (seconds) => `${new Date(seconds * 1000).toISOString().slice(11, 19)}Z`;

// colour is the value of a CSS variable, for the canvas.
function colour(name, opacity = 1) {
  const probe = el('span');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return opacity === 1 ? value : value.replace('rgb(', 'rgba(').replace(')', `, ${opacity})`);
}

// alone are single figures between two gaps, which no line shows.
function alone(plot, i, show, gaps) {
  const data = plot.data[i];
  return data.flatMap((value, n) => (value !== null && (data[n - 1] ?? null) === null && (data[n + 1] ?? null) === null ? [n] : []));
}

// usualTop is the top of a scale for the usual values: one peak must not flatten all others.
export function usualTop(values) {
  const some = values.filter((v) => v > 0).sort((a, b) => a - b);
  const most = some.at(-1) ?? 0;
  const usual = 3 * (some[Math.floor(0.75 * some.length)] ?? 0);
  return some.length >= 20 && most > 2 * usual ? usual : most;
}

// Chart draws one figure of a Series into a box.
export class Chart {
  // format formats a value. ticks are the possible steps of the axis, by default those of
  // numbers. clipped is the element that names a peak above the scale; without it, the scale
  // includes every peak.
  constructor(box, figure, { format, tick = format, ticks, clipped }) {
    Object.assign(this, { box, figure, format, tick, ticks, clipped });
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(box);
  }

  size() { return { width: Math.max(120, this.box.clientWidth), height: this.box.clientHeight }; }

  // restyle discards the drawing after a change of colours.
  restyle() {
    this.plot?.destroy();
    this.plot = undefined;
  }

  draw(series) {
    const values = series[this.figure];
    const data = [series.at, values];
    const most = values.reduce((a, b) => Math.max(a, b), 0);
    this.top = this.clipped ? usualTop(values) : most;
    if (this.clipped) setText(this.clipped, most > this.top ? `▲ peak ${this.format(most)} at ${hour(series.at[values.indexOf(most)])}, off the scale` : '');
    this.box.classList.toggle('none', series.at.length < 2);
    if (this.plot) this.plot.setData(data);
    else this.plot = new uPlot(this.options(), data, this.box);
  }

  options() {
    const axis = { stroke: colour('--muted'), font: '11px system-ui, sans-serif', grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
    return {
      ...this.size(),
      padding: [8, 16, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 } },
      hooks: { setCursor: [(plot) => this.point(plot)], draw: [(plot) => this.mark(plot)] },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), 'UTC'),
      scales: {
        x: { range: (_, min, max) => (max ? [Math.min(min, max - least), max] : [Date.now() / 1000 - least, Date.now() / 1000]) },
        y: { range: () => [0, Math.max(1, this.top * 1.15)] },
      },
      axes: [
        { ...axis, size: 22, space: 64, incrs: [60, 120, 300, 600, 900, 1800], values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toISOString().slice(11, 16)) },
        { ...axis, size: 48, space: 28, values: (_, ticks) => ticks.map((t) => this.tick(t)), ...(this.ticks && { incrs: this.ticks }) },
      ],
      series: [{}, { stroke: colour('--accent'), fill: colour('--accent', 0.12), width: 1.5, points: { size: 3, filter: alone }, spanGaps: false }],
    };
  }

  // mark draws a triangle where values are above the scale.
  mark(plot) {
    const top = Math.max(1, this.top * 1.15);
    const size = 4 * devicePixelRatio;
    plot.ctx.fillStyle = colour('--warn');
    plot.data[1].forEach((value, i) => {
      if (value <= top) return;
      const x = plot.valToPos(plot.data[0][i], 'x', true);
      plot.ctx.beginPath();
      plot.ctx.moveTo(x, plot.bbox.top);
      plot.ctx.lineTo(x - size, plot.bbox.top + 2 * size);
      plot.ctx.lineTo(x + size, plot.bbox.top + 2 * size);
      plot.ctx.fill();
    });
  }

  // point shows the value under the pointer.
  point(plot) {
    const i = plot.cursor.idx;
    const value = i === null || i === undefined ? null : plot.data[1][i];
    this.box.dataset.at = value === null ? '' : `${this.format(value)} at ${hour(plot.data[0][i])}`;
  }
}
