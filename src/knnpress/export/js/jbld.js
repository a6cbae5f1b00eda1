// log |(X + Z) / 2| - log |Z| / 2, from the pivots of X + Z. What is missing, log |X| / 2, is the same for all.
// own: log |X| / 2
function prepare(x) {
  const checked = matrix(x);
  if (!checked) return null;
  const point = checked.point;
  let own = REJECT ? SHIFT : 0;
  if (REJECT) for (let k = 0; k < D; k++) own += 0.5 * Math.log(checked.factor[at(k, k)]);
  if (!WHITENED) return { point, own };
  const whitened = new Float64Array(T), y = new Float64Array(D);
  for (let i = 0; i < D; i++) { // W X W', W lower triangular
    for (let j = 0; j < D; j++) {
      y[j] = 0;
      for (let k = 0; k <= i; k++) y[j] += tables.whitener[at(i, k)] * point[k > j ? at(k, j) : at(j, k)];
    }
    for (let j = 0; j <= i; j++)
      for (let k = 0; k <= j; k++) whitened[at(i, j)] += y[k] * tables.whitener[at(j, k)];
  }
  return { point: whitened, own };
}

function compare({ point, own }, votes) {
  votes.own = own;
  const z = tables.matrices, a = new Float64Array(T), row = new Float64Array(D);
  for (let m = 0; m < M; m++) {
    const first = (m - m % LANES) * T + m % LANES;
    let value = tables.offset[m];
    for (let i = 0; i < D; i++) {
      for (let j = 0; j < i; j++) {
        let rest = point[at(i, j)] + z[first + at(i, j) * LANES];
        for (let k = 0; k < j; k++) rest -= row[k] * a[at(j, k)];
        row[j] = rest;
      }
      let pivot = point[at(i, i)] + z[first + at(i, i) * LANES];
      for (let k = 0; k < i; k++) {
        a[at(i, k)] = row[k] * a[at(k, k)]; // the inverse of a pivot is kept in its place
        pivot -= row[k] * a[at(i, k)];
      }
      a[at(i, i)] = 1 / pivot;
      value += Math.log(pivot);
    }
    votes.add(m, value);
  }
}
