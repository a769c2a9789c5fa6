/** News as they come, and whether the server is there at all. */

const SILENT = 15_000; // milliseconds: it gives a sign of life every five seconds
const AGAIN = 2000; // before a connection that was refused is tried again

/**
 * Hear of what `handlers` are named after. `onLost` is called whenever the connection fails, with
 * whether that is silence, and `onBack` once there is one again. Returns what ends it.
 */
export function listen(handlers, { onLost, onBack }) {
  let stream = null;
  let heard = 0;
  let gone = false;

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
    for (const [kind, act] of Object.entries(handlers)) {
      stream.addEventListener(kind, (event) => {
        alive();
        act(JSON.parse(event.data));
      });
    }
  };
  open();
  const timer = setInterval(() => {
    const silent = Date.now() - heard;
    const ended = stream.readyState === EventSource.CLOSED; // after a refusal it does not try again
    if (silent > SILENT) lost(true);
    if (silent > SILENT || (ended && silent > AGAIN)) open();
  }, 1000);
  return () => {
    clearInterval(timer);
    stream.close();
  };
}
