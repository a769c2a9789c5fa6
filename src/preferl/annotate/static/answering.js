/** The page on which pairs are answered: one query after the other, until there are no more. */

import { Clip } from './clip.js';
import { Dialogs } from './dialogs.js';
import { listen } from './news.js';
import { Panel } from './panel.js';
import { Player } from './player.js';
import { Ratings } from './ratings.js';
import { visit } from './storage.js';
import { transport } from './transport.js';
import { Refused, farewell, newKey, send, whisper } from './wire.js';

const byId = (id) => document.getElementById(id);
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const settings = document.body.dataset;
const STATES = ['pair', 'waiting', 'done', 'ended', 'paused', 'unqualified', 'signed-out', 'loading'];
const AHEAD = 2; // queries held at a time: the one shown and the one to come
const FLASH = 140; // milliseconds for which the choice stays visible
const SPOKEN = {
  left: 'A is better',
  right: 'B is better',
  equal: 'equal',
  cannot_tell: 'cannot tell',
  skip: 'skipped for now',
};

const player = new Player([byId('canvas-a'), byId('canvas-b')]);
const dialogs = new Dialogs();
const panel = new Panel();
const ratings = new Ratings({ announce, notice, refused });
transport(player);

let queries = []; // what this page holds, the first one is shown
let shown = null; // the query on the screen
let busy = false; // an answer is on its way
let failed = false; // the clips of this pair cannot be shown
let waitingSince = null; // in milliseconds, while there are no clips
let remark = ''; // shown until the next answer, in place of what to do next
const clips = new Map(); // address -> Clip
const seen = new Set(); // pairs that were watched to the end, for undo

window.preferl = {
  frames: () => ({ left: player.drawn[0], right: player.drawn[1], time: player.time }),
  player,
};

// ---------------------------------------------------------------- what is on the screen

function announce(words) {
  byId('announcement').textContent = words;
}

function state(name) {
  for (const each of STATES) byId(each).hidden = each !== name;
  document.body.dataset.state = name;
  if (name !== 'pair') player.clear();
  if (name === 'waiting') waitingSince ??= performance.now();
  if (name === 'pair' && waitingSince !== null) {
    const seconds = Math.round((performance.now() - waitingSince) / 1000);
    byId('last-wait').textContent = `The last wait took ${seconds} s.`;
    waitingSince = null;
  }
}

function notice(words, kind = 'quiet') {
  byId('notice').textContent = words;
  byId('notice').dataset.kind = kind;
  byId('notice').hidden = !words;
}

const pairOf = (query) => `${query.left} ${query.right}`;

function clip(address) {
  if (!clips.has(address)) {
    const made = new Clip(address);
    clips.set(address, made);
    // One that failed is tried anew when it is needed next.
    made.whole.catch(() => clips.get(address) === made && clips.delete(address));
  }
  return clips.get(address);
}

/** Keep the clips of the queries at hand, and let those of others go. */
function prune() {
  const needed = new Set(queries.flatMap((query) => [query.left, query.right]));
  for (const [address, each] of clips) {
    if (!needed.has(address)) {
      each.close();
      clips.delete(address);
    }
  }
}

async function show(query) {
  if (shown?.token === query.token) return prefetch();
  shown = query;
  failed = false;
  state('pair');
  byId('pair').setAttribute('aria-busy', 'true');
  byId('task').textContent = query.task && `Task: ${query.task}`;
  byId('task').hidden = !query.task;
  ratings.show(query);
  const pair = [clip(query.left), clip(query.right)];
  const [a, b] = pair;
  byId('pair').classList.toggle('fresh', !a.frames[0] || !b.frames[0]);
  player.clear(); // a key that comes before the clips must not answer a pair that nobody saw
  controls();
  try {
    await Promise.all(pair.map((each) => each.ready));
    if (shown !== query) return;
    player.show(pair, { seen: seen.has(pairOf(query)) });
    byId('pair').setAttribute('aria-busy', 'false');
    byId('pair').classList.remove('fresh');
    announcePair();
    if (!calm.matches && !dialogs.open) player.play();
    await Promise.all(pair.map((each) => each.whole));
    if (shown === query) player.draw();
    prefetch();
  } catch (error) {
    if (shown !== query) return;
    if (error.passing) return later(query);
    failed = true;
    notice(`This pair cannot be shown here: ${error.message}. Skip it with s.`, 'trouble');
    controls();
  }
}

