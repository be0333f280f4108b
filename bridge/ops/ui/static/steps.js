// Requests in dialogs: one at a time; changes of a stream take two steps.

import { $, el, setText, toast } from './dom.js';
import { remedyOf, sentence } from './format.js';

const asked = new WeakMap(); // dialog -> the last act of ask

// ask opens a dialog and calls act when its form is submitted, one call at a time. The dialog
// shows an error of act and stays open, with the button that remedy returns. After act, ready
// decides whether the form can be submitted again. ask returns a function that tells whether
// the dialog is still open for this act: a late answer must not change the next one.
export function ask(dialog, act, ready = () => true, remedy = () => null) {
  const form = dialog.querySelector('form');
  const problem = dialog.querySelector('.problem');
  const submit = form.querySelector('[type=submit]');
  asked.set(dialog, act);
  const still = () => dialog.open && asked.get(dialog) === act;
  showProblem(problem, null);
  dialog.removeAttribute('aria-busy');
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
      if (still()) showProblem(problem, error, remedy(error));
      else toast(sentence(error.message));
    }
    if (asked.get(dialog) !== act) return;
    submit.disabled = !ready();
    dialog.removeAttribute('aria-busy');
  };
  dialog.showModal();
  return still;
}

// showProblem shows an error with its hint, or with a button that does what the hint says. It
// omits hints for the command line.
function showProblem(box, error, remedy) {
  box.hidden = error === null;
  box.replaceChildren();
  if (error === null) return;
  box.append(el('strong', null, sentence(error.message)));
  if (remedy) box.append(el('button', { type: 'button', onclick: remedy.act }, remedy.label));
  else if (remedyOf(error)) box.append(el('span', null, remedyOf(error)));
}

// Steps is a dialog with two steps: the plan, and its execution after the stream's name was
// typed. The ids of its elements begin with a prefix. plan requests a plan, execute executes
// it, words are the texts of the submit button in each step.
export class Steps {
  planned = null;

  constructor(prefix, { plan, execute, words, changed = () => {}, remedy = () => null }) {
    Object.assign(this, { prefix, plan, execute, words, changed, remedy });
    this.form = this.part('form');
    this.form.addEventListener('input', () => this.update());
    this.part('back').addEventListener('click', () => this.back());
  }

  part(name) { return $(`${this.prefix}-${name}`); }

  // open shows the first step of a prefilled form.
  open(stream) {
    this.stream = stream;
    setText(this.part('name'), stream);
    this.back();
    this.still = ask(this.part('dialog'), () => this.submit(), () => this.ready(), (error) => this.remedy(error));
  }

  back() {
    this.planned = null;
    showProblem(this.part('problem'), null);
    this.step(1);
  }

  step(n) {
    this.part('where').hidden = n !== 1;
    this.part('plan').hidden = n !== 2;
    this.part('back').hidden = n !== 2;
    setText(this.part('step'), `Step ${n} of 2`);
    setText(this.part('submit'), this.words[n - 1]);
    this.part('submit').classList.toggle('danger', n === 2);
    this.update();
  }

  // ready is true in the first step, and in the second after the stream's name was typed.
  ready() { return !this.planned || this.form.elements.confirm.value === this.stream; }

  update() {
    this.form.elements.confirm.required = Boolean(this.planned);
    this.part('submit').disabled = !this.ready();
    this.changed(this.form.elements);
  }

  async submit() {
    const { still } = this;
    if (!this.planned) return this.preview();
    await this.execute(this.stream, this.planned, this.form.elements.confirm.value);
    return still() ? this.part('dialog').close() : undefined;
  }

  async preview() {
    const { still } = this;
    const planned = await this.plan(this.stream, this.form.elements);
    if (!still()) return;
    this.planned = planned;
    if (planned.again) setText(this.part('again'), planned.again);
    this.part('rows').replaceChildren(...this.planned.rows.flatMap(([name, text]) => [el('dt', null, name), el('dd', null, text)]));
    this.form.elements.confirm.value = '';
    this.step(2);
    this.form.elements.confirm.focus();
  }

  // again plans again, for the button of an error.
  again = async () => {
    const { still } = this;
    const problem = this.part('problem');
    showProblem(problem, null);
    await this.preview().catch((error) => still() && showProblem(problem, error, this.remedy(error)));
  };
}
