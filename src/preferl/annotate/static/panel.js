/** What the person sees of the work: progress, their own pace, a break in time, the model. */

import { visit } from './storage.js';

const byId = (id) => document.getElementById(id);
const BREAK = 25 * 60_000; // milliseconds of work after which a break is proposed
const GAP = 5 * 60_000; // a pause as long as this was a break already
const SVG = 'http://www.w3.org/2000/svg';

const plural = (count, word) => `${count.toLocaleString()} ${word}${count === 1 ? '' : 's'}`;

/** Answers of this visit, kept through reloads of this tab. */
class Visit {
  constructor() {
    const kept = JSON.parse(visit.get('preferl-visit') ?? 'null');
    Object.assign(this, kept ?? { began: Date.now(), last: Date.now(), times: [] });
  }

  add(milliseconds) {
    const now = Date.now();
    if (now - this.last > GAP) this.began = now;
    this.last = now;
    this.times.push(milliseconds);
    this.keep();
  }

  removeLast() {
    this.times.pop();
    this.keep();
  }

  rest() {
    this.began = Date.now();
    this.keep();
  }

  keep() {
    const { began, last, times } = this;
    visit.set('preferl-visit', JSON.stringify({ began, last, times }));
  }

  get median() {
    const sorted = [...this.times].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
}

export class Panel {
  constructor() {
    this.visit = new Visit();
    this.mine = 0;
    this.revision = 0; // grows with every answer
    this.ended = false; // the run that asked is over
    byId('break-done').addEventListener('click', () => {
      this.visit.rest();
      byId('break').hidden = true;
    });
    setInterval(() => this.proposeBreak(), 20_000);
  }

  answered(milliseconds) {
    this.visit.add(milliseconds);
    this.proposeBreak();
    this.showVisit();
  }

  takenBack() {
    this.visit.removeLast();
    this.showVisit();
  }

  proposeBreak() {
    const minutes = Math.floor((Date.now() - this.visit.began) / 60_000);
    const working = Date.now() - this.visit.last < GAP && this.visit.times.length > 0;
    if (!working || minutes * 60_000 < BREAK) return;
    byId('break-minutes').textContent = minutes;
    byId('break').hidden = false;
  }

  showVisit() {
    const { times } = this.visit;
    byId('visit-answers').textContent = times.length.toLocaleString();
    byId('visit-median').textContent = times.length
      ? `${(this.visit.median / 1000).toFixed(1)} s`
      : '–';
  }

  progress(progress) {
    if (progress.mine !== null) this.mine = progress.mine;
    if (progress.mine_per_hour !== null) {
      byId('pace').textContent = Math.round(progress.mine_per_hour).toLocaleString();
    }
    for (const element of document.querySelectorAll('[data-mine]')) {
      element.textContent = plural(this.mine, 'pair');
    }
    byId('mine').textContent = this.mine.toLocaleString();
    if (progress.revision >= this.revision) this.everybody(progress);
    this.showVisit();
  }

  /** What all have done, in the server's words; a reply that was overtaken by news is left out. */
  everybody({ revision, statement, people_active, pairs_undrawn }) {
    this.revision = revision;
    const { words, until, share, newest, ended } = statement;
    this.ended = ended;
    byId('bar').hidden = share === null;
    byId('bar').value = share ?? 0;
    byId('bar-text').textContent = words;
    byId('bar-until').textContent = until ? `, ${until}` : '';
    for (const element of document.querySelectorAll('[data-statement]')) {
      element.textContent = until ? `${words}, ${until}.` : `${words}.`;
    }
    if (byId('learning').textContent !== (newest ?? '')) byId('learning').textContent = newest ?? '';
    const active = Math.max(people_active, 1); // whoever sees this is, before the news come
    byId('active').textContent = plural(active, 'person').replace('persons', 'people');
    byId('clips-missing').textContent =
      pairs_undrawn > 0
        ? `${plural(pairs_undrawn, 'pair')} being drawn right now.`
        : 'There are no new pairs yet.';
  }

  live({ rewards, episode }) {
    byId('model').hidden = rewards.length === 0;
    if (rewards.length) draw(byId('curve'), byId('model-text'), rewards);
    byId('episode').hidden = !episode;
    for (const element of document.querySelectorAll('[data-see]')) element.hidden = !episode;
    const video = byId('episode-video');
    if (episode && video.getAttribute('src') !== episode.url) video.src = episode.url;
    if (episode) byId('episode-text').textContent = episode.text;
  }
}

const percent = (share) => `${Math.round(100 * share)} %`;

/** The model's accuracy on answers it has not seen, over the answers it learned from. */
function draw(svg, text, rewards) {
  const known = rewards.filter((reward) => reward.accuracy !== null);
  const last = known.at(-1);
  text.textContent = last
    ? `After ${plural(last.answers, 'answer')} the model predicts ${percent(last.accuracy)} of answers it has not seen` +
      (last.low === null ? '.' : ` (between ${percent(last.low)} and ${percent(last.high)}).`)
    : 'There is a first model; its accuracy will be known after more answers.';
  svg.toggleAttribute('hidden', !last);
  if (!last) return;
  const [width, height, left, top, bottom] = [260, 110, 34, 8, 20];
  const most = Math.max(...known.map((reward) => reward.answers), 1);
  const floor = Math.min(0.5, ...known.map((reward) => reward.low ?? reward.accuracy));
  const x = (answers) => left + (answers / most) * (width - left - 8);
  const y = (share) => top + ((1 - share) / (1 - floor)) * (height - top - bottom);
  const path = (points) => points.map(([px, py], i) => `${i ? 'L' : 'M'}${px.toFixed(1)} ${py.toFixed(1)}`).join('');
  const sure = known.filter((reward) => reward.low !== null);
  const add = (name, attributes, content = '') => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = content;
    svg.append(element);
  };
  svg.replaceChildren();
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  for (const share of [0.5, 0.75, 1]) {
    add('line', { class: 'grid', x1: left, x2: width - 8, y1: y(share), y2: y(share) });
    add('text', { x: left - 6, y: y(share) + 4, 'text-anchor': 'end' }, percent(share));
  }
  add('text', { x: left, y: height - 4 }, '0');
  add('text', { x: width - 8, y: height - 4, 'text-anchor': 'end' }, plural(most, 'answer'));
  if (sure.length > 1) {
    const upper = sure.map((reward) => [x(reward.answers), y(reward.high)]);
    const lower = sure.map((reward) => [x(reward.answers), y(reward.low)]).reverse();
    add('path', { class: 'band', d: `${path([...upper, ...lower])}Z` });
  }
  add('path', { class: 'line', d: path(known.map((reward) => [x(reward.answers), y(reward.accuracy)])) });
  add('circle', { class: 'dot', cx: x(last.answers), cy: y(last.accuracy), r: 4 });
  svg.setAttribute('aria-label', text.textContent);
}