/** The clips did not come through; try again while their pair is still the one to show. */
function later(query) {
  notice('The clips have not arrived yet – trying again.', 'trouble');
  setTimeout(() => {
    if (shown !== query) return;
    shown = null;
    notice('');
    show(query);
  }, 1500);
}

function announcePair() {
  const number = panel.mine + 1;
  byId('number').textContent = byId('count').textContent = `Pair ${number.toLocaleString()}`;
  const how = calm.matches ? 'Press space to play, or comma and full stop to step.' : 'Playing.';
  announce(`Pair ${number}. ${player.seen ? 'Choose.' : how}`);
}

/** The pair to come, loaded and decoded while this one is being looked at. */
function prefetch() {
  prune();
  for (const query of queries.slice(1)) [query.left, query.right].forEach(clip);
}

// ---------------------------------------------------------------- controls

const answers = [...document.querySelectorAll('[data-kind]')];

function controls() {
  const may = player.seen && !failed && shown && player.clips.length > 0;
  for (const button of answers) {
    const blocked = busy || (!may && button.dataset.kind !== 'skip');
    button.setAttribute('aria-disabled', String(Boolean(blocked)));
  }
  byId('undo').setAttribute('aria-disabled', String(busy));
  ratings.allow(Boolean(may) && !busy);
  const todo = may ? 'Choose when you are ready.' : 'Watch both clips to the end once.';
  byId('reason').textContent = remark || todo;
  byId('reason').classList.toggle('remark', Boolean(remark));
  byId('pair').classList.toggle('may', Boolean(may));
}

player.addEventListener('change', controls);
player.addEventListener('seen', () => {
  seen.add(pairOf(shown));
  controls();
  announce('Both clips shown. Choose.');
});

// ---------------------------------------------------------------- answering

const PENDING = 'preferl-pending';

async function answer(kind, strength = null) {
  if (busy || !shown) return;
  if (kind !== 'skip' && (!player.seen || failed)) {
    byId('pair').classList.remove('nudge');
    void byId('pair').offsetWidth; // starts the movement anew
    byId('pair').classList.add('nudge');
    return announce('Watch both clips to the end once, then choose.');
  }
  ratings.flush();
  busy = true;
  remark = '';
  turn += 1;
  const pressed = performance.now();
  const waited = player.began === null ? null : Math.round(pressed - player.began);
  const body = {
    token: shown.token,
    key: newKey(), // made once: sending it again writes nothing
    kind,
    strength: settings.strength === 'true' ? strength : null,
    response_ms: waited,
    shown: { loops: player.loops, speed: player.speed, steps: player.steps },
    count: AHEAD,
  };
  chosen(kind);
  controls();
  visit.set(PENDING, JSON.stringify(body));
  try {
    const reply = await deliver(body);
    turn += 1; // what was asked while the answer was on its way is out of date, too
    if (kind !== 'skip' && reply.new && waited !== null) panel.answered(waited);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, FLASH - (performance.now() - pressed))));
    announce(`Saved: ${SPOKEN[kind]}.`);
    busy = false;
    chosen(null);
    take(reply);
  } catch (error) {
    busy = false;
    chosen(null);
    refused(error);
  }
}

async function deliver(body) {
  const reply = await send('/api/answer', body, (tries) => {
    if (tries === 1) announce('Not saved yet. Trying again.');
    notice('Not saved yet – trying again. You need not do anything.', 'trouble');
  });
  visit.remove(PENDING);
  notice('');
  return reply;
}

