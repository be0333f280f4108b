// Backfills and replays: a list, and dialogs that start, resume and cancel them.

import { $, el, forbid, name, setText, toast } from './dom.js';
import { utc } from './dialogs.js';
import { count, duration, instant, plural } from './format.js';
import { model, whyNot } from './model.js';
import { Listing } from './panels.js';
import { ask, Steps } from './steps.js';

const paceSeconds = 300;

export class Jobs extends Listing {
  seen = new Map(); // by job: its progress over time
  running = false; // whether a job runs

  // actions sends the requests of the dialogs.
  constructor(actions) {
    super('jobs', 'No backfills or replays.');
    this.actions = actions;
    $('jobs-begin').addEventListener('click', () => this.begin());
    this.beginning = new Steps('job', {
      plan: (stream, fields) => this.plan(stream, fields), execute: (...planned) => this.execute(...planned),
      words: ['Show the plan', 'Start the job'], changed: chosen, remedy: (error) => this.remedy(error),
    });
  }

  // left is the remaining time of a job at the pace of the last minutes. Only windows with
  // events count: empty windows take no time.
  left(job) {
    const at = performance.now() / 1000;
    const seen = this.seen.get(job.id) ?? [];
    this.seen.set(job.id, seen);
    if (job.state !== 'running') seen.length = 0;
    seen.push({ at, worked: job.progress_with_events });
    while (at - seen[0].at > paceSeconds) seen.shift();
    if (job.state !== 'running' || job.progress === 1) return '';
    const made = job.progress_with_events - seen[0].worked;
    return made > 0 ? `, ${duration(Math.ceil((1 - job.progress) * (at - seen[0].at) / made))} left` : ', remaining time unknown';
  }

  list({ jobs, incomplete }) {
    this.running = (jobs ?? []).some((j) => j.state === 'running');
    const rest = incomplete ? [el('tr', null, el('td', { colspan: 5, class: 'trouble' }, `Incomplete: ${incomplete}`))] : [];
    this.show([...(jobs ?? []).map((j) => this.row(j)), ...rest], (jobs ?? []).length);
  }

  row(j) {
    const left = this.left(j);
    return el('tr', { title: j.reason ? `${j.reason}${j.who ? ` (${j.who})` : ''}` : null },
      el('td', { class: 'job' }, el('div', { class: 'mono' }, j.id), `${j.kind} of `, name(j.stream)),
      el('td', null, el('span', { class: 'badge' }, j.state)),
      el('td', { class: 'wide job' }, el('div', null, ...range(j).split(/(?<=–) /).flatMap((part) => [el('span', { class: 'whole' }, part), ' '])), 'to ', el('code', null, j.topic || '–')),
      el('td', { class: 'job' }, el('progress', { max: 1, value: Number(j.progress) || 0, 'aria-label': `Progress of ${j.id}` }),
        el('div', null, `${count(j.done)} of ${plural(j.windows, 'window')}${left}`), el('div', { class: 'dim' }, plural(j.events, 'event')),
        j.note ? el('div', { class: 'trouble' }, j.note) : null,
        j.trouble ? el('div', { class: 'trouble' }, j.trouble) : null),
      el('td', { class: 'end' }, el('span', { class: 'acts' },
        ['interrupted', 'waiting', 'paused'].includes(j.state) ? this.button(j, 'resume', 'Resume…') : null,
        ['running', 'interrupted', 'waiting', 'paused'].includes(j.state) ? this.button(j, 'cancel', 'Cancel…') : null)));
  }

  button(job, action, label) {
    return el('button', { type: 'button', class: 'quiet small', 'data-key': `${job.id} ${action}`, 'aria-label': `${label.replace('…', '')} ${job.id}`, onclick: () => this.change(job, action) }, label);
  }

  // follow shows whether a job can start now.
  follow() {
    const why = whyNot('job');
    forbid($('jobs-begin'), why);
    for (const button of $('jobs-rows').querySelectorAll('button')) forbid(button, why);
  }

