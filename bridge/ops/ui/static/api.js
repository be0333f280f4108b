// Requests to the bridge. Addresses are relative, so that the page also works below a
// proxy's prefix.

const tokenKey = 'exportbridge-token';

export const token = {
  get: () => sessionStorage.getItem(tokenKey),
  set: (value) => sessionStorage.setItem(tokenKey, value),
  drop: () => sessionStorage.removeItem(tokenKey),
};

// ApiError is a failed request, with the server's message. own is false if a proxy answered.
export class ApiError extends Error {
  constructor(status, message, hint, own = true) {
    super(message);
    Object.assign(this, { status, hint, own });
  }

  get wrongToken() { return this.own && (this.status === 401 || this.status === 429); }
}

const readTimeout = 15_000;
const actTimeout = 60_000; // the stream's owner acknowledges an action between two batches

// send is fetch with the token. It throws an ApiError unless the request succeeds.
export async function send(path, options) {
  const headers = { ...options.headers };
  const secret = options.token ?? token.get();
  if (secret) headers.Authorization = `Bearer ${secret}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'omit' });
  } catch (error) {
    const slow = error.name === 'TimeoutError';
    throw new ApiError(0, slow ? 'request timed out' : 'the bridge is unreachable', slow
      ? 'check the state before you retry: the request may still be applied'
      : 'check that the process is running at this address');
  }
  if (!response.ok) throw await problem(response);
  return response;
}

// foreign has the hints for a proxy's answers, by status.
const foreign = {
  401: 'reload the page to sign in to the proxy',
  403: 'check the access rules of the proxy',
  429: 'wait a minute and retry: the proxy limits requests',
};

async function problem(response) {
  const { status } = response;
  try {
    const { error, hint } = await response.json();
    if (error) return new ApiError(status, String(error), String(hint ?? ''));
  } catch { /* a proxy's page, not an answer of ours */ }
  const hint = foreign[status] ?? (status >= 500 ? 'check that the bridge runs and that the proxy reaches it' : 'check the proxy');
  return new ApiError(status, `HTTP status ${status}, not from the bridge`, hint, false);
}

export async function getJSON(path, secret) {
  const response = await send(path, { token: secret, signal: AbortSignal.timeout(readTimeout) });
  return response.json();
}

export async function getText(path) {
  const response = await send(path, { signal: AbortSignal.timeout(readTimeout) });
  return response.text();
}

// post requests an action.
export async function post(path, body) {
  const response = await send(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(actTimeout),
  });
  return response.json();
}

export const streamPath = (stream, rest) => `api/v1/streams/${encodeURIComponent(stream)}/${rest}`;
