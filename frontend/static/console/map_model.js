// The geometry of the map, without a document: positions on the screen, views, ellipses, selections and groups.

// 95 % of a two-dimensional normal distribution lie within this many standard deviations.
const REACH = Math.sqrt(5.991);
const MARGIN = 1.12;

/** Project coordinates onto two axes; a one-dimensional embedding becomes a line. */
export function project(coordinates, [first, second]) {
  return coordinates.map((row) => [row[first], second < row.length ? -row[second] : 0]); // the y axis of the screen points down
}

/**
 * Return all pairs of axes of a d-dimensional embedding.
 * @returns {[number, number][]}
 */
export function axisPairs(d) {
  if (d === 1) return [[0, 1]];
  /** @type {[number, number][]} */
  const pairs = [];
  for (let first = 0; first < d; first += 1) for (let second = first + 1; second < d; second += 1) pairs.push([first, second]);
  return pairs;
}

/** Return the view {x, y, scale} that shows all places: the centre in the map's units, and pixels per unit. */
export function fitView(places, width, height, room) {
  if (!places.length) return { x: 0, y: 0, scale: 1 };
  const [xs, ys] = [places.map(([x]) => x), places.map(([, y]) => y)];
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const wide = Math.max(right - left, 1e-9) * MARGIN;
  const high = Math.max(bottom - top, 1e-9) * MARGIN;
  const scale = Math.min(Math.max(width - room, 60) / wide, Math.max(height - room, 60) / high);
  return { x: (left + right) / 2, y: (top + bottom) / 2, scale };
}

/** Return the position of a place on a screen of this size. */
export function toScreen([x, y], view, width, height) {
  return [width / 2 + (x - view.x) * view.scale, height / 2 + (y - view.y) * view.scale];
}

/** Return the view after zooming by a factor around a fixed point of the screen. */
export function zoomView(view, factor, [px, py], width, height) {
  const scale = view.scale * factor;
  const dx = (px - width / 2) * (1 / view.scale - 1 / scale);
  const dy = (py - height / 2) * (1 / view.scale - 1 / scale);
  return { x: view.x + dx, y: view.y + dy, scale };
}

/** Return the view after moving the map by some pixels. */
export function moveView(view, dx, dy) {
  return { ...view, x: view.x - dx / view.scale, y: view.y - dy / view.scale };
}

/** Return the 95 % ellipse of a covariance: half axes in the map's units, and the angle of the longer one in degrees. */
export function ellipse(covariance, [first, second]) {
  const xx = covariance[first][first];
  if (second >= covariance.length) return { long: REACH * Math.sqrt(Math.max(0, xx)), short: 0, angle: 0 };
  const yy = covariance[second][second];
  const xy = -covariance[first][second]; // the y axis of the screen points down
  const middle = (xx + yy) / 2;
  const half = Math.hypot((xx - yy) / 2, xy);
  const angle = (Math.atan2(2 * xy, xx - yy) * 90) / Math.PI;
  return { long: REACH * Math.sqrt(middle + half), short: REACH * Math.sqrt(Math.max(0, middle - half)), angle };
}

/** Return the corners of the boxes around the 95 % ellipses of all places, which a view has to show for no ellipse to be cut. */
export function ellipseCorners(places, spread, [first, second]) {
  return places.flatMap(([x, y], index) => {
    const covariance = spread[index];
    const wide = REACH * Math.sqrt(Math.max(0, covariance[first][first]));
    const high = second < covariance.length ? REACH * Math.sqrt(Math.max(0, covariance[second][second])) : 0;
    return [[x - wide, y - high], [x + wide, y + high]];
  });
}

/** Return a round grid step that is about this many pixels wide. */
export function gridStep(scale, pixels = 90) {
  const wanted = pixels / scale;
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= wanted);
}

/** Return whether a point lies in a polygon (even-odd rule). */
export function isInside([x, y], polygon) {
  let inside = false;
  for (let k = 0, before = polygon.length - 1; k < polygon.length; before = k, k += 1) {
    const [[x1, y1], [x2, y2]] = [polygon[k], polygon[before]];
    if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) inside = !inside;
  }
  return inside;
}

/** Return the index of the nearest point in a direction, at most 45° off it; the same index if there is none. */
export function neighbourTowards(points, index, [dx, dy]) {
  const [x, y] = points[index];
  let [best, least] = [index, Infinity];
  points.forEach((point, other) => {
    if (other === index || point === null) return;
    const along = (point[0] - x) * dx + (point[1] - y) * dy;
    const across = Math.abs((point[0] - x) * dy - (point[1] - y) * dx);
    if (along <= 0 || across > along) return;
    const cost = along + 2 * across;
    if (cost < least) [best, least] = [other, cost];
  });
  return best;
}

