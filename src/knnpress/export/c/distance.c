/* Squared Euclidean distances to KP_LANES prototypes at a time. */
static int kp_vote_all(const double *vector, kp_votes *votes) {
  kp_real v[KP_P];
  int block, k, l;
  for (k = 0; k < KP_P; k++) {
#ifdef KP_CENTERED
    const double from_center = vector[k] - kp_center[k];
    if (!(fabs(from_center) <= 1e15)) return 0; /* its square is beyond the range of floats */
    v[k] = (kp_real)from_center;
#else
    v[k] = vector[k];
#endif
  }
  for (block = 0; block < KP_M; block += KP_LANES) {
    const kp_real *z = kp_vectors + block * KP_P;
    kp_real sum[KP_LANES] = {0};
    for (k = 0; k < KP_P; k++, z += KP_LANES)
      for (l = 0; l < KP_LANES; l++) {
        const kp_real gap = v[k] - z[l];
        sum[l] += gap * gap;
      }
    for (l = 0; l < KP_LANES && block + l < KP_M; l++) kp_vote(votes, block + l, (double)sum[l]);
  }
  return 1;
}
