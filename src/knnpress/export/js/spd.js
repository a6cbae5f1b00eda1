const at = (i, j) => i * (i + 1) / 2 + j; // of the lower triangle, row by row

// A symmetric positive definite matrix: its lower triangle, and the factors L (below the diagonal) and D of L D L'.
function matrix(x) {
  const point = new Float64Array(at(D, 0)), factor = new Float64Array(at(D, 0)), row = new Float64Array(D);
  let largest = 0, gap = 0;
  for (let i = 0; i < D; i++)
    for (let j = 0; j <= i; j++) {
      const below = Number(x[i * D + j]), above = Number(x[j * D + i]);
      if (!(Math.abs(below) <= Number.MAX_VALUE && Math.abs(above) <= Number.MAX_VALUE)) return null;
      largest = Math.max(largest, Math.abs(below), Math.abs(above));
      gap = Math.max(gap, Math.abs(below - above));
      point[at(i, j)] = 0.5 * below + 0.5 * above;
    }
  if (gap > 1e-8 * largest) return null;
  for (let i = 0; i < D; i++) {
    const variance = point[at(i, i)];
    let pivot = variance;
    if (!(variance >= 1e-290 && variance <= 4e307)) return null;
    for (let j = 0; j < i; j++) {
      let rest = point[at(i, j)];
      for (let k = 0; k < j; k++) rest -= row[k] * factor[at(j, k)];
      row[j] = rest;
      factor[at(i, j)] = rest / factor[at(j, j)];
    }
    for (let k = 0; k < i; k++) pivot -= row[k] * factor[at(i, k)];
    if (!(pivot > D * Number.EPSILON * variance)) return null;
    factor[at(i, i)] = pivot;
  }
  return { point, factor };
}
