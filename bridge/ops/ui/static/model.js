// What the page knows, and which of it counts.

export const model = {
  session: null,
  stream: '', // the one that is shown
  live: new Map(), // stream -> what this process says, from the live connection
  full: new Map(), // stream -> what Redis and Kafka know too, asked for now and then
  statusError: null, // why the last such question failed
  connected: false,
  heard: 0, // when something came last, by the browser's clock
  skew: 0, // the server's clock minus the browser's
};

// now is the server's time.
export const now = () => Date.now() + model.skew;

// report is the status of a stream. A process that stands by knows little: then
// what the owner told Redis counts.
export function report(stream) {
  const own = model.live.get(stream);
  const full = model.full.get(stream);
  const elsewhere = Boolean(own?.live && !own.live.leader && full?.live?.leader);
  const best = own?.live && !elsewhere ? own : (full ?? own ?? {});
  return { ...full, ...best, elsewhere };
}

export const mayAct = () => Boolean(model.session?.write);
