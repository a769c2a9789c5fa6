/** Keys of the list of answers, and two clips that play together. */

import { kept } from './storage.js';

const films = [...document.querySelectorAll('.sides video')];
const play = document.querySelector('#play');

function toggle() {
  const playing = films.some((film) => !film.paused);
  films.forEach((film) => (playing ? film.pause() : film.play()));
  play.setAttribute('aria-pressed', String(!playing));
}

function again() {
  films.forEach((film) => {
    film.currentTime = 0;
    film.play();
  });
  play.setAttribute('aria-pressed', 'true');
}

if (play) {
  play.addEventListener('click', toggle);
  document.querySelector('#again').addEventListener('click', again);
  if (matchMedia('(prefers-reduced-motion: reduce)').matches) toggle();
}

const follow = (id) => document.querySelector(id)?.click();

/** Whether keys that are a single letter act: the answering page's help has the switch. */
const singleKeys = () => kept.get('preferl-single-keys') !== 'off';

const keys = { j: () => follow('#after'), k: () => follow('#before'), p: toggle, b: again };

document.addEventListener('keydown', (event) => {
  if (event.repeat) return; // a held key would ask the server for every answer
  const typing = event.target.closest('input, select, textarea');
  if (typing || !singleKeys() || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = keys[event.key.toLowerCase()];
  if (!act || ('pb'.includes(event.key.toLowerCase()) && !play)) return;
  event.preventDefault();
  act();
});
