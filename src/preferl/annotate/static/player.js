/** Two clips on one clock: what is drawn is a function of the time alone, so they cannot drift. */

export const SPEEDS = [0.25, 0.5, 1, 1.5, 2];
const HOLD = 0.7; // seconds that the last frames stay before both begin again

export class Player extends EventTarget {
  constructor(canvases) {
    super();
    this.pens = canvases.map((canvas) => canvas.getContext('2d', { alpha: false }));
    this.clips = [];
    this.speed = 1;
    this.reset();
  }

  reset() {
    this.time = 0;
    this.held = 0;
    this.loops = 0;
    this.steps = 0;
    this.playing = false;
    this.drawn = [-1, -1];
    this.watched = [0, 0];
    this.seen = false;
    this.began = null;
  }

  /** Show two clips from their beginning; `seen` where the person saw them before. */
  show(clips, { seen = false } = {}) {
    this.pause();
    this.clips = clips;
    this.reset();
    this.seen = seen;
    clips.forEach((clip, side) => {
      this.pens[side].canvas.width = clip.width;
      this.pens[side].canvas.height = clip.height;
    });
    this.draw();
    this.notify('change');
  }

  clear() {
    this.pause();
    this.clips = [];
    this.reset();
  }

  get fps() {
    return Math.max(...this.clips.map((clip) => clip.fps));
  }

  get duration() {
    return this.clips.length ? Math.max(...this.clips.map((clip) => clip.duration)) : 0;
  }

  /** The frame of each clip at a time: its last one once it has ended. */
  places(time = this.time) {
    return this.clips.map((clip) => Math.min(Math.floor(time * clip.fps + 1e-6), clip.count - 1));
  }

  ended() {
    return this.clips.map((clip) => this.time * clip.fps + 1e-6 >= clip.count - 1);
  }

  /** How much of each clip was seen, in 0...1. */
  shares() {
    return this.clips.map((clip, side) =>
      this.seen || clip.count < 2 ? 1 : Math.min(1, this.watched[side] / (clip.count - 1)),
    );
  }

  play() {
    if (this.playing || !this.clips.length) return;
    this.playing = true;
    this.last = performance.now();
    this.request = requestAnimationFrame((now) => this.tick(now));
    this.notify('change');
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    cancelAnimationFrame(this.request);
    this.notify('change');
  }

  toggle() {
    this.playing ? this.pause() : this.play();
  }

  replay() {
    this.time = 0;
    this.held = 0;
    this.draw();
    this.play();
  }

  /** Go some frames on or back, paused; beyond an end it goes on at the other. */
  step(frames) {
    if (!this.clips.length) return;
    this.pause();
    const last = Math.round(this.duration * this.fps) - 1;
    const place = Math.floor(this.time * this.fps + 1e-6) + frames;
    this.steps += 1;
    this.time = (place < 0 ? last : place > last ? 0 : place) / this.fps;
    this.held = 0;
    this.draw();
    this.notify('change');
  }

  /** Go to a share of the whole, paused. */
  seek(share) {
    if (!this.clips.length) return;
    this.pause();
    const last = Math.round(this.duration * this.fps) - 1;
    this.time = Math.round(share * last) / this.fps;
    this.held = 0;
    this.draw();
    this.notify('change');
  }

  faster(by) {
    const place = SPEEDS.indexOf(this.speed) + by;
    this.speed = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, place))];
    this.notify('change');
  }

  tick(now) {
    if (!this.playing) return;
    // A hidden tab draws nothing; what passed meanwhile must not count as shown.
    const passed = (Math.min(now - this.last, 100) / 1000) * this.speed;
    this.last = now;
    this.advance(passed);
    this.draw();
    this.request = requestAnimationFrame((next) => this.tick(next));
  }

  advance(passed) {
    const end = this.duration - 1 / this.fps;
    if (this.time >= end) {
      this.held += passed / this.speed;
      if (this.held < HOLD) return;
      this.time = 0;
      this.held = 0;
      this.loops += 1;
      return;
    }
    const next = Math.min(this.time + passed, end);
    const places = this.places(next);
    if (this.clips.every((clip, side) => clip.frames[places[side]])) this.time = next;
  }

  draw() {
    if (!this.clips.length) return;
    this.places().forEach((place, side) => {
      const frame = this.clips[side].frames[place];
      if (!frame || this.drawn[side] === place) return;
      this.pens[side].drawImage(frame, 0, 0);
      this.drawn[side] = place;
      // Leaps over frames are not watching; a slow screen's gaps are.
      const reach = this.watched[side] + Math.max(3, this.clips[side].fps * 0.25);
      if (place > this.watched[side] && place <= reach) this.watched[side] = place;
    });
    if (this.began === null && this.drawn.every((place) => place >= 0)) {
      this.began = performance.now();
    }
    if (!this.seen && this.shares().every((share) => share >= 1)) {
      this.seen = true;
      this.notify('seen');
    }
    this.notify('tick');
  }

  notify(kind) {
    this.dispatchEvent(new Event(kind));
  }
}
