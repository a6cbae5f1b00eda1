/* One of the two histograms of a transport problem. The loops run over all KP_WIDTH bins, so that compilers vectorise
   them; bins without mass are given a scaling that nothing depends on. */
typedef struct {
  kp_real mass[KP_WIDTH], scaling[KP_WIDTH];
  kp_real relaxed[KP_WIDTH], weights[KP_WIDTH]; /* the scaling with its overshoot, and mass * relaxed */
  int bins[KP_D], n_bins;                       /* those that hold mass */
} kp_side;

/* sums = K' weights: eight rows of K at a time, so that sums are seldom stored. */
static void kp_product(const kp_real *kernel, const kp_side *side, kp_real *sums) {
  const int *bins = side->bins, n = side->n_bins;
  const kp_real *w = side->weights;
  kp_real sum[KP_WIDTH] = {0};
  int k, l;
  for (k = 0; k + 8 <= n; k += 8) {
    const kp_real *r0 = kernel + bins[k] * KP_WIDTH, *r1 = kernel + bins[k + 1] * KP_WIDTH;
    const kp_real *r2 = kernel + bins[k + 2] * KP_WIDTH, *r3 = kernel + bins[k + 3] * KP_WIDTH;
    const kp_real *r4 = kernel + bins[k + 4] * KP_WIDTH, *r5 = kernel + bins[k + 5] * KP_WIDTH;
    const kp_real *r6 = kernel + bins[k + 6] * KP_WIDTH, *r7 = kernel + bins[k + 7] * KP_WIDTH;
    const kp_real w0 = w[bins[k]], w1 = w[bins[k + 1]], w2 = w[bins[k + 2]], w3 = w[bins[k + 3]];
    const kp_real w4 = w[bins[k + 4]], w5 = w[bins[k + 5]], w6 = w[bins[k + 6]], w7 = w[bins[k + 7]];
    for (l = 0; l < KP_WIDTH; l++)
      sum[l] += ((w0 * r0[l] + w1 * r1[l]) + (w2 * r2[l] + w3 * r3[l])) +
                ((w4 * r4[l] + w5 * r5[l]) + (w6 * r6[l] + w7 * r7[l]));
  }
  for (; k < n; k++) {
    const kp_real weight = w[bins[k]], *row = kernel + bins[k] * KP_WIDTH;
    for (l = 0; l < KP_WIDTH; l++) sum[l] += weight * row[l];
  }
  for (l = 0; l < KP_WIDTH; l++) sums[l] = sum[l];
}

/* A half-step: scaling = 1 / sums; `relaxed` goes beyond it by a share `relax` of the step. Returns the L1 error of the
   marginal before. */
