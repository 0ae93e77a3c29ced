// The geometry of the map, without any element: what is where on the screen, and how sure we are.

//: 95 % of a two-dimensional normal distribution lie within this many standard deviations.
const REACH = Math.sqrt(5.991);
const MARGIN = 1.12;

/** Places of targets in the plane of two axes; one dimension alone becomes a line. */
export function plane(coordinates, [first, second]) {
  return coordinates.map((row) => [row[first], second < row.length ? -row[second] : 0]); // the screen counts downwards
}

/** Pairs of axes that can be looked at. */
export function pairs(d) {
  if (d === 1) return [[0, 1]];
  const found = [];
  for (let first = 0; first < d; first += 1) for (let second = first + 1; second < d; second += 1) found.push([first, second]);
  return found;
}

/** The view {x, y, scale}: the centre of the screen in the map's units, and pixels a unit, the same for both axes. */
export function fitted(places, width, height, room) {
  if (!places.length) return { x: 0, y: 0, scale: 1 };
  const [xs, ys] = [places.map(([x]) => x), places.map(([, y]) => y)];
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const wide = Math.max(right - left, 1e-9) * MARGIN;
  const high = Math.max(bottom - top, 1e-9) * MARGIN;
  const scale = Math.min(Math.max(width - room, 60) / wide, Math.max(height - room, 60) / high);
  return { x: (left + right) / 2, y: (top + bottom) / 2, scale };
}

/** Where a place lies on a screen of this size. */
export function onScreen([x, y], view, width, height) {
  return [width / 2 + (x - view.x) * view.scale, height / 2 + (y - view.y) * view.scale];
}

/** The view after zooming by a factor about a point of the screen, which stays where it is. */
export function zoomed(view, factor, [px, py], width, height) {
  const scale = view.scale * factor;
  const dx = (px - width / 2) * (1 / view.scale - 1 / scale);
  const dy = (py - height / 2) * (1 / view.scale - 1 / scale);
  return { x: view.x + dx, y: view.y + dy, scale };
}

export function moved(view, dx, dy) {
  return { ...view, x: view.x - dx / view.scale, y: view.y - dy / view.scale };
}

/** The 95 % ellipse of a covariance on the screen: half axes in the map's units, and the angle of the longer one in degrees. */
export function ellipse(covariance, [first, second]) {
  const xx = covariance[first][first];
  if (second >= covariance.length) return { long: REACH * Math.sqrt(Math.max(0, xx)), short: 0, angle: 0 };
  const yy = covariance[second][second];
  const xy = -covariance[first][second]; // the screen counts downwards
  const middle = (xx + yy) / 2;
  const half = Math.hypot((xx - yy) / 2, xy);
  const angle = (Math.atan2(2 * xy, xx - yy) * 90) / Math.PI;
  return { long: REACH * Math.sqrt(middle + half), short: REACH * Math.sqrt(Math.max(0, middle - half)), angle };
}

/** A round step of the grid, about this many pixels wide. */
export function gridStep(scale, pixels = 90) {
  const wanted = pixels / scale;
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= wanted);
}

/**
 * Labels {x, y, width, half} get a side each so that none lies over another; those without room are left out (null).
 * `half` is half the height of the picture that a label belongs to; earlier labels have their way.
 */
export function placed(labels, height = 14) {
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