  begin() {
    this.actions.unlocked('job', () => {
      $('job-form').reset();
      $('job-title').replaceChildren('Backfill or replay ', name(model.stream));
      this.beginning.open(model.stream);
    });
  }

  async plan(stream, fields) {
    const body = {
      stream, kind: fields.kind.value, from: fields.from.value === 'earliest' ? 'earliest' : utc(fields.from.value), to: utc(fields.until.value),
      windows: Number(fields.windows.value), allow_overlap: fields.overlap.checked, reason: fields.reason.value.trim(), execute: false,
    };
    const plan = await this.actions.act('api/v1/jobs', body);
    return { body, plan, rows: planRows(plan, body) };
  }

  async execute(stream, { body, plan }, confirm) {
    const job = await this.actions.act('api/v1/jobs', { ...body, execute: true, confirm, id: plan.id, plan_hash: plan.plan_hash });
    toast(`${job.kind} `, el('code', null, job.id), ' of ', name(stream), ' started.');
    this.actions.refreshed();
  }

  // remedy is the button for a rejected plan.
  remedy(error) {
    const fields = $('job-form').elements;
    if (error.status === 409 && this.beginning.planned) return { label: 'Plan again', act: this.beginning.again };
    if (error.status !== 409 || !error.hint.includes('allow_overlap')) return this.actions.signIn(error);
    return { label: 'Plan to publish it again', act: () => {
      fields.overlap.checked = true;
      this.beginning.again();
    } };
  }

  // change resumes or cancels a job, for a reason.
  change(job, action) {
    this.actions.unlocked('job', () => {
      const cancelling = action === 'cancel';
      $('hold-title').replaceChildren(cancelling ? `Cancel the ${job.kind} ` : `Resume the ${job.kind} `, name(job.id));
      setText($('hold-text'), cancelling ? 'The job ends for good. What it has published stays.' : 'The job continues in this process, without loss or duplicates.');
      $('hold-for').hidden = true;
      $('hold-reason').value = '';
      setText($('hold-submit'), cancelling ? 'Cancel the job' : 'Resume the job');
      const still = ask($('hold-dialog'), async () => {
        await this.actions.act(`api/v1/jobs/${encodeURIComponent(job.id)}/${action}`, { reason: $('hold-reason').value.trim(), execute: true });
        if (still()) $('hold-dialog').close();
        toast(`${job.kind} `, el('code', null, job.id), cancelling ? ' cancelled.' : ' resumed.');
        this.actions.refreshed();
      }, undefined, (error) => this.actions.signIn(error));
    });
  }
}

// chosen offers an overlap to a backfill only: a replay has a topic of its own.
function chosen(fields) {
  fields.overlap.disabled = fields.kind.value !== 'backfill';
  if (fields.overlap.disabled) fields.overlap.checked = false;
}

function planRows(plan, { reason }) {
  return [
    ['Job', `${plan.kind} ${plan.id}`], ['Range', range(plan)], ['Topic', plan.routes && plan.kind === 'backfill' ? `${plan.topic}, ${plan.routes}` : plan.topic], ['Windows', `${count(plan.windows)}, ${count(plan.parallel)} at a time`],
    ['Events', 'unknown until it runs'], // the API does not count events
    ['Requests', plan.rate_limit > 0 ? `at most ${plan.rate_limit} per second` : 'no limit'], ['Reason', reason],
    ...(plan.notes ?? []).map((note) => ['Note', note]),
  ];
}

const range = (job) => `${bound(job.from, 'the earliest event')} – ${bound(job.to, 'the start of the job')}`;

// bound is an end of a range, as a date at midnight; without a time, the earliest event.
function bound(value, absent) {
  const at = instant(value);
  return at && at.getTime() > 0 ? at.toISOString().slice(0, 16).replace('T', ' ').replace(' 00:00', '') : absent;
}
