// Everything that acts: each in a dialog, with a reason, and a move in two
// steps.

import { ApiError, getJSON, post, token } from './api.js';
import { $, el, name, setText, toast } from './dom.js';
import { again, clock, instant, place, plural } from './format.js';
import { mayAct, model, now, whyNot } from './model.js';

// ask opens a dialog and answers its form's submit with act, one at a time. What
// act throws is shown in the dialog, which stays open then, with a button for
// what remedy says. Once act is done, ready decides whether the form can be
// submitted again.
function ask(dialog, act, ready = () => true, remedy = () => null) {
  const form = dialog.querySelector('form');
  const problem = dialog.querySelector('.problem');
  const submit = form.querySelector('[type=submit]');
  showProblem(problem, null);
  submit.disabled = !ready();
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    dialog.setAttribute('aria-busy', 'true');
    showProblem(problem, null);
    try {
      await act();
    } catch (error) {
      showProblem(problem, error, remedy(error));
    } finally {
      submit.disabled = !ready();
      dialog.removeAttribute('aria-busy');
    }
  };
  dialog.showModal();
}

// showProblem shows an error with its hint, or with a button that does what the
// hint says. A hint for the command line is no help here.
function showProblem(box, error, remedy) {
  box.hidden = error === null;
  box.replaceChildren();
  if (error === null) return;
  box.append(el('strong', null, sentence(error.message)));
  if (remedy) box.append(el('button', { type: 'button', onclick: remedy.act }, remedy.label));
  else if (error.hint && !/(^|\s)--\w/.test(error.hint)) box.append(el('span', null, sentence(error.hint)));
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;

// Actions are the dialogs. refreshed is called after anything that changed the
// stream, signedIn after the token did.
export class Actions {
  constructor({ refreshed, signedIn }) {
    this.refreshed = refreshed;
    this.signedIn = signedIn;
    for (const dialog of document.querySelectorAll('dialog')) {
      for (const button of dialog.querySelectorAll('[data-close]')) button.addEventListener('click', () => dialog.close());
    }
    $('move-form').addEventListener('input', () => this.moveChanged());
  }

  help() { $('help-dialog').showModal(); }

  // unlocked calls next once the caller may act, after asking for the token if
  // need be.
  unlocked(action, next) {
    const why = whyNot(model.stream, action);
    if (why) toast(why);
    else if (mayAct()) next();
    else this.unlock(next);
  }

  unlock(next) {
    const input = $('token');
    input.value = '';
    ask($('token-dialog'), async () => {
      const session = await getJSON('api/v1/session', input.value.trim());
      if (!session.write) throw new ApiError(401, 'invalid token', 'paste the content of HTTP_ADMIN_TOKEN_FILE');
      token.set(input.value.trim());
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

  // act posts, and forgets a token that is refused.
  async act(stream, action, body) {
    try {
      return await post(stream, action, body);
    } catch (error) {
      if (error.status === 401) this.lock();
      throw error;
    }
  }

  pause() { this.unlocked('pause', () => this.hold('pause')); }

  resume() { this.unlocked('resume', () => this.hold('resume')); }

  // signIn is what helps against a token that is refused.
  signIn(error) { return error.status === 401 ? { label: 'Enter the token…', act: () => this.unlock() } : null; }

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
    ask($('hold-dialog'), async () => {
      const body = { reason: $('hold-reason').value.trim() };
      if (pausing) body.for = $('hold-length').value;
      const answer = await this.act(stream, action, body);
      accepted(answer);
      $('hold-dialog').close();
      toast(name(stream), ` ${pausing ? 'paused' : 'resumed'} at entry ${place(answer)}, acknowledged by ${answer.by}.`);
      this.refreshed();
    }, undefined, (error) => this.signIn(error));
  }

  // move opens the first step, with an entry of the history or none.
  move(entry) {
    this.unlocked('move', () => this.plan(model.stream, entry));
  }

  plan(stream, entry) {
    const form = $('move-form');
    form.reset();
    this.planned = null;
    $('move-title').replaceChildren('Move the cursor of ', name(stream));
    setText($('move-name'), stream);
    if (entry) {
      form.elements.to.value = 'entry';
      form.elements.entry.value = place(entry);
    }
    this.moveStep(1);
    this.moveChanged();
    ask($('move-dialog'), () => (this.planned ? this.execute(stream) : this.preview(stream)), () => this.mayMove(), (error) => this.replan(error, stream));
    (entry ? form.elements.reason : form.elements.to[0]).focus();
  }

  // replan helps where the stream was moved after the plan was made.
  replan(error, stream) {
    if (error.status !== 409 || !this.planned) return this.signIn(error);
    return { label: 'Plan again', act: async () => {
      const problem = $('move-problem');
      showProblem(problem, null);
      await this.preview(stream).catch((failed) => showProblem(problem, failed, this.replan(failed, stream)));
    } };
  }

  moveStep(step) {
    $('move-where').hidden = step !== 1;
    $('move-plan').hidden = step !== 2;
    $('move-back').hidden = step !== 2;
    setText($('move-step'), `Step ${step} of 2`);
    setText($('move-submit'), step === 1 ? 'Show the plan' : 'Move the cursor');
    $('move-submit').classList.toggle('danger', step === 2);
    $('move-back').onclick = () => {
      this.planned = null;
      this.moveStep(1);
      this.moveChanged();
      showProblem($('move-problem'), null);
    };
  }

  // mayMove is true for a plan, and for the move once the stream's name is typed.
  mayMove() { return !this.planned || $('move-form').elements.confirm.value === this.planned.stream; }

  // moveChanged enables what the choice needs.
  moveChanged() {
    const form = $('move-form');
    const to = form.elements.to.value;
    for (const name of ['entry', 'datetime', 'shift']) {
      form.elements[name].disabled = to !== name;
      form.elements[name].required = to === name;
    }
    form.elements.confirm.required = Boolean(this.planned);
    $('move-submit').disabled = !this.mayMove();
  }

  async preview(stream) {
    const body = { to: target($('move-form').elements), reason: $('move-form').elements.reason.value.trim(), execute: false };
    const plan = await this.act(stream, 'move', body);
    this.planned = { stream, body, plan };
    setText($('move-again'), sentence(again(plan.repeats_min, plan.repeats_max)));
    $('move-plan-rows').replaceChildren(...planRows(plan, body));
    $('move-form').elements.confirm.value = '';
    this.moveStep(2);
    this.moveChanged();
    $('move-form').elements.confirm.focus();
  }

  async execute(stream) {
    const { body, plan } = this.planned;
    const answer = await this.act(stream, 'move', { ...body, execute: true, confirm: $('move-form').elements.confirm.value, base_epoch: plan.base_epoch });
    accepted(answer);
    $('move-dialog').close();
    toast(name(stream), ` moved to entry ${place(answer)}, acknowledged by ${answer.by}.`);
    this.refreshed();
  }
}

// accepted throws what an owner said who did not apply a request.
function accepted(answer) {
  if (!answer.applied) throw new ApiError(409, String(answer.detail ?? answer.error ?? 'request rejected'), String(answer.hint ?? ''));
}

// target reads where to.
function target(fields) {
  switch (fields.to.value) {
    case 'entry': return { entry: fields.entry.value.trim() };
    case 'datetime': return { datetime: utc(fields.datetime.value) };
    case 'shift': return { shift: -Math.abs(Number(fields.shift.value)) };
    case 'earliest': return { earliest: true };
  }
  return { latest: true };
}

// utc takes what the field holds as UTC: the page shows no other time.
function utc(value) {
  const when = new Date(`${value.trim().replace(' ', 'T')}Z`);
  if (Number.isNaN(when.getTime())) throw new ApiError(400, 'invalid date or time', 'enter for example 2026-11-20 13:00:00');
  return when.toISOString().replace('.000Z', 'Z');
}

function planRows(plan, { reason }) {
  const rows = [['From', whereText(plan.from)], ['To', whereText(plan.to)]];
  if (plan.repeats_max !== 0) rows.push(['Repeats', `${plan.repeats_pages > 0 ? `${plural(plan.repeats_pages, 'page')}, ` : ''}published again with the same ids`]);
  rows.push(['Reason', reason], ['Guarantee', plan.guarantee ?? 'unknown']);
  for (const note of plan.notes ?? []) rows.push(['Note', note]);
  return rows.flatMap(([name, text]) => [el('dt', null, name), el('dd', null, text)]);
}

// whereText describes an end of the plan: in the bridge's words, or as a place
// with its time.
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
