// The live connection. EventSource sends no token, so the events are read from a
// plain answer, with a new connection after a cut, and where nothing comes any more.

import { send } from './api.js';

const silence = 8_000; // the status comes at least every second
const retryMost = 15_000;

// follow calls on.status, on.log and on.sample with what comes, on.connected with
// whether the connection stands, and on.refused with why it was refused.
export async function follow(on) {
  let retry = 1_000;
  let up = false;

  const connected = (now) => {
    if (now === up) return;
    up = now;
    on.connected(now);
  };
  for (;;) {
    const stop = new AbortController();
    let timer;
    const watch = () => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), silence);
    };
    try {
      watch();
      const answer = await send('api/v1/events', { signal: stop.signal });
      for await (const [name, data] of events(answer.body)) {
        if (name === 'status') { // the old log lines come on every connection
          retry = 1_000;
          watch();
          connected(true);
        }
        on[name]?.(data);
      }
    } catch (error) {
      if (error.status) on.refused(error);
    }
    clearTimeout(timer);
    stop.abort();
    connected(false);
    await new Promise((resolve) => { setTimeout(resolve, retry); });
    retry = Math.min(2 * retry, retryMost);
  }
}

// events yields the name and the value of each event in an answer.
async function* events(body) {
  let rest = '';
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const whole = (rest + value).split('\n\n');
    rest = whole.pop();
    for (const text of whole) {
      const found = /^event: (.*)\ndata: (.*)$/.exec(text); // one line each; none of a ping
      if (found) yield [found[1], JSON.parse(found[2])];
    }
  }
}