function chosen(kind) {
  byId('clip-a').classList.toggle('chosen', kind === 'left' || kind === 'equal');
  byId('clip-b').classList.toggle('chosen', kind === 'right' || kind === 'equal');
  for (const button of answers) button.classList.toggle('pressed', button.dataset.kind === kind);
}

/** Go on with the queries that the server has given us. */
function take(reply) {
  panel.progress(reply.progress);
  queries = reply.queries;
  if (reply.state === 'ready' && queries.length) {
    show(queries[0]);
  } else {
    rest(reply.state === 'ready' ? 'waiting' : reply.state);
  }
  controls();
}

/** Show why there is no pair to answer; nobody waits for a run that has ended. */
function rest(name) {
  shown = null;
  queries = [];
  prune();
  state(panel.ended && ['waiting', 'done'].includes(name) ? 'ended' : name);
  const heading = byId(document.body.dataset.state).querySelector('h2');
  announce(heading?.textContent ?? '');
}

function refused(error, again = true) {
  if (!(error instanceof Refused)) throw error;
  // Who is signed out or opened their link anew sends it when the page begins again.
  if (![401, 403].includes(error.status)) visit.remove(PENDING);
  if (error.status === 401) {
    hush();
    back();
    return state('signed-out');
  }
  // This browser was signed in anew, perhaps to another project: the page begins again with that.
  if (error.status === 403 && admitted) return location.reload();
  notice(error.message, 'trouble');
  setTimeout(() => byId('notice').textContent === error.message && notice(''), 6000);
  announce(error.message);
  if (error.status === 409 && again) {
    shown = null;
    claim();
  }
}

const GONE = 'No connection to the server. This page continues by itself once the connection is back.';
/** A server that stops after the last answer, or with its run, is missed by nobody. */
function gone() {
  if (panel.ended && settings.state !== 'ended') rest('done');
  if (!['done', 'ended'].includes(settings.state)) notice(GONE, 'trouble');
}
const back = () => byId('notice').textContent === GONE && notice('');

let hush = () => {}; // ends the news
let admitted = false; // the server has taken a request of this page
let claiming = null;
let again = false; // news came while a request was under way
let turn = 0; // grows with every change of ours: what was asked before it is out of date

/** Ask what there is to answer; one such request at a time. */
function claim() {
  if (claiming) {
    again = true;
    return claiming;
  }
  const asked = turn;
  claiming = send('/api/claim', { count: AHEAD }, () => busy || gone())
    .then((reply) => {
      admitted = true;
      back();
      if (!busy && asked === turn) take(reply);
    })
    .catch((error) => refused(error, false))
    .finally(() => {
      claiming = null;
      if (!again) return;
      again = false;
      claim();
    });
  return claiming;
}

async function undo() {
  if (busy) return;
  if (ratings.undoable) return ratings.undo();
  busy = true;
  turn += 1;
  controls();
  try {
    const reply = await send('/api/undo', { key: newKey(), count: AHEAD }, () =>
      notice('Not undone yet – trying again.', 'trouble'),
    );
    turn += 1;
    busy = false;
    notice('');
    if (!reply.query) return announce('There is nothing to undo.');
    seen.add(pairOf(reply.query));
    shown = null;
    remark = 'Your last answer is undone. Choose again.';
    const before = panel.mine;
    const rest = reply.queries.filter((each) => each.token !== reply.query.token);
    take({ ...reply, state: 'ready', queries: [reply.query, ...rest] });
    if (panel.mine < before) panel.takenBack();
    announce('Undone. Choose again.');
  } catch (error) {
    busy = false;
    refused(error);
  } finally {
    controls();
  }
}

// ---------------------------------------------------------------- keys and buttons

