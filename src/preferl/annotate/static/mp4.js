/**
 * Where each frame of an MP4 lies in the file and when it is shown, from its index (ISO/IEC
 * 14496-12). Only what our own encoder writes is read: one track, H.264, not fragmented.
 */

const text = (view, at) => String.fromCharCode(...[0, 1, 2, 3].map((i) => view.getUint8(at + i)));

/** Boxes between two places: their kind, and where their content begins and ends. */
function* boxes(view, from, to) {
  for (let at = from; at + 8 <= to; ) {
    let size = view.getUint32(at);
    let head = 8;
    if (size === 1) {
      size = Number(view.getBigUint64(at + 8));
      head = 16;
    } else if (size === 0) size = to - at;
    if (size < head) throw new Error('a box of the video is damaged');
    yield { kind: text(view, at + 4), from: at + head, to: Math.min(at + size, to) };
    at += size;
  }
}

function find(view, place, ...path) {
  for (const kind of path) {
    const found = [...boxes(view, place.from, place.to)].find((box) => box.kind === kind);
    if (!found) throw new Error(`the video lacks its ${kind} box`);
    place = found;
  }
  return place;
}

const has = (view, place, kind) =>
  [...boxes(view, place.from, place.to)].some((box) => box.kind === kind);

/** A table of rows of 32-bit numbers, as most boxes of the index are. */
function table(view, box, columns) {
  const rows = view.getUint32(box.from + 4);
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (_, column) =>
      view.getUint32(box.from + 8 + 4 * (row * columns + column)),
    ),
  );
}

function sizes(view, box) {
  const same = view.getUint32(box.from + 4);
  const count = view.getUint32(box.from + 8);
  return Array.from({ length: count }, (_, i) => same || view.getUint32(box.from + 12 + 4 * i));
}

/** Where each frame begins: frames follow each other within a chunk. */
function offsets(view, samples, frameSizes) {
  const wide = has(view, samples, 'co64');
  const box = find(view, samples, wide ? 'co64' : 'stco');
  const chunks = table(view, box, wide ? 2 : 1).map((row) =>
    wide ? row[0] * 2 ** 32 + row[1] : row[0],
  );
  const runs = table(view, find(view, samples, 'stsc'), 3);
  const places = [];
  let run = 0;
  for (let chunk = 0; chunk < chunks.length; chunk++) {
    while (run + 1 < runs.length && runs[run + 1][0] <= chunk + 1) run++;
    let at = chunks[chunk];
    for (let i = 0; i < runs[run][1] && places.length < frameSizes.length; i++) {
      places.push(at);
      at += frameSizes[places.length - 1];
    }
  }
  return places;
}

const repeated = (rows) => rows.flatMap(([count, value]) => Array(count).fill(value));

/**
 * The index of a video: `{width, height, codec, description, duration, frames}`, where a frame is
 * `{offset, size, time, key}` with its time in seconds, in the order in which they are decoded.
 */
export function readIndex(buffer) {
  const view = new DataView(buffer);
  const file = { from: 0, to: buffer.byteLength };
  const media = find(view, file, 'moov', 'trak', 'mdia');
  const header = find(view, media, 'mdhd');
  const long = view.getUint8(header.from) === 1;
  const scale = view.getUint32(header.from + (long ? 20 : 12));
  const samples = find(view, media, 'minf', 'stbl');

  const entry = find(view, { ...find(view, samples, 'stsd'), from: find(view, samples, 'stsd').from + 8 }, 'avc1');
  const settings = find(view, { from: entry.from + 78, to: entry.to }, 'avcC');
  const description = new Uint8Array(buffer, settings.from, settings.to - settings.from);
  const hex = [...description.slice(1, 4)].map((byte) => byte.toString(16).padStart(2, '0'));

  const frameSizes = sizes(view, find(view, samples, 'stsz'));
  const places = offsets(view, samples, frameSizes);
  const lasts = repeated(table(view, find(view, samples, 'stts'), 2));
  const shifts = has(view, samples, 'ctts')
    ? repeated(table(view, find(view, samples, 'ctts'), 2))
    : [];
  const keys = has(view, samples, 'stss')
    ? new Set(table(view, find(view, samples, 'stss'), 1).map((row) => row[0] - 1))
    : null;

  let decoded = 0;
  const frames = frameSizes.map((size, i) => {
    const time = (decoded + (shifts[i] ?? 0)) / scale;
    decoded += lasts[i];
    return { offset: places[i], size, time, key: keys ? keys.has(i) : true };
  });
  return {
    width: view.getUint16(entry.from + 24),
    height: view.getUint16(entry.from + 26),
    codec: `avc1.${hex.join('')}`,
    description,
    duration: decoded / scale,
    frames,
  };
}