static double kp_half_step(const kp_real *kernel, const kp_side *from, kp_side *to, kp_real relax) {
  kp_real sums[KP_WIDTH];
  double error[4] = {0};
  int k;
  kp_product(kernel, from, sums);
  for (k = 0; k < KP_WIDTH; k++) {
    const kp_real scaling = 1 / sums[k], found = to->relaxed[k] * sums[k];
    const kp_real ratio = found < KP_MOST ? found : KP_MOST;
    const kp_real above = ratio > (kp_real)0.5 ? ratio : (kp_real)0.5;
    const kp_real relaxed = scaling * (1 + relax * (1 - (above < (kp_real)1.5 ? above : (kp_real)1.5)));
    to->scaling[k] = scaling;
    to->relaxed[k] = relaxed;
    to->weights[k] = to->mass[k] * relaxed;
    sums[k] = to->mass[k] * kp_abs(ratio - 1);
  }
  for (k = 0; k < KP_WIDTH; k += 4) { /* four sums at a time wait less for each other */
    error[0] += sums[k];
    error[1] += sums[k + 1];
    error[2] += sums[k + 2];
    error[3] += sums[k + 3];
  }
  return (error[0] + error[1]) + (error[2] + error[3]);
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
   `limit`. A value above `nearest` weighs less, by exp(-2 KP_LOOSEN (value - nearest)) or more, and its error may be
   larger: half as much in logarithms, so that none counts for more than that of the nearest. */
static double kp_transport(kp_side *x, kp_side *z, double nearest, double limit) {
  double error, other, last = 0.0, amount = KP_RELAX, tol = KP_TOL, seen = -HUGE_VAL;
  kp_real relax = 0; /* the first step has nothing yet to overshoot from */
  int k, step;
  for (k = 0; k < KP_WIDTH; k++) {
    x->relaxed[k] = z->relaxed[k] = 1;
    x->weights[k] = x->mass[k];
  }
  for (step = 1;; step++) {
    other = kp_half_step(kp_kernel, x, z, relax);
    error = kp_half_step(KP_KERNEL_T, z, x, relax);
    if (relax > 0 && other > error) error = other;
    if (!(error >= tol) || step >= KP_MAX_ITER) break;
    if ((step & (step - 1)) == 0 && limit <= DBL_MAX) { /* logarithms are dear: looked at ever more rarely */
      const double value = kp_value(x->mass, x->scaling, z->mass, z->relaxed);
      if (value > limit) break;
      if (value > nearest) tol = KP_TOL * exp(KP_LOOSEN * (value - nearest));
      if (!(tol < KP_LOOSEST)) tol = KP_LOOSEST;
      if (limit - value > 3.0 * (value - seen)) limit = HUGE_VAL; /* it will hardly get there */
      seen = value;
    }
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
  return kp_value(x->mass, x->scaling, z->mass, z->relaxed);
}

static void kp_list_bins(kp_side *side) {
  int k;
  side->n_bins = 0;
  for (k = 0; k < KP_D; k++)
    if (side->mass[k] > 0) side->bins[side->n_bins++] = k;
}

/* The prototype to begin with, so that others are soon known to be too far: the nearest, bin by bin. */
static int kp_first(const kp_side *x) {
  kp_real least = 0;
  int first = 0, j, k;
  for (j = 0; j < KP_M; j++) {
    kp_real sum[2] = {0};
    for (k = 0; k < KP_D; k++) {
      const kp_real gap = x->mass[k] - kp_histograms[j * KP_D + k];
      sum[k & 1] += gap * gap;
    }
    if (j == 0 || sum[0] + sum[1] < least) {
      least = sum[0] + sum[1];
      first = j;
    }
  }
  return first;
}

/* The query's own term of the divergence is the same for all prototypes; it is left out but where points are rejected. */
static int kp_vote_all(const double *point, kp_votes *votes) {
  kp_side x = {{0}, {0}, {0}, {0}, {0}, 0}, z = x;
  int first, i, k;
  for (k = 0; k < KP_D; k++) x.mass[k] = (kp_real)point[k];
  kp_list_bins(&x);
#if defined(KP_REJECT) && defined(KP_DEBIASED)
  z = x;
  votes->own = 0.5 * kp_transport(&x, &z, HUGE_VAL, HUGE_VAL);
#endif
  first = kp_first(&x);
  for (i = 0; i < KP_M; i++) {
    const int j = i == 0 ? first : i <= first ? i - 1 : i;
    double nearest = HUGE_VAL, limit = HUGE_VAL, self = 0.0, distance;
    for (k = 0; k < KP_D; k++) z.mass[k] = kp_histograms[j * KP_D + k];
    kp_list_bins(&z);
#ifndef KP_TRANSPORT
    self = kp_self[j];
    nearest = kp_nearest(votes);
    limit = kp_limit(votes);
#ifdef KP_REJECT
    if (limit < kp_farthest[kp_label[j]] + votes->own) limit = kp_farthest[kp_label[j]] + votes->own;
#endif
#endif
    distance = kp_transport(&x, &z, nearest + self, limit + self) - self;
    kp_vote(votes, j, distance);
#if defined(KP_SOFT) && !defined(KP_TRANSPORT)
    if (distance > limit) kp_leave_open(votes, distance);
#endif
  }
  return 1;
}
