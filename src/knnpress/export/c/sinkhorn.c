/* out = K' weights, over the bins listed: four rows of K at a time, so that sums are seldom stored. */
static void kp_product(const kp_real *kernel, const kp_real *weights, const int *bins, int n_bins, kp_real *out) {
  kp_real sum[KP_WIDTH];
  int k, l;
  for (l = 0; l < KP_WIDTH; l++) out[l] = 0;
  for (k = 0; k + 4 <= n_bins; k += 4) {
    const kp_real *r0 = kernel + bins[k] * KP_WIDTH, *r1 = kernel + bins[k + 1] * KP_WIDTH;
    const kp_real *r2 = kernel + bins[k + 2] * KP_WIDTH, *r3 = kernel + bins[k + 3] * KP_WIDTH;
    const kp_real w0 = weights[bins[k]], w1 = weights[bins[k + 1]], w2 = weights[bins[k + 2]], w3 = weights[bins[k + 3]];
    for (l = 0; l < KP_WIDTH; l++) sum[l] = out[l] + ((w0 * r0[l] + w1 * r1[l]) + (w2 * r2[l] + w3 * r3[l]));
    for (l = 0; l < KP_WIDTH; l++) out[l] = sum[l];
  }
  for (; k < n_bins; k++) {
    const kp_real w = weights[bins[k]], *row = kernel + bins[k] * KP_WIDTH;
    for (l = 0; l < KP_WIDTH; l++) out[l] += w * row[l];
  }
}

/* A half-step: scaling = 1 / sums; `relaxed` goes beyond it by a share `relax` of the step. Returns the L1 error of the
   marginal before. */
static double kp_half_step(const kp_real *mass, const kp_real *sums, kp_real relax, kp_real *scaling, kp_real *relaxed,
                           kp_real *weights) {
  double error = 0.0;
  int k;
  for (k = 0; k < KP_D; k++) {
    kp_real ratio, step;
    if (!(mass[k] > 0)) continue;
    scaling[k] = 1 / sums[k];
    ratio = relaxed[k] * sums[k];
    if (!(ratio < KP_MOST)) ratio = KP_MOST;
    step = ratio < (kp_real)0.5 ? (kp_real)0.5 : ratio > (kp_real)1.5 ? (kp_real)1.5 : ratio;
    relaxed[k] = scaling[k] * (1 + relax * (1 - step));
    weights[k] = mass[k] * relaxed[k];
    error += mass[k] * kp_abs(ratio - 1);
  }
  return error;
}

#ifndef KP_TRANSPORT
/* The dual value of two scalings. */
static double kp_value(const kp_real *a, const kp_real *x, const kp_real *b, const kp_real *z) {
  double value = 0.0;
  int k;
  for (k = 0; k < KP_D; k++) {
    if (a[k] > 0) value += a[k] * kp_log(x[k]);
    if (b[k] > 0) value += b[k] * kp_log(z[k]);
  }
  return KP_REG * value;
}
#else
/* <T, M> of the plan T = x K z, rounded to the marginals (Altschuler, Weed, Rigollet 2017): columns too heavy are scaled
   down, and what is then missing is sent between rows and columns in proportion. Rows are as they should be. */
static double kp_value(const kp_real *a, const kp_real *x, const kp_real *b, const kp_real *z) {
  double paid = 0.0, rest = 0.0, missing = 0.0, left_a[KP_D], left_b[KP_D], factor[KP_D];
  int i, j;
  for (j = 0; j < KP_D; j++) {
    double sum = 0.0;
    for (i = 0; i < KP_D; i++)
      if (a[i] > 0 && b[j] > 0) sum += (double)a[i] * x[i] * kp_kernel[i * KP_WIDTH + j];
    sum *= b[j] > 0 ? (double)b[j] * z[j] : 0.0;
    factor[j] = sum > b[j] ? b[j] / sum : 1.0;
    left_b[j] = b[j] - factor[j] * sum;
    if (left_b[j] < 0.0) left_b[j] = 0.0;
  }
  for (i = 0; i < KP_D; i++) {
    double sum = 0.0;
    for (j = 0; j < KP_D; j++)
      if (a[i] > 0 && b[j] > 0) {
        const double mass = (double)a[i] * x[i] * kp_kernel[i * KP_WIDTH + j] * b[j] * z[j] * factor[j];
        sum += mass;
        paid += mass * kp_cost[i * KP_D + j];
      }
    left_a[i] = a[i] > sum ? a[i] - sum : 0.0;
    missing += left_a[i];
  }
  for (i = 0; i < KP_D; i++)
    for (j = 0; j < KP_D; j++) rest += left_a[i] * left_b[j] * kp_cost[i * KP_D + j];
  return missing > 0.0 ? paid + rest / missing : paid;
}
#endif