const KEYS = {
  ArrowLeft: (event) => answer('left', event.shiftKey ? 'clear' : 'slight'),
  ArrowRight: (event) => answer('right', event.shiftKey ? 'clear' : 'slight'),
  ArrowUp: () => answer('equal'),
  ArrowDown: () => answer('cannot_tell'),
  ' ': () => player.toggle(),
};
const SINGLE_KEYS = {
  1: () => answer('left', 'slight'),
  2: () => answer('right', 'slight'),
  3: () => answer('equal'),
  4: () => answer('cannot_tell'),
  s: () => answer('skip'),
  z: undo,
  r: () => player.replay(),
  ',': () => player.step(-1),
  '.': () => player.step(1),
  '[': () => player.faster(-1),
  ']': () => player.faster(1),
  i: () => dialogs.toggle(dialogs.instructions),
  '?': () => dialogs.toggle(dialogs.help),
  a: () => ratings.focus('a'),
  b: () => ratings.focus('b'),
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) {
    const stepping = event.repeat && (event.key === ',' || event.key === '.');
    if (!stepping || event.ctrlKey || event.metaKey || event.altKey) return;
  }
  const onControl = event.target.closest?.('input, select, textarea, video');
  const onButton = event.target.closest?.('button, a, summary');
  if (ratings.press(event)) return event.preventDefault();
  if (onControl && event.key !== 'Escape') return;
  if (event.key === ' ' && onButton) return; // presses that button
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (dialogs.open && name !== '?' && name !== 'i') return;
  const act = KEYS[name] ?? (dialogs.singleKeys ? SINGLE_KEYS[name] : undefined);
  if (!act) return;
  event.preventDefault();
  act(event);
});

for (const button of answers) {
  button.addEventListener('click', () => answer(button.dataset.kind, button.dataset.strength ?? null));
}
byId('undo').addEventListener('click', undo);
// After a pointer's press the keys belong to the page again, not to the pressed control. No timer waits
// for that: a key that follows at once may be handled before it.
let pressedByPointer = false;
document.addEventListener('pointerdown', () => (pressedByPointer = true), true);
document.addEventListener('keydown', () => (pressedByPointer = false), true);
document.addEventListener('click', () => {
  if (!pressedByPointer || dialogs.open) return;
  const focused = document.activeElement;
  if (focused?.matches('button, input[type=range], input[type=radio]')) focused.blur();
});

// ---------------------------------------------------------------- staying in touch

async function heartbeat() {
  if (document.hidden || !queries.length || busy) return;
  try {
    const tokens = queries.map((query) => query.token);
    const reply = await whisper('/api/heartbeat', { tokens });
    if (reply && !reply.kept) claim();
  } catch (error) {
    refused(error);
  }
}

const news = {
  progress: (progress) => {
    panel.progress({ ...progress, mine: null, mine_per_hour: null });
    if (panel.ended && !busy && ['waiting', 'done'].includes(settings.state)) rest('done');
  },
  reward: (live) => panel.live(live),
  queries: () => document.body.dataset.state !== 'pair' && !busy && claim(),
};

/** Whoever only waits needs the news, too; but it may fail where the server can be reached. */
function onLost(silent) {
  if (silent && !busy) gone();
  claim();
}

function onBack() {
  back();
  dispatchEvent(new Event('online')); // what waits for its next try need not wait any longer
  claim();
}

window.addEventListener('pagehide', () => {
  ratings.flush();
  // The shown pair stays ours for a moment, so that a reload finds it again.
  const tokens = queries.slice(1).map((query) => query.token);
  if (tokens.length) farewell('/api/release', { tokens });
});
window.addEventListener('pageshow', (event) => event.persisted && claim());
document.addEventListener('visibilitychange', () => {
  if (document.hidden) player.pause();
  else if (document.body.dataset.state === 'pair') heartbeat();
  else claim();
});
setInterval(heartbeat, Math.max(2, Number(settings.lease) / 3) * 1000);
setInterval(() => {
  if (['waiting', 'ended', 'paused'].includes(document.body.dataset.state) && !document.hidden) claim();
}, 15_000);

async function begin() {
  const pending = visit.get(PENDING);
  if (pending) await deliver(JSON.parse(pending)).catch(refused);
  const reading = dialogs.read();
  await claim();
  await reading;
  if (shown && !calm.matches && !player.playing) player.replay();
  hush = listen(news, { onLost, onBack });
}

begin();
