#define KP_AT(i, j) ((i) * ((i) + 1) / 2 + (j)) /* of the lower triangle, row by row */

/* A symmetric positive definite matrix: its lower triangle, and the factors L (below the diagonal) and D of L D L'. */
static int kp_check(const double *x, double *point, double *factor) {
  double largest = 0.0, gap = 0.0, row[KP_D];
  int i, j, k;
  for (i = 0; i < KP_D; i++)
    for (j = 0; j <= i; j++) {
      const double below = x[i * KP_D + j], above = x[j * KP_D + i];
      if (!(fabs(below) <= DBL_MAX && fabs(above) <= DBL_MAX)) return 0;
      if (fabs(below) > largest) largest = fabs(below);
      if (fabs(above) > largest) largest = fabs(above);
      if (fabs(below - above) > gap) gap = fabs(below - above);
      point[KP_AT(i, j)] = 0.5 * below + 0.5 * above;
    }
  if (gap > 1e-8 * largest) return 0;
  for (i = 0; i < KP_D; i++) {
    const double variance = point[KP_AT(i, i)];
    if (!(variance >= 1e-290 && variance <= 4e307)) return 0;
    for (j = 0; j <= i; j++) {
      double rest = point[KP_AT(i, j)];
      for (k = 0; k < j; k++) rest -= row[k] * factor[KP_AT(j, k)];
      if (j < i) {
        row[j] = rest;
        factor[KP_AT(i, j)] = rest / factor[KP_AT(j, j)];
      } else {
        for (k = 0, rest = variance; k < i; k++) rest -= row[k] * factor[KP_AT(i, k)];
        if (!(rest > KP_D * DBL_EPSILON * variance)) return 0;
        factor[KP_AT(i, i)] = rest;
      }
    }
  }
  return 1;
}
