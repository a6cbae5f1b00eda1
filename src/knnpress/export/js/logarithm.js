// The logarithm of W X W', as a vector: with X = L D L', Jacobi's rotations make the columns of W L sqrt(D) orthogonal;
// their squared lengths are the eigenvalues, and their directions the eigenvectors.
function prepare(x) {
  const checked = matrix(x);
  if (!checked) return null;
  const factor = checked.factor, g = [], vector = new Float64Array(P);
  for (let k = 0; k < D; k++) {
    const root = Math.sqrt(factor[at(k, k)]), column = new Float64Array(D);
    for (let i = 0; i < D; i++) {
      if (WHITENED) {
        let sum = tables.whitener[i * D + k];
        for (let j = k + 1; j < D; j++) sum += tables.whitener[i * D + j] * factor[at(j, k)];
        column[i] = sum * root;
      } else {
        column[i] = i < k ? 0 : i === k ? root : factor[at(i, k)] * root;
      }
    }
    g.push(column);
  }
  const dot = (a, b) => {
    let sum = 0;
    for (let i = 0; i < D; i++) sum += a[i] * b[i];
    return sum;
  };
  for (let sweep = 0, turned = true; turned && sweep < 40; sweep++) {
    turned = false;
    const length = g.map((column) => dot(column, column));
    for (let j = 0; j < D; j++)
      for (let k = j + 1; k < D; k++) {
        const both = dot(g[j], g[k]);
        if (!(Math.abs(both) > 1e-15 * Math.sqrt(length[j]) * Math.sqrt(length[k]))) continue;
        turned = true;
        const zeta = (length[k] - length[j]) / (2 * both);
        const t = (zeta < 0 ? -1 : 1) / (Math.abs(zeta) + Math.sqrt(1 + zeta * zeta));
        const c = 1 / Math.sqrt(1 + t * t), s = c * t;
        for (let i = 0; i < D; i++) {
          const a = g[j][i], b = g[k][i];
          g[j][i] = c * a - s * b;
          g[k][i] = s * a + c * b;
        }
        length[j] = Math.max(length[j] - t * both, 0);
        length[k] = Math.max(length[k] + t * both, 0);
      }
  }
  for (const column of g) {
    const square = Math.max(dot(column, column), 2.2250738585072014e-308), value = Math.log(square) / square;
    for (let i = 0, next = 0; i < D; i++)
      for (let j = i; j < D; j++) vector[next++] += value * (i === j ? 1 : Math.SQRT2) * column[i] * column[j];
  }
  return vector;
}
