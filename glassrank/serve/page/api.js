// Requests to the service. Nothing else knows its endpoints.

const KEY = "glassrank.key";
const KEPT = 40;
const BUSY = [429, 503];
const MAX_WAIT_MS = 3000; // before a second try

export class ServiceError extends Error {
  constructor(message, status, retryAfter = null) {
    super(message);
    this.status = status;
    this.waitMs = Math.min(1000 * Number(retryAfter ?? 1), MAX_WAIT_MS);
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
  let response;
  try {
    response = await fetch(path, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError("The service cannot be reached; is it still running?", 0);
  }
  if (response.ok) return response.json();
  let message = `The service responded with status ${response.status}.`;
  try {
    message = (await response.json()).message ?? message;
  } catch {
    // No error response of the service: keep the status.
  }
  throw new ServiceError(message, response.status, response.headers.get("Retry-After"));
}

export function keepKey(key) {
  sessionStorage.setItem(KEY, key);
}

export function getInfo() {
  return ask("info");
}

// Under load the service refuses a request and says when to try again: the page tries once more.
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

// Nobody waits for it: a click that is not noted must not keep the reader from anything.
export function sendFeedback(form) {
  ask("feedback", form).catch(() => {});
}

// Explanations stay the same as long as the index does: going back shows the same one at once.
const kept = new Map();

export function forget() {
  kept.clear();
}

export async function explain(form, signal) {
  const name = JSON.stringify(form);
  if (!kept.has(name)) {
    const response = await ask("explain", form, signal);
    if (kept.size >= KEPT) kept.delete(kept.keys().next().value);
    kept.set(name, response);
  }
  return kept.get(name);
}

// A report may be pending: `tell` shows the message of the service until it is there.
const reports = new Map();
const MAX_TRIES = 200;

export function getReport(name, tell) {
  if (!reports.has(name)) {
    const coming = waitForReport(name, tell);
    reports.set(name, coming);
    coming.catch(() => reports.delete(name));
  }
  return reports.get(name);
}

async function waitForReport(name, tell) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask(name);
    } catch (error) {
      if (!BUSY.includes(error.status) || tries === MAX_TRIES) throw error;
      tell(error.message);
      await new Promise((done) => setTimeout(done, error.waitMs));
    }
  }
}

// Runs only the last of several requests: a stale one is aborted, and resolves to null.
export function latest() {
  let running = null;
  return async (question) => {
    running?.abort();
    const own = new AbortController();
    running = own;
    try {
      const response = await question(own.signal);
      return own.signal.aborted ? null : response;
    } catch (error) {
      if (own.signal.aborted) return null;
      throw error;
    }
  };
}
