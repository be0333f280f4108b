// The actions, each in a dialog with a reason; a move has two steps.

import { ApiError, getJSON, post, streamPath, token } from './api.js';
import { $, name, setText, toast } from './dom.js';
import { again, clock, instant, place, plural, sentence } from './format.js';
import { mayAct, mayRead, model, now, whyNot } from './model.js';
import { ask, Steps } from './steps.js';

// Actions are the dialogs. refreshed is called after a change of the stream, signedIn after a
// change of the token.
export class Actions {
  constructor({ refreshed, signedIn }) {
    this.refreshed = refreshed;
    this.signedIn = signedIn;
    for (const dialog of document.querySelectorAll('dialog')) {
      for (const button of dialog.querySelectorAll('[data-close]')) button.addEventListener('click', () => dialog.close());
    }
    this.moving = new Steps('move', {
      plan: (stream, fields) => this.planMove(stream, fields), execute: (...planned) => this.executeMove(...planned),
      words: ['Show the plan', 'Move the cursor'], changed: chosen, remedy: (error) => this.replan(error),
    });
  }

  help() { $('help-dialog').showModal(); }

  // unlocked calls next when the caller may act, and asks for the token first if necessary.
  unlocked(action, next) {
    const why = whyNot(action);
    if (why) toast(why);
    else if (mayAct()) next();
    else this.unlock(next);
  }

  unlock(next) {
    const input = $('token');
    input.value = '';
    const still = ask($('token-dialog'), async () => {
      const secret = input.value.trim();
      const session = await getJSON('api/v1/session', secret);
      if (!still()) return;
      if (!session.read || (mayRead() && !session.write)) throw new ApiError(401, session.name ? 'this token may only read' : 'invalid token', 'paste your token, or the content of HTTP_ADMIN_TOKEN_FILE');
      token.set(secret);
      input.value = '';
      $('token-dialog').close();
      this.signedIn(session);
      next?.();
    });
  }

  lock() {
    token.drop();
    this.signedIn(null);
  }

  // act posts an action, and drops a rejected token.
  async act(path, body) {
    try {
      return await post(path, body);
    } catch (error) {
      if (error.wrongToken) this.lock();
      throw error;
    }
  }

  pause() { this.unlocked('pause', () => this.hold('pause')); }

  resume() { this.unlocked('resume', () => this.hold('resume')); }

  // signIn is the remedy for a rejected token.
  signIn(error) { return error.wrongToken ? { label: 'Enter the token…', act: () => this.unlock() } : null; }

  hold(action) {
    const stream = model.stream;
    const pausing = action === 'pause';
    $('hold-title').replaceChildren(pausing ? 'Pause ' : 'Resume ', name(stream));
    setText($('hold-text'), pausing
      ? 'The stream commits the pages it has fetched and sends no further requests. The pause survives restarts.'
      : 'The stream resumes at its current position.');
    $('hold-for').hidden = !pausing;
    $('hold-reason').value = '';
    setText($('hold-submit'), pausing ? 'Pause' : 'Resume');
    const still = ask($('hold-dialog'), async () => {
      const body = { reason: $('hold-reason').value.trim() };
      if (pausing) body.for = $('hold-length').value;
      const answer = await this.act(streamPath(stream, action), body);
      accepted(answer);
      if (still()) $('hold-dialog').close();
      toast(name(stream), ` ${pausing ? 'paused' : 'resumed'} at entry ${place(answer)}, acknowledged by ${answer.by}.`);
      this.refreshed();
    }, undefined, (error) => this.signIn(error));
  }

  // move opens the first step, for an entry of the history or null.
  move(entry) {
    this.unlocked('move', () => {
      const form = $('move-form');
      form.reset();
      $('move-title').replaceChildren('Move the cursor of ', name(model.stream));
      if (entry) form.elements.entry.value = place(entry);
      this.moving.open(model.stream);
      (entry ? form.elements.reason : form.elements.to[0]).focus();
    });
  }

  // replan is the remedy if the stream was moved after the plan.
  replan(error) {
    return error.status === 409 && this.moving.planned ? { label: 'Plan again', act: this.moving.again } : this.signIn(error);
  }

  async planMove(stream, fields) {
    const body = { to: target(fields), reason: fields.reason.value.trim(), execute: false };
    const plan = await this.act(streamPath(stream, 'move'), body);
    return { body, plan, rows: planRows(plan, body), again: sentence(again(plan.repeats_min, plan.repeats_max, plan.repeats_unknown)) };
  }

  async executeMove(stream, { body, plan }, confirm) {
    const answer = await this.act(streamPath(stream, 'move'), { ...body, execute: true, confirm, base_epoch: plan.base_epoch });
    accepted(answer);
    toast(name(stream), ` moved to entry ${place(answer)}, acknowledged by ${answer.by}.`);
    this.refreshed();
  }
}

// chosen enables the fields of the chosen target.
function chosen(fields) {
  for (const field of ['entry', 'shift', 'datetime', 'event_time']) {
    fields[field].disabled = fields.to.value !== field;
    fields[field].required = fields.to.value === field;
  }
}

// accepted throws the owner's reason if it did not apply the request.
function accepted(answer) {
  if (!answer.applied) throw new ApiError(409, String(answer.detail ?? answer.error ?? 'request rejected'), String(answer.hint ?? ''));
}

// target reads the target of a move.
function target(fields) {
  switch (fields.to.value) {
    case 'entry': return { entry: fields.entry.value.trim() };
    case 'datetime':
    case 'event_time': return { [fields.to.value]: utc(fields[fields.to.value].value) };
    case 'shift': return { shift: -Math.abs(Number(fields.shift.value)) };
    case 'earliest': return { earliest: true };
    case 'current': return { current: true };
  }
  return { latest: true };
}

// utc reads a time as UTC unless it has a zone: the page shows all times in UTC.
export function utc(value) {
  const text = value.trim().replace(' ', 'T');
  const when = new Date(/T[\d:.]+$/.test(text) ? `${text}Z` : text);
  if (Number.isNaN(when.getTime())) throw new ApiError(400, 'invalid date or time', 'enter for example 2026-11-20 13:00:00');
  return when.toISOString().replace('.000Z', 'Z');
}

function planRows(plan, { reason }) {
  const rows = [['From', whereText(plan.from)], ['To', whereText(plan.to)]];
  if (plan.repeats_max !== 0) rows.push(['Repeats', `${plan.repeats_pages > 0 ? `${plural(plan.repeats_pages, 'page')}, ` : ''}published again${plan.other_ids ? '' : ' with the same ids'}`]);
  rows.push(['Reason', reason], ['Guarantee', plan.guarantee ?? 'unknown']);
  for (const note of plan.notes ?? []) rows.push(['Note', note]);
  return rows;
}

// whereText describes an endpoint of the plan: the bridge's text, or the entry and its time.
function whereText(end) {
  if (typeof end === 'string') return end;
  const all = [];
  const position = instant(end?.position);
  if (end?.text) all.push(end.text);
  else if (end?.seq !== undefined) all.push(`entry ${place(end)}`, position ? `position ${clock(position, now())}` : 'position unknown');
  if (end?.events !== undefined) all.push(plural(end.events, 'event'));
  if (end?.cursor_hash) all.push(`cursor ${end.cursor_hash}`);
  return all.join(' · ') || 'unknown';
}
