/** Talking to the server: every change is sent until it is acknowledged, and only counts once. */

const token = document.querySelector('meta[name="csrf-token"]')?.content ?? '';
const WAITS = [400, 800, 1600, 3200, 6400]; // milliseconds between attempts; the last one repeats
const PATIENCE = 12_000;

/** A name for one change: sending it again writes nothing. */
export const newKey = () =>
  crypto.randomUUID?.() ??
  [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');

/** The server understood and refused. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const until = (milliseconds) =>
  new Promise((resolve) => {
    const go = () => {
      clearTimeout(timer);
      window.removeEventListener('online', go);
      resolve();
    };
    const timer = setTimeout(go, milliseconds);
    window.addEventListener('online', go);
  });

const post = (path, body) =>
  fetch(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-CSRF-Token': token },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE),
    keepalive: true, // a change on its way outlives the page
  });

async function attempt(path, body) {
  let answer = await post(path, body);
  if (answer.status === 401) {
    // A link opened in another tab ends this session a moment before the new cookie arrives.
    await until(WAITS[0]);
    answer = await post(path, body);
  }
  if (answer.ok) return answer.json();
  if (answer.status >= 500 || answer.status === 429) throw new Error(`server: ${answer.status}`);
  const { error = 'The server refused this.' } = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, error);
}

/** Send, and again after every failure of the network or server; it calls `onTrouble(tries)`. */
export async function send(path, body, onTrouble = () => {}) {
  for (let tries = 0; ; tries++) {
    try {
      return await attempt(path, body);
    } catch (error) {
      if (error instanceof Refused) throw error;
      onTrouble(tries + 1);
      await until(WAITS[Math.min(tries, WAITS.length - 1)]);
    }
  }
}

/** Send once, and never mind. */
export async function whisper(path, body) {
  try {
    return await attempt(path, body);
  } catch (error) {
    if (error instanceof Refused) throw error;
    return null;
  }
}

/** Send while the page goes away; a beacon carries no headers, so the token is in the body. */
export function farewell(path, body) {
  const blob = new Blob([JSON.stringify({ ...body, csrf: token })], { type: 'application/json' });
  navigator.sendBeacon(path, blob);
}
