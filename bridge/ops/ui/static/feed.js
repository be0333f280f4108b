// The live connection. EventSource sends no token, so the page reads the events from the body
// of a fetch. It reconnects after a disconnect, and when no event arrives for some seconds.

import { send } from './api.js';

const silence = 8_000; // the bridge sends briefs at least every three seconds
const retryMost = 15_000;

// Feed calls on.briefs, on.detail, on.log and on.sample with each event, on.connected when the
// connection begins or ends, and on.refused with the error of a refused connection.
export class Feed {
  up = false;
  stream = '';
  stop = new AbortController();
  wake = () => {};

  constructor(on) {
    this.on = on;
  }

  // show reconnects for the detail and the samples of a stream; '' is no stream.
  show(stream) {
    this.stream = stream;
    this.stop.abort();
    this.stop = new AbortController();
    this.wake();
  }

  connected(now) {
    if (now === this.up) return;
    this.up = now;
    this.on.connected(now);
  }

  async follow() {
    let retry = 1_000;
    for (;;) {
      const { stream, stop } = this;
      let timer;
      const watch = () => {
        clearTimeout(timer);
        timer = setTimeout(() => stop.abort(), silence);
      };
      try {
        watch();
        const answer = await send(`api/v1/events?stream=${encodeURIComponent(stream)}`, { signal: stop.signal });
        for await (const [name, data] of events(answer.body)) {
          if (stop !== this.stop) break;
          if (name === 'briefs' || name === 'detail') { // each connection sends the old log lines first
            retry = 1_000;
            watch();
            this.connected(true);
          }
          this.on[name]?.(data);
        }
      } catch (error) {
        if (error.status) this.on.refused(error);
      }
      clearTimeout(timer);
      stop.abort();
      if (stop !== this.stop) continue; // show ended it
      this.stop = new AbortController();
      this.connected(false);
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, retry);
      });
      retry = Math.min(2 * retry, retryMost);
    }
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
      const found = /^event: (.*)\ndata: (.*)$/.exec(text); // a ping does not match
      if (found) yield [found[1], JSON.parse(found[2])];
    }
  }
}
