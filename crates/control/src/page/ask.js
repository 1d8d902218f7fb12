// What the page asks the service, with a token where the listener wants one.

const KEY = "tidemill-token";
const PATIENCE_MS = 10000;
let token = remembered();

/// The listener wants a token, or another one.
export class NeedsToken extends Error {}
/// The service answered, and says no.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function remembered() {
  try {
    return sessionStorage.getItem(KEY) || "";
  } catch {
    return ""; // A browser that keeps nothing: it is asked for again after a reload.
  }
}

export function setToken(text) {
  token = text;
  try {
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  } catch { /* as above */ }
}

export const hasToken = () => token !== "";

async function call(path, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  if (answer.status === 401) throw new NeedsToken();
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, body.error || `${path}: status ${answer.status}`);
  }
  return answer;
}

/// The answer to a verb, with the moment that it came; null if the service has no such verb.
export async function ask(path) {
  try {
    const answer = await call(path, AbortSignal.timeout(PATIENCE_MS));
    const value = await answer.json();
    return { value, at: performance.now() };
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

/// The lines of an answer that goes on, as objects, until it ends or nothing has come for too long.
export async function* lines(path, silence_ms) {
  const ending = new AbortController();
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => ending.abort(), silence_ms);
  };
  try {
    wait();
    const answer = await call(path, ending.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      wait();
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part) yield JSON.parse(part);
    }
  } finally {
    clearTimeout(timer);
    ending.abort();
  }
}
