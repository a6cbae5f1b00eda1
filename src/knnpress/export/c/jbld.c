#ifdef KP_REJECT
/* log |X| / 2 from the pivots of X: it is the same for all prototypes, and matters to how far they are. */
static void kp_own(const double *factor, kp_votes *votes) {
  int k;
  votes->own = KP_SHIFT;
  for (k = 0; k < KP_D; k++) votes->own += 0.5 * log(factor[KP_AT(k, k)]);
}
#endif

/* log |(X + Z) / 2| - log |Z| / 2 for KP_LANES prototypes at a time, from the pivots of X + Z. What is missing,
   log |X| / 2, is the same for all. Logarithms are taken of products of several pivots, where they stay in range. */
static int kp_vote_all(const double *point, kp_votes *votes) {
  kp_real x[KP_T], a[KP_T][KP_LANES], row[KP_D][KP_LANES];
  double largest = 0.0;
  int block, group = KP_GROUP, i, j, k, l;
#ifdef KP_WHITENED
  double y[KP_D];
  for (i = 0; i < KP_D; i++) { /* W X W', W lower triangular */
    for (j = 0; j < KP_D; j++)
      for (k = 0, y[j] = 0.0; k <= i; k++)
        y[j] += kp_whitener[KP_AT(i, k)] * point[k > j ? KP_AT(k, j) : KP_AT(j, k)];
    for (j = 0; j <= i; j++) {
      double sum = 0.0;
      for (k = 0; k <= j; k++) sum += y[k] * kp_whitener[KP_AT(j, k)];
      if (!(fabs(sum) <= 1e30)) return 0; /* beyond the range of floats */
      x[KP_AT(i, j)] = (kp_real)sum;
    }
  }
#else
  for (k = 0; k < KP_T; k++) x[k] = point[k];
#endif
  for (i = 0; i < KP_D; i++)
    if (x[KP_AT(i, i)] > largest) largest = x[KP_AT(i, i)];
  if (largest > KP_IN_RANGE) group = 1;
  for (block = 0; block < KP_M; block += KP_LANES) {
    const kp_real *z = kp_matrices + block * KP_T;
    kp_real product[KP_LANES];
    double value[KP_LANES];
    for (l = 0; l < KP_LANES; l++) {
      product[l] = 1;
      value[l] = block + l < KP_M ? kp_offset[block + l] : 0.0;
    }
    for (i = 0; i < KP_D; i++) {
      for (j = 0; j < i; j++) {
        kp_real rest[KP_LANES];
        for (l = 0; l < KP_LANES; l++) rest[l] = x[KP_AT(i, j)] + z[KP_AT(i, j) * KP_LANES + l];
        for (k = 0; k < j; k++)
          for (l = 0; l < KP_LANES; l++) rest[l] -= row[k][l] * a[KP_AT(j, k)][l];
        for (l = 0; l < KP_LANES; l++) row[j][l] = rest[l];
      }
      for (l = 0; l < KP_LANES; l++) row[i][l] = x[KP_AT(i, i)] + z[KP_AT(i, i) * KP_LANES + l];
      for (k = 0; k < i; k++)
        for (l = 0; l < KP_LANES; l++) {
          const kp_real below = row[k][l] * a[KP_AT(k, k)][l]; /* the inverse of a pivot is kept in its place */
          a[KP_AT(i, k)][l] = below;
          row[i][l] -= row[k][l] * below;
        }
      for (l = 0; l < KP_LANES; l++) {
        product[l] *= row[i][l];
        a[KP_AT(i, i)][l] = 1 / row[i][l];
      }
      if ((i + 1) % group == 0 || i + 1 == KP_D)
        for (l = 0; l < KP_LANES; l++) {
          value[l] += kp_log(product[l]);
          product[l] = 1;
        }
    }
    for (l = 0; l < KP_LANES && block + l < KP_M; l++) kp_vote(votes, block + l, value[l]);
  }
  return 1;
}
