/** The controls for playing: buttons, the slider, and how much of each clip was seen. */

const byId = (id) => document.getElementById(id);

/** Show what the player does, and let a pointer steer it. */
export function transport(player) {
  player.addEventListener('tick', () => position(player));
  player.addEventListener('change', () => (pace(player), position(player)));
  const press = {
    play: () => player.toggle(),
    replay: () => player.replay(),
    back: () => player.step(-1),
    on: () => player.step(1),
    slower: () => player.faster(-1),
    faster: () => player.faster(1),
    'canvas-a': () => player.toggle(),
    'canvas-b': () => player.toggle(),
  };
  for (const [id, act] of Object.entries(press)) byId(id).addEventListener('click', act);
  byId('scrub').addEventListener('input', (event) =>
    player.seek(event.target.value / event.target.max),
  );
  pace(player);
}

function pace(player) {
  byId('play').setAttribute('aria-label', player.playing ? 'Pause' : 'Play');
  byId('play').classList.toggle('playing', player.playing);
  byId('speed').textContent = `${player.speed}×`;
}

function position(player) {
  if (!player.clips.length) return;
  const last = Math.max(1, Math.round(player.duration * player.fps) - 1);
  const place = Math.round(player.time * player.fps);
  const scrub = byId('scrub');
  scrub.max = last;
  scrub.value = place;
  scrub.style.setProperty('--share', place / last);
  scrub.setAttribute('aria-valuetext', `${player.time.toFixed(1)} of ${player.duration.toFixed(1)} seconds`);
  byId('clock').textContent = `${player.time.toFixed(1)} / ${player.duration.toFixed(1)} s`;
  const ended = player.ended();
  player.shares().forEach((share, side) => {
    const figure = byId(side ? 'clip-b' : 'clip-a');
    figure.querySelector('.ring-part').style.strokeDashoffset = 1 - share;
    figure.classList.toggle('seen', share >= 1);
    figure.querySelector('.ended').hidden = !ended[side];
    const heading = share >= 1 ? 'seen' : `${Math.round(100 * share)} % seen`;
    const label = figure.querySelector('.ring-text');
    if (label.textContent !== heading) label.textContent = heading;
  });
}
