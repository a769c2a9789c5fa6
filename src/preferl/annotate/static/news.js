/** News as they come, and whether the server is there at all. */

const SILENT = 15_000; // milliseconds: it sends a heartbeat every five seconds
const AGAIN = 2000; // before a connection that was refused is tried again

/**
 * Hear of what `handlers` are named after. `onLost` is called whenever the connection fails, with
 * whether that is silence, and `onBack` once there is one again. Returns what ends it.
 *
 * The server keeps a few streams for each person and ends the oldest. A page that has to give way
 * rests until somebody turns to it; if all of them came back at once, they would take turns forever.
 */
export function listen(handlers, { onLost, onBack }) {
  let stream = null;
  let heard = 0;
  let gone = false;
  let resting = false;

  const alive = () => {
    heard = Date.now();
    if (!gone) return;
    gone = false;
    onBack();
  };
  const lost = (silent) => {
    gone = true;
    onLost(silent);
  };
  const open = () => {
    stream?.close();
    heard = Date.now();
    stream = new EventSource('/api/stream');
    stream.addEventListener('open', alive);
    stream.addEventListener('here', alive);
    stream.addEventListener('error', () => lost(false));
    stream.addEventListener('elsewhere', () => {
      resting = true;
      stream.close();
    });
    for (const [kind, act] of Object.entries(handlers)) {
      stream.addEventListener(kind, (event) => {
        alive();
        act(JSON.parse(event.data));
      });
    }
  };
  const wake = () => {
    if (!resting || document.hidden) return;
    resting = false;
    open();
  };
  open();
  window.addEventListener('focus', wake);
  document.addEventListener('visibilitychange', wake);
  const timer = setInterval(() => {
    if (resting) return;
    const silent = Date.now() - heard;
    const ended = stream.readyState === EventSource.CLOSED; // after a refusal it does not try again
    if (silent > SILENT) lost(true);
    if (silent > SILENT || (ended && silent > AGAIN)) open();
  }, 1000);
  return () => {
    clearInterval(timer);
    window.removeEventListener('focus', wake);
    document.removeEventListener('visibilitychange', wake);
    stream.close();
  };
}