/** Return the rows of a CSV as lists of texts; fields are separated by commas, semicolons or tabs, as the first line is. */
export function parseTable(text) {
  const first = text.split(/\r?\n/, 1)[0];
  const separator = [",", ";", "\t"].reduce((a, b) => (first.split(b).length > first.split(a).length ? b : a));
  const rows = [[]];
  let [field, quoted] = ["", false];
  const end = () => {
    rows.at(-1).push(field);
    field = "";
  };
  const body = text.replace(/^\uFEFF/, "");
  for (let k = 0; k < body.length; k += 1) {
    const letter = body[k];
    if (quoted && letter === '"' && body[k + 1] === '"') field += body[(k += 1)];
    else if (letter === '"' && (quoted || field === "")) quoted = !quoted;
    else if (!quoted && letter === separator) end();
    else if (!quoted && letter === "\n") {
      end();
      rows.push([]);
    } else if (quoted || letter !== "\r") field += letter;
  }
  end();
  return rows.filter((row) => row.some((cell) => cell.trim() !== ""));
}

/**
 * Read a table about targets: {columns, of}, where `of(column)` returns {names, groups} with the groups in order of their
 * size and the group of each target (-1: none). Rows name targets by file, name or number, in whichever column fits most.
 */
export function readGroups(text, targets) {
  const [head = [], ...rows] = parseTable(text);
  const plain = (value) => value.trim().toLowerCase();
  const index = new Map();
  for (const target of targets) {
    for (const key of [String(target.index), target.name, target.file ?? target.name]) index.set(plain(key), target.index);
  }
  const fits = (column) => rows.filter((row) => index.has(plain(row[column] ?? ""))).length;
  const words = (column) => rows.filter((row) => !/^\d*$/.test((row[column] ?? "").trim()) && index.has(plain(row[column]))).length;
  const ranked = head.map((_, column) => column).sort((a, b) => words(b) - words(a) || fits(b) - fits(a) || a - b);
  const key = ranked[0];
  if (key === undefined || fits(key) === 0) return { columns: [], matched: 0, of: () => null };
  const columns = head.map((name, column) => ({ name: name.trim() || `column ${column + 1}`, column })).filter(({ column }) => column !== key);
  const of = (column) => {
    const values = targets.map(() => "");
    for (const row of rows) {
      const target = index.get(plain(row[key] ?? ""));
      if (target !== undefined) values[target] = (row[column] ?? "").trim();
    }
    const sizes = new Map();
    for (const value of values) if (value) sizes.set(value, (sizes.get(value) ?? 0) + 1);
    const all = [...sizes.keys()].sort((a, b) => sizes.get(b) - sizes.get(a) || a.localeCompare(b));
    const names = (all.length > MOST_GROUPS ? [...all.slice(0, MOST_GROUPS - 1), `other (${all.length - MOST_GROUPS + 1} groups)`] : all).map((name) => name.slice(0, LONGEST_NAME));
    const groups = values.map((value) => (value ? Math.min(all.indexOf(value), names.length - 1) : -1));
    return { names, groups };
  };
  return { columns, matched: fits(key), of };
}

/** Groups that have a shape and a colour of their own. */
export const MOST_GROUPS = 8;
const LONGEST_NAME = 100;

const regular = (corners, radius, inner = null) =>
  "M" +
  Array.from({ length: inner ? 2 * corners : corners }, (_, k) => {
    const angle = (2 * Math.PI * k) / (inner ? 2 * corners : corners) - Math.PI / 2;
    const length = inner && k % 2 ? inner : radius;
    return `${(length * Math.cos(angle)).toFixed(3)} ${(length * Math.sin(angle)).toFixed(3)}`;
  }).join("L") +
  "Z";

/** The outline of each group's shape, of radius 1: they are told apart without colours. */
export const SHAPES = [
  "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1 -1 0Z",
  "M-.88 -.88H.88V.88H-.88Z",
  "M0 -1.1L1.05 .8H-1.05Z",
  "M0 -1.2L1.2 0L0 1.2L-1.2 0Z",
  "M0 1.1L1.05 -.8H-1.05Z",
  "M-.38 -1.1H.38V-.38H1.1V.38H.38V1.1H-.38V.38H-1.1V-.38H-.38Z",
  regular(5, 1.25, 0.5),
  "M-.6 -1.1L0 -.5L.6 -1.1L1.1 -.6L.5 0L1.1 .6L.6 1.1L0 .5L-.6 1.1L-1.1 .6L-.5 0L-1.1 -.6Z",
];
