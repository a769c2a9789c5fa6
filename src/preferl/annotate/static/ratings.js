/** Ratings and outcomes of the two clips: radio buttons below each, by keyboard, touch or pointer. */

import { newKey, send } from './wire.js';

const byId = (id) => document.getElementById(id);
const SIDES = ['a', 'b'];
const KINDS = ['rating', 'outcome'];
const OUTCOMES = { y: 'success', n: 'failure' };
const REST = 400; // milliseconds after which a choice is sent, as arrow keys pass over others

const clipOf = (address) => address.split('/').at(-1).replace('.mp4', '');
const buttons = (side, kind) => [...document.querySelectorAll(`[name=${kind}-${side}]`)];

export class Ratings {
  constructor({ announce, notice, refused }) {
    Object.assign(this, { announce, notice, refused });
    this.clips = { a: null, b: null };
    this.waiting = new Map(); // side -> timer of a choice that is not on its way yet
    this.sending = Promise.resolve(); // changes reach the server in their order
    this.changes = 0; // of this pair, for undo
    this.newer = new Map(); // clip -> what is newer here than in queries that were fetched before
    for (const side of SIDES) {
      const part = byId(`rate-${side}`);
      part?.addEventListener('change', () => this.later(side));
      part?.addEventListener('pointerdown', (event) => {
        const input = event.target.closest('label')?.querySelector('input');
        this.pressed = input?.checked ? input : null; // pressing a choice again takes it back
      });
      part?.addEventListener('click', (event) => {
        if (event.target !== this.pressed) return;
        this.pressed = null;
        event.target.checked = false;
        this.later(side);
      });
    }
  }

  get undoable() {
    return this.changes > 0;
  }

  /** Show what this person says of the clips of a query. */
  show({ left, right, rated }) {
    this.flush();
    this.changes = 0;
    this.clips = { a: clipOf(left), b: clipOf(right) };
    for (const side of SIDES) {
      const clip = this.clips[side];
      this.mark(side, this.newer.get(clip) ?? rated[clip] ?? {});
    }
  }

  mark(side, row) {
    for (const kind of KINDS) {
      for (const button of buttons(side, kind)) {
        button.checked = button.value === String(row[kind] ?? '');
      }
    }
  }

  allow(may) {
    for (const side of SIDES) byId(`rate-${side}`)?.toggleAttribute('disabled', !may);
  }

  /** Lead the keyboard to the rating of a clip. */
  focus(side) {
    const part = byId(`rate-${side}`);
    if (!part) return;
    if (part.disabled) return this.announce('Watch both clips to the end once, then rate.');
    const all = buttons(side, 'rating');
    (all.find((button) => button.checked) ?? all[0]).focus();
  }

  /** Take a key that is meant for the ratings in focus; whether it was. */
  press(event) {
    const part = event.target.closest?.('.rate');
    if (!part || event.ctrlKey || event.metaKey || event.altKey) return false;
    const side = part.id.at(-1);
    const name = event.key.toLowerCase();
    const value = OUTCOMES[name] ?? name;
    const kind = name in OUTCOMES ? 'outcome' : 'rating';
    const button = buttons(side, kind).find((each) => each.value === value);
    if (button) {
      button.checked = !button.checked;
      this.later(side);
    } else if (name === 'escape') {
      event.target.blur();
    } else if (SIDES.includes(name)) {
      this.focus(name);
    } else if (name === 'z') {
      this.undo();
    } else {
      return false;
    }
    return true;
  }

  later(side) {
    clearTimeout(this.waiting.get(side));
    this.waiting.set(side, setTimeout(() => this.save(side), REST));
  }

  /** Send at once what is chosen, as before the next pair. */
  flush() {
    for (const side of this.waiting.keys()) this.save(side);
  }

  save(side) {
    clearTimeout(this.waiting.get(side));
    this.waiting.delete(side);
    const chosen = (kind) => buttons(side, kind).find((button) => button.checked)?.value ?? null;
    const rating = chosen('rating');
    const body = {
      clip: this.clips[side],
      key: newKey(),
      rating: rating && Number(rating),
      outcome: chosen('outcome'),
    };
    this.changes += 1;
    this.newer.set(body.clip, body);
    this.deliver('/api/rate', body, (reply) => this.announce(`Saved: clip ${side.toUpperCase()} ${words(reply)}.`));
  }

  async undo() {
    if (this.waiting.size) this.flush();
    if (!this.changes) return;
    this.changes -= 1;
    this.deliver('/api/unrate', { key: newKey() }, (reply) => {
      const side = SIDES.find((each) => this.clips[each] === reply.clip);
      this.newer.set(reply.clip, reply);
      if (side) this.mark(side, reply);
      this.announce(side ? `Undone: clip ${side.toUpperCase()} ${words(reply)}.` : 'There is nothing to undo.');
    });
  }

  deliver(path, body, done) {
    let troubled = false;
    const trouble = () => {
      troubled = true;
      this.notice('Not saved yet – trying again. You need not do anything.', 'trouble');
    };
    this.sending = this.sending
      .then(() => send(path, body, trouble))
      .then((reply) => {
        if (troubled) this.notice('');
        done(reply);
      })
      .catch((error) => this.refused(error, false));
  }
}

function words({ rating, outcome }) {
  const parts = [rating === null ? null : `is rated ${rating} of 5`, outcome && `is a ${outcome}`];
  return parts.filter(Boolean).join(' and ') || 'is not rated';
}
