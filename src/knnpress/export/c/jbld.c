/* kp_some: some prototypes side by side, one in each place of a vector, where the compiler knows vectors (gcc, clang). */
#if defined(__GNUC__) && !defined(KNNPRESS_NO_VECTORS)
#if defined(__AVX__)
#define KP_BYTES (KP_LANES * sizeof(kp_real))
#else
#define KP_BYTES 16
#endif
#define KP_WIDE (int)(KP_BYTES / sizeof(kp_real))
typedef kp_real kp_some __attribute__((vector_size(KP_BYTES)));
typedef kp_real kp_stored __attribute__((vector_size(KP_BYTES), aligned(sizeof(kp_real)), may_alias));
#define KP_LOAD(from) (*(const kp_stored *)(from))
#define KP_PLACE(vector, l) ((vector)[l])
#else
#define KP_WIDE 1
typedef kp_real kp_some;
#define KP_LOAD(from) (*(from))
#define KP_PLACE(vector, l) (vector)
#endif

#ifdef KP_REJECT
/* log |X| / 2 from the pivots of X: it is the same for all prototypes, and matters to how far they are. */
static void kp_own(const double *factor, kp_votes *votes) {
  int k;
  votes->own = KP_SHIFT;
  for (k = 0; k < KP_D; k++) votes->own += 0.5 * log(factor[KP_AT(k, k)]);
}
#endif

/* log |(X + Z) / 2| - log |Z| / 2 for KP_WIDE prototypes at a time, from the pivots of X + Z. What is missing,
   log |X| / 2, is the same for all. Logarithms are taken of products of several pivots, where they stay in range. */
static int kp_vote_all(const double *point, kp_votes *votes) {
  kp_real x[KP_T];
  kp_some a[KP_T], row[KP_D];
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
  for (block = 0; block < KP_M; block += KP_WIDE) {
    const kp_real *z = kp_matrices + block / KP_LANES * KP_LANES * KP_T + block % KP_LANES;
    kp_some product = {0};
    double value[KP_WIDE] = {0};
    for (i = 0; i < KP_D; i++) {
      const kp_some *left = a; /* row j */
      kp_some *const own = a + KP_AT(i, 0), pivot;
      for (j = 0; j <= i; j++) row[j] = x[KP_AT(i, j)] + KP_LOAD(z + KP_AT(i, j) * KP_LANES);
      for (j = 0; j + 1 < i; j += 2) { /* two columns at a time: their sums do not wait for each other */
        const kp_some *const right = left + j + 1;
        kp_some first = row[j], second = row[j + 1];
        for (k = 0; k < j; k++) {
          first -= row[k] * left[k];
          second -= row[k] * right[k];
        }
        row[j] = first;
        row[j + 1] = second - first * right[j];
        left = right + j + 2;
      }
      if (j < i) {
        kp_some last = row[j];
        for (k = 0; k < j; k++) last -= row[k] * left[k];
        row[j] = last;
      }
      pivot = row[i];
      for (k = 0; k < i; k++) {
        own[k] = row[k] * a[KP_AT(k, k)]; /* the inverse of a pivot is kept in its place */
        pivot -= row[k] * own[k];
      }
      own[i] = 1 / pivot;
      product = i % group == 0 ? pivot : product * pivot;
      if ((i + 1) % group == 0 || i + 1 == KP_D)
        for (l = 0; l < KP_WIDE; l++) value[l] += kp_log(KP_PLACE(product, l));
    }
    for (l = 0; l < KP_WIDE && block + l < KP_M; l++) kp_vote(votes, block + l, value[l] + kp_offset[block + l]);
  }
  return 1;
}
