/* A histogram: finite, non-negative and not empty; scaled to sum to one. */
static int kp_check(const double *x, double *point) {
  double largest = 0.0, total = 0.0, scaled = 0.0;
  int k;
  for (k = 0; k < KP_D; k++) {
    if (!(x[k] >= 0.0 && x[k] <= DBL_MAX)) return 0;
    if (x[k] > largest) largest = x[k];
    total += x[k];
  }
  if (largest == 0.0) return 0;
  if (fabs(total - 1.0) > 1e-14) { /* first by the largest bin: the total may overflow */
    for (k = 0; k < KP_D; k++) scaled += point[k] = x[k] / largest;
    for (k = 0; k < KP_D; k++) point[k] /= scaled;
  } else {
    for (k = 0; k < KP_D; k++) point[k] = x[k];
  }
  for (k = 0; k < KP_D; k++)
    if (point[k] < 1e-290) point[k] = 0.0; /* products of such numbers underflow */
  return 1;
}