/* Entropic transport by over-relaxed scaling: at most KP_MAX_ITER iterations, until the L1 error of the marginals is
   below KP_TOL. Any scalings give a value that is not above the solved one: it is given up once known to be above
   `limit`. */
static double kp_transport(const kp_real *a, const int *bins_x, int n_x, const kp_real *b, const int *bins_z, int n_z,
                           double limit) {
  kp_real x[KP_WIDTH], z[KP_WIDTH], relaxed_x[KP_WIDTH], relaxed_z[KP_WIDTH];
  kp_real weights_x[KP_WIDTH], weights_z[KP_WIDTH], sums[KP_WIDTH], relax = 0;
  double error, other, last = 0.0, amount = 0.0;
  int k, step;
  for (k = 0; k < KP_D; k++) {
    x[k] = z[k] = relaxed_x[k] = relaxed_z[k] = 1;
    weights_x[k] = a[k];
    weights_z[k] = b[k];
  }
  for (step = 1;; step++) {
    kp_product(kp_kernel, weights_x, bins_x, n_x, sums);
    other = kp_half_step(b, sums, relax, z, relaxed_z, weights_z);
    kp_product(KP_KERNEL_T, weights_z, bins_z, n_z, sums);
    error = kp_half_step(a, sums, relax, x, relaxed_x, weights_x);
    if (relax > 0 && other > error) error = other;
    if (!(error >= KP_TOL) || step >= KP_MAX_ITER) break;
    if ((step & (step - 1)) == 0 && limit <= DBL_MAX && kp_value(a, x, b, relaxed_z) > limit) break;
    if (step % 8 == 0) { /* how far to overshoot, from how fast the error falls */
      const double rate = sqrt(sqrt(sqrt(error / last)));
      if (step > 8 && !(rate < 1.0)) {
        amount *= 0.5;
      } else if (step > 8 && rate > amount + 1e-3) {
        const double omega = 1.0 + amount, both = rate + amount;
        double q = both * both / (rate * omega * omega), best;
        if (!(q < 0.9999)) q = 0.9999;
        best = 2.0 / (1.0 + sqrt(1.0 - q)) - 1.0;
        if (best > amount) amount = best < 0.95 ? best : 0.95;
      }
      last = error;
    }
    relax = (kp_real)amount;
  }
  return kp_value(a, x, b, relaxed_z);
}

/* The query's own term of the divergence is the same for all prototypes; it is left out but where points are rejected. */
static int kp_vote_all(const double *point, kp_votes *votes) {
  kp_real a[KP_WIDTH] = {0}, b[KP_WIDTH] = {0};
  int bins_x[KP_D], bins_z[KP_D], n_x = 0, n_z, j, k;
  for (k = 0; k < KP_D; k++) {
    a[k] = (kp_real)point[k];
    if (a[k] > 0) bins_x[n_x++] = k;
  }
#if defined(KP_REJECT) && defined(KP_DEBIASED)
  votes->own = 0.5 * kp_transport(a, bins_x, n_x, a, bins_x, n_x, HUGE_VAL);
#endif
  for (j = 0; j < KP_M; j++) {
    double limit = HUGE_VAL, self = 0.0;
    for (k = 0, n_z = 0; k < KP_D; k++) {
      b[k] = kp_histograms[j * KP_D + k];
      if (b[k] > 0) bins_z[n_z++] = k;
    }
#ifndef KP_TRANSPORT
    self = kp_self[j];
    limit = kp_limit(votes);
#ifdef KP_REJECT
    if (limit < kp_farthest[kp_label[j]] + votes->own) limit = kp_farthest[kp_label[j]] + votes->own;
#endif
#endif
    kp_vote(votes, j, kp_transport(a, bins_x, n_x, b, bins_z, n_z, limit + self) - self);
  }
  return 1;
}
