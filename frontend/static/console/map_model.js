// The geometry of the map, without a document: positions on the screen, views, ellipses and labels.

// 95 % of a two-dimensional normal distribution lie within this many standard deviations.
const REACH = Math.sqrt(5.991);
const MARGIN = 1.12;

/** Project coordinates onto two axes; a one-dimensional embedding becomes a line. */
export function project(coordinates, [first, second]) {
  return coordinates.map((row) => [row[first], second < row.length ? -row[second] : 0]); // the y axis of the screen points down
}

/** Return all pairs of axes of a d-dimensional embedding. */
export function axisPairs(d) {
  if (d === 1) return [[0, 1]];
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

/** Return a round grid step that is about this many pixels wide. */
export function gridStep(scale, pixels = 90) {
  const wanted = pixels / scale;
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= wanted);
}

/**
 * Place labels {x, y, width, half} beside their pictures without overlaps; those without room become null.
 * `half` is half the height of the picture; earlier labels have precedence.
 */
export function placeLabels(labels, height = 14) {
  const taken = [];
  const free = (box) => taken.every((other) => box.right < other.left || other.right < box.left || box.bottom < other.top || other.bottom < box.top);
  return labels.map(({ x, y, width, half }) => {
    const sides = [
      [x, y + half + height],
      [x, y - half - 5],
      [x + half + width / 2 + 4, y + height / 3],
      [x - half - width / 2 - 4, y + height / 3],
    ];
    for (const [px, py] of sides) {
      const box = { left: px - width / 2, right: px + width / 2, top: py - height, bottom: py + 2 };
      if (free(box)) {
        taken.push(box);
        return [px, py];
      }
    }
    return null;
  });
}
