#define KP_ROOM ((KP_D + 3) / 4 * 4) /* columns are filled up with zeros, so that compilers vectorise loops over them */

static double kp_dot(const double *a, const double *b) {
  double sum[4] = {0};
  int i;
  for (i = 0; i < KP_ROOM; i += 4) { /* four sums at a time wait less for each other */
    sum[0] += a[i] * b[i];
    sum[1] += a[i + 1] * b[i + 1];
    sum[2] += a[i + 2] * b[i + 2];
    sum[3] += a[i + 3] * b[i + 3];
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void kp_rotate(double *a, double *b, double c, double s) {
  double turned_a[KP_ROOM], turned_b[KP_ROOM];
  int i;
  for (i = 0; i < KP_ROOM; i++) {
    turned_a[i] = c * a[i] - s * b[i];
    turned_b[i] = s * a[i] + c * b[i];
  }
  for (i = 0; i < KP_ROOM; i++) a[i] = turned_a[i];
  for (i = 0; i < KP_ROOM; i++) b[i] = turned_b[i];
}

/* The logarithm of W X W', as a vector: with X = L D L', Jacobi's rotations make the columns of W L sqrt(D) orthogonal;
   their squared lengths are the eigenvalues, and their directions the eigenvectors. */
static void kp_embed(const double *factor, double *vector) {
  double g[KP_D][KP_ROOM], length[KP_D]; /* g[k]: a column; length: squared */
  int i, j, k, sweep, turned = 1;
  for (k = 0; k < KP_D; k++) {
    const double root = sqrt(factor[KP_AT(k, k)]);
    for (i = KP_D; i < KP_ROOM; i++) g[k][i] = 0.0;
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
    for (k = 0; k < KP_D; k++) length[k] = kp_dot(g[k], g[k]);
    for (j = 0; j < KP_D; j++)
      for (k = j + 1; k < KP_D; k++) {
        const double dot = kp_dot(g[j], g[k]);
        double zeta, t, c;
        if (!(fabs(dot) > 1e-15 * sqrt(length[j]) * sqrt(length[k]))) continue;
        turned = 1;
        zeta = (length[k] - length[j]) / (2.0 * dot);
        t = (zeta < 0.0 ? -1.0 : 1.0) / (fabs(zeta) + sqrt(1.0 + zeta * zeta));
        c = 1.0 / sqrt(1.0 + t * t);
        kp_rotate(g[j], g[k], c, c * t);
        length[j] -= t * dot;
        length[k] += t * dot;
        if (length[j] < 0.0) length[j] = 0.0;
        if (length[k] < 0.0) length[k] = 0.0;
      }
  }
  for (i = 0; i < KP_P; i++) vector[i] = 0.0;
  for (k = 0; k < KP_D; k++) {
    double square = kp_dot(g[k], g[k]), value;
    if (!(square > DBL_MIN)) square = DBL_MIN;
    value = log(square) / square;
    for (i = 0, sweep = 0; i < KP_D; i++)
      for (j = i; j < KP_D; j++) vector[sweep++] += value * (i == j ? 1.0 : 1.4142135623730951) * g[k][i] * g[k][j];
  }
}
