/* A vector: finite, and small enough for sums of squares. */
static int kp_check(const double *x, double *point) {
  int k;
  for (k = 0; k < KP_D; k++) {
    if (!(fabs(x[k]) <= KP_LARGEST)) return 0;
    point[k] = x[k];
  }
  return 1;
}
