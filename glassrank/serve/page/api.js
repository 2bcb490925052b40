// What the page asks the service for. Nothing else knows its addresses.

const KEY = "glassrank.key";
const KEPT = 40;
const BUSY = [429, 503];
const MOST_MS = 3000; // that a second try is waited for

export class Refused extends Error {
  constructor(message, status, retryAfter = null) {
    super(message);
    this.status = status;
    this.waitMs = Math.min(1000 * Number(retryAfter ?? 1), MOST_MS);
  }
}

async function ask(path, body, signal) {
  const headers = { Accept: "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  const request = { headers, signal };
  if (body) {
    headers["Content-Type"] = "application/json";
    Object.assign(request, { method: "POST", body: JSON.stringify(body) });
  }
  let answer;
  try {
    answer = await fetch(path, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The service cannot be reached; is it still running?", 0);
  }
  if (answer.ok) return answer.json();
  let message = `The service answered with status ${answer.status}.`;
  try {
    message = (await answer.json()).message ?? message;
  } catch {
    // Not one of its own sentences; the status has to do.
  }
  throw new Refused(message, answer.status, answer.headers.get("Retry-After"));
}

export function keepKey(key) {
  sessionStorage.setItem(KEY, key);
}

export function getInfo() {
  return ask("info");
}

// A service that has too much to do refuses, and says when to come again: the page does so once.
export async function search(form, signal) {
  try {
    return await ask("search", form, signal);
  } catch (error) {
    if (!BUSY.includes(error.status)) throw error;
    await new Promise((done) => setTimeout(done, error.waitMs));
    signal.throwIfAborted();
    return ask("search", form, signal);
  }
}

// Explanations stay the same as long as the index does: going back shows the same one at once.
const kept = new Map();

export function forget() {
  kept.clear();
}

export async function explain(form, signal) {
  const name = JSON.stringify(form);
  if (!kept.has(name)) {
    const answer = await ask("explain", form, signal);
    if (kept.size >= KEPT) kept.delete(kept.keys().next().value);
    kept.set(name, answer);
  }
  return kept.get(name);
}

// A report may still be in the making: whoever asked is told so, until it is there.
const reports = new Map();
const MOST_TRIES = 200;

export function getReport(name, tell) {
  if (!reports.has(name)) {
    const coming = awaited(name, tell);
    reports.set(name, coming);
    coming.catch(() => reports.delete(name));
  }
  return reports.get(name);
}

async function awaited(name, tell) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask(name);
    } catch (error) {
      if (!BUSY.includes(error.status) || tries === MOST_TRIES) throw error;
      tell(error.message);
      await new Promise((done) => setTimeout(done, error.waitMs));
    }
  }
}

// Only the last of several questions is answered: what is stale is dropped, and resolves to null.
export function latest() {
  let running = null;
  return async (question) => {
    running?.abort();
    const own = new AbortController();
    running = own;
    try {
      const answer = await question(own.signal);
      return own.signal.aborted ? null : answer;
    } catch (error) {
      if (own.signal.aborted) return null;
      throw error;
    }
  };
}
