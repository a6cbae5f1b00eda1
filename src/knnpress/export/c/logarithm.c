/* The logarithm of W X W', as a vector: with X = L D L', Jacobi's rotations make the columns of W L sqrt(D) orthogonal;
   their squared lengths are the eigenvalues, and their directions the eigenvectors. */
static void kp_embed(const double *factor, double *vector) {
  double g[KP_D][KP_D], length[KP_D]; /* g[k]: a column; length: squared */
  int i, j, k, sweep, turned = 1;
  for (k = 0; k < KP_D; k++) {
    const double root = sqrt(factor[KP_AT(k, k)]);
#ifdef KP_WHITENED
    for (i = 0; i < KP_D; i++) {
      double sum = kp_whitener[i * KP_D + k];
      for (j = k + 1; j < KP_D; j++) sum += kp_whitener[i * KP_D + j] * factor[KP_AT(j, k)];
      g[k][i] = sum * root;
    }
#else
    for (i = 0; i < KP_D; i++) g[k][i] = i < k ? 0.0 : i == k ? root : factor[KP_AT(i, k)] * root;
#endif
  }
  for (sweep = 0; turned && sweep < 40; sweep++) {
    turned = 0;
    for (k = 0; k < KP_D; k++)
      for (i = 0, length[k] = 0.0; i < KP_D; i++) length[k] += g[k][i] * g[k][i];
    for (j = 0; j < KP_D; j++)
      for (k = j + 1; k < KP_D; k++) {
        double dot = 0.0, zeta, t, c, s;
        for (i = 0; i < KP_D; i++) dot += g[j][i] * g[k][i];
        if (!(fabs(dot) > 1e-15 * sqrt(length[j]) * sqrt(length[k]))) continue;
        turned = 1;
        zeta = (length[k] - length[j]) / (2.0 * dot);
        t = (zeta < 0.0 ? -1.0 : 1.0) / (fabs(zeta) + sqrt(1.0 + zeta * zeta));
        c = 1.0 / sqrt(1.0 + t * t);
        s = c * t;
        for (i = 0; i < KP_D; i++) {
          const double a = g[j][i], b = g[k][i];
          g[j][i] = c * a - s * b;
          g[k][i] = s * a + c * b;
        }
        length[j] -= t * dot;
        length[k] += t * dot;
        if (length[j] < 0.0) length[j] = 0.0;
        if (length[k] < 0.0) length[k] = 0.0;
      }
  }
  for (i = 0; i < KP_P; i++) vector[i] = 0.0;
  for (k = 0; k < KP_D; k++) {
    double square = 0.0, value;
    for (i = 0; i < KP_D; i++) square += g[k][i] * g[k][i];
    if (!(square > DBL_MIN)) square = DBL_MIN;
    value = log(square) / square;
    for (i = 0, sweep = 0; i < KP_D; i++)
      for (j = i; j < KP_D; j++) vector[sweep++] += value * (i == j ? 1.0 : 1.4142135623730951) * g[k][i] * g[k][j];
  }
}
