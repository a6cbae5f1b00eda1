// Squared Euclidean distances.
function compare(vector, votes) {
  const z = tables.vectors;
  if (CENTERED) for (let k = 0; k < P; k++) vector[k] -= tables.center[k];
  for (let j = 0; j < M; j++) {
    let sum = 0;
    for (let k = 0, at = (j - j % LANES) * P + j % LANES; k < P; k++, at += LANES) sum += (vector[k] - z[at]) ** 2;
    votes.add(j, sum);
  }
}
