// The covariance of a window, shrunk by as much as its own samples call for, is compared in place of a matrix. samples:
// of D channels, n of each (at least 2), one channel after the other.
export function predictWindow(samples, n, probabilities = null) {
  if (samples.length !== D * n) throw new RangeError(`samples holds ${samples.length} numbers; give ${D} times n`);
  if (n < 2) return -1;
  const x = new Float64Array(D * D), centred = Float64Array.from(samples);
  for (let i = 0; i < D; i++) {
    let mean = 0;
    for (let t = 0; t < n; t++) mean += centred[i * n + t] / n;
    for (let t = 0; t < n; t++) centred[i * n + t] -= mean;
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let t = 0; t < n; t++) sum += centred[i * n + t] * centred[j * n + t];
      x[i * D + j] = x[j * D + i] = sum / n;
    }
  }
  if (WINDOW !== "empirical") {
    let squares = 0, variance = 0, share = 0; // of all entries, and the mean of the channels' variances
    for (let i = 0; i < D; i++) variance += x[i * D + i] / D;
    for (const value of x) squares += value * value;
    if (!(squares <= Number.MAX_VALUE)) return -1;
    if (WINDOW === "oas") {
      const ofEntry = squares / (D * D), spread = ofEntry - variance * variance / D;
      share = spread > 0 ? (ofEntry + variance * variance) / ((n + 1) * spread) : 1;
    } else { // Ledoit and Wolf
      const spread = squares - D * variance * variance; // from a multiple of the identity
      let noise = 0;
      for (let t = 0; t < n; t++) {
        let length = 0;
        for (let i = 0; i < D; i++) length += centred[i * n + t] ** 2;
        noise += length * length / n;
      }
      noise = (noise - squares) / n;
      share = noise > 0 ? noise / spread : 0;
    }
    if (!(share < 1)) share = 1;
    for (let k = 0; k < D * D; k++) x[k] = (1 - share) * x[k] + (k % (D + 1) === 0 ? share * variance : 0);
  }
  return predict(x, probabilities);
}
