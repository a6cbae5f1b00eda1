// A histogram: finite, non-negative and not empty; scaled to sum to one.
function histogram(x) {
  const point = Float64Array.from(x);
  let largest = 0, total = 0, scaled = 0;
  for (const value of point) {
    if (!(value >= 0 && value <= Number.MAX_VALUE)) return null;
    if (value > largest) largest = value;
    total += value;
  }
  if (largest === 0) return null;
  if (Math.abs(total - 1) > 1e-14) { // first by the largest bin: the total may overflow
    for (let k = 0; k < D; k++) scaled += point[k] /= largest;
    for (let k = 0; k < D; k++) point[k] /= scaled;
  }
  for (let k = 0; k < D; k++) if (point[k] < 1e-290) point[k] = 0; // products of such numbers underflow
  return point;
}
