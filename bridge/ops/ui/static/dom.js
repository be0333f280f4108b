// Building and changing elements. The server's values are inserted as text: the page parses
// nothing as HTML.

export const $ = (id) => document.getElementById(id);

// el builds an element. A property "on..." is a listener, any other an
// attribute; null and false leave it out.
export function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// setText changes a node's text only if it differs, to keep selections and not to disturb
// screen readers.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// fill replaces the children, and restores the focus to the child with the same data-key.
export function fill(parent, children) {
  const active = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren(...children);
  if (active) parent.querySelector(`[data-key="${CSS.escape(active)}"]`)?.focus({ preventScroll: true });
}

// Folds keeps the keys of the parts that the reader has opened.
export class Folds {
  open = new Set();

  // button opens and closes; render draws what has changed.
  button(key, label, render) {
    return el('button', {
      type: 'button', class: 'quiet small fold', 'data-key': `fold ${key}`, 'aria-label': label, 'aria-expanded': String(this.open.has(key)),
      onclick: () => {
        if (!this.open.delete(key)) this.open.add(key);
        render();
      },
    });
  }
}

// runs groups neighbours with the same key; null differs from every key.
export function runs(list, keyOf) {
  const all = [];
  let last = null;
  for (const one of list) {
    const key = keyOf(one);
    if (key !== null && key === last) all.at(-1).push(one);
    else all.push([one]);
    last = key;
  }
  return all;
}

// time is a <time> in UTC, with local time on hover. A line breaks only between date and time.
export function time(when, text) {
  const words = text.split(' ').flatMap((word, i) => [i > 0 && ' ', el('span', null, word)]);
  return el('time', { datetime: when.toISOString(), title: when.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'long', hourCycle: 'h23' }) }, ...words);
}

// name marks a stream's name within a sentence.
export const name = (stream) => el('code', { class: 'name' }, stream);

// forbid disables a button for a reason, which it shows on hover; '' enables the button.
export function forbid(button, why) {
  button.disabled = why !== '';
  if (button.title !== why) button.title = why;
}

// copyable is a command with a button that copies it.
export const copyable = (text, what) => [el('code', null, text), copyButton(text, what)];

// copyButton copies a text, and confirms it.
function copyButton(text, what) {
  const button = el('button', { type: 'button', class: 'quiet small', 'aria-label': `Copy ${what}` }, 'Copy');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Not allowed'; // plain http on another host has no clipboard
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
  return button;
}

let toastTimer;

// toast shows a message for some seconds.
export function toast(...parts) {
  const node = $('toast');
  node.replaceChildren(...parts);
  node.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { node.hidden = true; }, 6000);
}
