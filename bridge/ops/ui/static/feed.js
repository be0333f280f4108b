// The live connection. EventSource reconnects by itself after a cut, but not
// after an answer other than 200, and it does not notice a connection on which
// nothing comes any more. Both are seen to here.

import { refusal } from './api.js';

const silence = 8_000; // the status comes at least every second
const retryMost = 15_000;

// follow calls on.status, on.log and on.sample with what comes, on.connected with
// whether the connection stands, and on.refused with why it was refused, which
// EventSource does not tell.
export function follow(on) {
  let source;
  let timer;
  let retry = 1_000;
  let up = false;

  const connected = (now) => {
    if (now === up) return;
    up = now;
    on.connected(now);
  };
  const alive = () => {
    retry = 1_000;
    watch(silence);
    connected(true);
  };
  const open = () => {
    source?.close();
    source = new EventSource('api/v1/events');
    for (const name of ['status', 'log', 'sample']) {
      source.addEventListener(name, (event) => {
        if (name === 'status') alive(); // the old log lines come on every connection
        on[name](JSON.parse(event.data));
      });
    }
    source.addEventListener('error', () => {
      connected(false);
      if (source.readyState !== EventSource.CLOSED) return;
      again();
      refusal('api/v1/events').then((error) => { if (error && !up) on.refused(error); });
    });
    watch(silence);
  };
  const again = () => {
    watch(retry);
    retry = Math.min(2 * retry, retryMost);
  };
  const watch = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      connected(false);
      open();
    }, ms);
  };
  open();
}
