/**
 * A clip as pictures in memory, so that it can be shown at any time, speed and place at once.
 *
 * Frames come from the browser's decoder where there is one (secure addresses only), else from a
 * hidden video that is moved from frame to frame. Either way each frame is exact, and the first
 * ones can be shown while the last are still being made.
 */

import { readIndex } from './mp4.js';

/** Pictures of one clip take at most this much memory; larger ones are kept smaller. */
const MEMORY = 96 * 2 ** 20;

export class Clip {
  /** Begins to load; `whole` settles once every frame is there, `ready` with the first. */
  constructor(url) {
    this.url = url;
    this.frames = [];
    this.count = 0;
    this.fps = 1;
    this.width = 1;
    this.height = 1;
    this.abort = new AbortController();
    this.ready = new Promise((resolve, reject) => (this.first = { resolve, reject }));
    this.whole = this.load();
    this.whole.catch((error) => this.first.reject(error));
    this.ready.catch(() => {});
  }

  get duration() {
    return this.count / this.fps;
  }

  /** Free the memory of all frames. */
  close() {
    this.abort.abort();
    this.frames.forEach((frame) => frame?.close());
    this.frames = [];
  }

  async load() {
    const bytes = await this.fetch();
    const index = readIndex(bytes);
    this.count = index.frames.length;
    this.fps = this.count / index.duration;
    const share = Math.min(1, Math.sqrt(MEMORY / (this.count * index.width * index.height * 4)));
    this.width = Math.max(2, Math.round(index.width * share));
    this.height = Math.max(2, Math.round(index.height * share));
    if ('VideoDecoder' in window) {
      try {
        return await this.decode(index, bytes);
      } catch (error) {
        if (this.abort.signal.aborted) throw error;
      }
    }
    return this.capture(index);
  }

  /** The file; `passing` of an error is whether trying again may help. */
  async fetch() {
    let answer;
    try {
      answer = await fetch(this.url, { signal: this.abort.signal });
      if (answer.ok) return await answer.arrayBuffer();
    } catch {
      throw Object.assign(new Error('the connection is lost'), { passing: true });
    }
    const error = new Error(`the clip cannot be loaded (${answer.status})`);
    throw Object.assign(error, { passing: answer.status >= 500 });
  }

  keep(place, frame) {
    if (this.abort.signal.aborted) return frame.close();
    this.frames[place]?.close();
    this.frames[place] = frame;
    if (place === 0) this.first.resolve(this);
  }

  picture(source) {
    const smaller = { resizeWidth: this.width, resizeHeight: this.height, resizeQuality: 'high' };
    return createImageBitmap(source, smaller);
  }

  async decode(index, bytes) {
    const config = {
      codec: index.codec,
      codedWidth: index.width,
      codedHeight: index.height,
      description: index.description,
    };
    const { supported } = await VideoDecoder.isConfigSupported(config);
    if (!supported) throw new Error('the decoder does not know this video');
    const kept = [];
    let failed = null;
    const decoder = new VideoDecoder({
      output: (frame) => {
        const place = kept.length;
        kept.push(
          this.picture(frame)
            .then((picture) => this.keep(place, picture))
            .finally(() => frame.close()),
        );
      },
      error: (error) => (failed = error),
    });
    try {
      decoder.configure(config);
      for (const { offset, size, time, key } of index.frames) {
        while (decoder.decodeQueueSize > 8 && !failed) {
          await new Promise((resolve) => setTimeout(resolve, 2));
        }
        if (failed || this.abort.signal.aborted) throw failed ?? new Error('no longer needed');
        decoder.decode(
          new EncodedVideoChunk({
            type: key ? 'key' : 'delta',
            timestamp: Math.round(time * 1e6),
            data: new Uint8Array(bytes, offset, size),
          }),
        );
      }
      await decoder.flush();
      await Promise.all(kept);
    } finally {
      if (decoder.state !== 'closed') decoder.close();
    }
    if (kept.length !== this.count) throw new Error('frames are missing');
  }

  async capture(index) {
    const video = document.createElement('video');
    video.muted = true;
    video.playsInline = true;
    video.preload = 'auto';
    const times = index.frames.map((frame) => frame.time).sort((a, b) => a - b);
    const began = times[0];
    try {
      video.src = this.url;
      await once(video, 'loadeddata');
      for (let place = 0; place < times.length; place++) {
        if (this.abort.signal.aborted) throw new Error('no longer needed');
        await move(video, times[place] - began, 1 / this.fps);
        this.keep(place, await this.picture(video));
      }
    } finally {
      video.removeAttribute('src');
      video.load();
    }
  }
}

/** Go to the frame shown at a time; having sought it, browsers may still draw the one before. */
async function move(video, time, length) {
  const drawn = presented(video, (at) => Math.abs(at - time) < length / 2);
  video.currentTime = time + length / 2;
  await once(video, 'seeked');
  // Not every browser reports every frame; a slow one reports it late.
  await Promise.race([drawn, new Promise((resolve) => setTimeout(resolve, 1000))]);
}

/** Settles when a frame of a fitting time is there to be drawn, if the browser can report that. */
function presented(video, fits) {
  if (!('requestVideoFrameCallback' in video)) return undefined;
  return new Promise((resolve) => {
    const look = (_, { mediaTime }) =>
      fits(mediaTime) ? resolve() : video.requestVideoFrameCallback(look);
    video.requestVideoFrameCallback(look);
  });
}

function once(video, event) {
  return new Promise((resolve, reject) => {
    const give = setTimeout(() => reject(new Error('the clip cannot be played here')), 10_000);
    const done = (act) => () => (clearTimeout(give), act());
    video.addEventListener(event, done(resolve), { once: true });
    video.addEventListener('error', done(() => reject(new Error('the clip cannot be played'))), {
      once: true,
    });
  });
}
