// Entropic optimal transport between many pairs of histograms that share one ground cost C = M / reg.
//
// The plan of a pair is T = a sx K sz b with K = exp(-C); a half-step is s = 1 / (K' (marginal * other s)). In logs,
// s = exp(potential / reg). Two solvers compute the same thing:
//   - shared: one pair per SIMD lane, all lanes multiply the same K, a matrix product in registers. A lane that has
//     converged is given the next pair at once, so no lane waits for another. Scalings are doubles, or floats, twice
//     as many, where marginals need not be met closely; potentials and values are doubles in any case.
//   - Newton: one pair at a time, over the bins that hold mass. It takes over the pairs that converge slowly there,
//     and all of them where exp(-C) would underflow; then reg falls to what it should be in several stages.
#include "lanes.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr int kVectors = 3;                      // vectors of pairs in a register tile
constexpr int kRows = kAccumulators / kVectors;  // bins in a register tile
template <class T>
constexpr int kPairs = kVectors * Vector<T>::lanes;  // pairs in flight
template <class T>
constexpr T kMost = sizeof(T) == 8 ? T(1e100) : T(1e30);
constexpr int kSlow = 100;  // iterations

INLINE int64_t vectors_of(const SinkhornTables& t) { return int64_t(t.padded_bins) * kVectors; }

// The lanes' state, arrays (padded_bins, kPairs<T>); bins beyond n_bins hold marginal 0.
template <class T>
struct Side {
  T *marginal, *scaling;  // a bin's mass, and s of the last half-step
  T *relaxed, *scaled;    // s with its overshoot, and marginal * relaxed
};
template <class T>
struct Lanes {
  Side<T> x, z;
};
constexpr int kArrays = 8;

constexpr int kColumns = 4, kFull = 2, kCompact = 16;  // vectors of padded_bins beside the lanes, see below
int64_t sinkhorn_work(const SinkhornTables& t) {
  const int64_t padded = t.padded_bins, tables = 4 * padded * padded;
  return kArrays * vectors_of(t) * W + (kColumns + kFull + kCompact) * padded + tables;
}
template <class T>
INLINE Lanes<T> carve_lanes(const SinkhornTables& t, double* work) {
  const int64_t n = vectors_of(t) * Vector<T>::lanes;
  T* p = reinterpret_cast<T*>(work);
  for (int64_t k = 0; k < kArrays * n; k++) p[k] = 0;
  return {{p, p + n, p + 2 * n, p + 3 * n}, {p + 4 * n, p + 5 * n, p + 6 * n, p + 7 * n}};
}
INLINE double* after_lanes(const SinkhornTables& t, double* work) { return work + kArrays * vectors_of(t) * W; }

template <class T>
INLINE auto vectors(const T* p) { return reinterpret_cast<const typename Vector<T>::type*>(p); }
template <class T>
INLINE auto vectors(T* p) { return reinterpret_cast<typename Vector<T>::type*>(p); }
template <class T>
INLINE const T* kernel_of(const SinkhornTables& t, bool transposed) {
  if constexpr (sizeof(T) == 8) return transposed ? t.kernel_t : t.kernel;
  else return transposed ? t.kernel_t_single : t.kernel_single;
}

// sums = kernel input for one tile of kRows bins. A function of its own: the product needs every register.
template <class T, class X = typename Vector<T>::type>
__attribute__((noinline)) void multiply_tile(const T* kernel, const X* input, int n_bins, X* sums) {
  X acc[kRows][kVectors] = {};
  for (int k = 0; k < n_bins; k++, kernel += kRows, input += kVectors)
    for (int r = 0; r < kRows; r++) {
      const T x = kernel[r];
      for (int v = 0; v < kVectors; v++) acc[r][v] += x * input[v];
    }
  for (int r = 0; r < kRows; r++)
    for (int v = 0; v < kVectors; v++) sums[r * kVectors + v] = acc[r][v];
}

// scaling = 1 / (kernel input). The scaled marginal overshoots by a share `relax` (over-relaxation), to first order
// in the step and never by more than half of it. Adds the L1 error of the marginal before the step to `error`.
template <class T, class X = typename Vector<T>::type>
void half_step(const T* kernel, const SinkhornTables& t, const T* input, const Side<T>& side,
               const X (&relax)[kVectors], X (&error)[kVectors]) {
  const X* marginals = vectors(side.marginal);
  X *scalings = vectors(side.scaling), *relaxeds = vectors(side.relaxed), *scaleds = vectors(side.scaled);
  X e[kVectors] = {};
  const T one = 1, half = T(0.5), more = T(1.5);
  for (int64_t i = 0; i < t.n_bins; i += kRows) {
    multiply_tile(kernel + i * t.n_bins, vectors(input), t.n_bins, scalings + i * kVectors);
    for (int64_t row = i * kVectors; row < (i + kRows) * kVectors; row += kVectors)
      for (int v = 0; v < kVectors; v++) {
        const int64_t at = row + v;
        const X scaling = one / scalings[at], marginal = marginals[at];
        const X ratio = min(relaxeds[at] * scalings[at], splat(kMost<T>));  // of the marginal before to what it should be
        const X relaxed = scaling * (one + relax[v] * (one - min(max(ratio, splat(half)), splat(more))));
        e[v] += marginal * abs(ratio - one);
        scalings[at] = scaling;
        relaxeds[at] = relaxed;
        scaleds[at] = marginal * relaxed;
      }
  }
  for (int v = 0; v < kVectors; v++) error[v] += e[v];
}

// How far to overshoot, learnt by each lane from how fast its own error falls.
struct Relaxation {
  double amount, error;
};
constexpr int kWindow = 8;  // iterations between two looks
INLINE void adapt(Relaxation& relax, double error, bool first) {
  const double ratio = error / relax.error, rate = __builtin_sqrt(__builtin_sqrt(__builtin_sqrt(ratio)));
  relax.error = error;
  if (first) return;
  if (!(rate < 1.0)) {
    relax.amount *= 0.5;
  } else if (rate > relax.amount + 1e-3) {
    // Young's relation between the rate of an over-relaxed sweep and that of a plain one, q; then the best amount
    const double omega = 1.0 + relax.amount, sum = rate + relax.amount;
    double q = sum * sum / (rate * omega * omega);
    q = q < 0.9999 ? q : 0.9999;
    const double best = 2.0 / (1.0 + __builtin_sqrt(1.0 - q)) - 1.0;
    if (best > relax.amount) relax.amount = best < 0.95 ? best : 0.95;
  }
}

// sum_k weight_k log(scaling_k); puts the logs in the place of the scalings
INLINE double dot_log(const double* weight, double* scaling, int padded) {
  V total = {};
  for (int k = 0; k < padded; k += W) {
    const V logs = log(load(scaling + k));
    total += load(weight + k) * logs;
    store(scaling + k, logs);
  }
  return sum(total);
}

// sum_ij a_i table[i, j] b_j
INLINE double bilinear(const double* a, const double* table, const double* b, const SinkhornTables& t) {
  double total = 0;
  for (int i = 0; i < t.n_bins; i++) {
    V row = {};
    const double* k = table + int64_t(i) * t.padded_bins;
    for (int j = 0; j < t.padded_bins; j += W) row += load(k + j) * load(b + j);
    total += a[i] * sum(row);
  }
  return total;
}

// out = kernel v, for a tiled kernel
INLINE void multiply_tiled(const double* kernel, const double* v, const SinkhornTables& t, double* out) {
  for (int i = 0; i < t.n_bins; i += kRows, kernel += int64_t(t.n_bins) * kRows) {
    constexpr int kTerms = 4;  // sums in flight
    V acc[kTerms][kRows / W] = {};
    int j = 0;
    for (; j + kTerms <= t.n_bins; j += kTerms)
      for (int k = 0; k < kTerms; k++)
        for (int r = 0; r < kRows / W; r++) acc[k][r] += load(kernel + int64_t(j + k) * kRows + r * W) * v[j + k];
    for (; j < t.n_bins; j++)
      for (int r = 0; r < kRows / W; r++) acc[0][r] += load(kernel + int64_t(j) * kRows + r * W) * v[j];
    for (int r = 0; r < kRows / W; r++) store(out + i + r * W, (acc[0][r] + acc[1][r]) + (acc[2][r] + acc[3][r]));
  }
}

// <T, M> of the plan T = x K z, rounded to the marginals a and b (Altschuler, Weed, Rigollet 2017): rows and columns
// too heavy are scaled down, and what is then missing is sent between them in proportion. x, z, a and b are consumed.
// `exact`: rows are as they should be.
INLINE double rounded_transport(double* a, double* x, double* b, double* z, bool exact, const SinkhornTables& t,
                                double* sums) {
  const int d = t.n_bins;
  double missing = 0;
  auto scale_down = [&](const double* kernel, double* own, const double* other, const double* wanted) {
    multiply_tiled(kernel, other, t, sums);
    for (int k = 0; k < d; k++)
      if (own[k] * sums[k] > wanted[k]) own[k] = wanted[k] / sums[k];
  };
  if (!exact) scale_down(t.kernel, x, z, a);
  scale_down(t.kernel_t, z, x, b);
  const double value = bilinear(x, t.plan_cost, z, t);
  auto take_off = [&](const double* own, double* wanted) {
    for (int k = 0; k < d; k++) {
      const double left = wanted[k] - own[k] * sums[k];
      wanted[k] = left > 0 ? left : 0.0;
    }
  };
  take_off(z, b);  // sums are those of the columns still
  multiply_tiled(t.kernel, z, t, sums);
  take_off(x, a);
  for (int k = 0; k < d; k++) missing += a[k];
  return missing > 0 ? value + t.reg * bilinear(a, t.cost, b, t) / missing : value;
}

// exp(potential / reg), shifted so that its a-weighted mean log is zero (a pair's potentials are free by a constant)
INLINE void scaling_of(const double* potential, const double* a, const SinkhornTables& t, double* out) {
  double mean = 0;
  for (int k = 0; k < t.n_bins; k++) mean += a[k] * potential[k];
  for (int k = 0; k < t.n_bins; k++) out[k] = (potential[k] - mean) / t.reg;
  for (int k = t.n_bins; k < t.padded_bins; k++) out[k] = 0.0;
  for (int k = 0; k < t.padded_bins; k += W) store(out + k, exp(min(load(out + k), splat(700.0))));
}

// What is good enough for a pair.
INLINE double tol_of(const SinkhornJob& job, int64_t p) { return job.tols ? job.tols[p] : job.tol; }

// A pair that nobody needs.
INLINE void leave_out(const SinkhornJob& job, int64_t p) {
  job.value[p] = __builtin_inf(), job.iterations[p] = 0, job.error[p] = 0.0;
}

// ---- Newton's method, one pair at a time ----------------------------------------------------------------------

// Potentials / reg of all bins.
struct Full {
  double *x, *z;
};
INLINE Full carve_full(const SinkhornTables& t, double* work) {
  double* p = after_lanes(t, work) + kColumns * int64_t(t.padded_bins);
  return {p, p + t.padded_bins};
}
INLINE void start_potential(const SinkhornTables& t, const double* potential, double* x) {
  for (int k = 0; k < t.padded_bins; k++) x[k] = potential && k < t.n_bins ? potential[k] / t.reg : 0.0;
}

// out_j = -log sum_i weight_i exp(potential_i - cost[i, j])
INLINE void log_step(const double* cost, const SinkhornTables& t, const double* weight, const double* potential,
                     double* out) {
  for (int j = 0; j < t.padded_bins; j += W) {
    V top = splat(-1.7e308), total = {};
    for (int i = 0; i < t.n_bins; i++)
      if (weight[i] > 0) top = max(top, potential[i] - load(cost + int64_t(i) * t.padded_bins + j));
    for (int i = 0; i < t.n_bins; i++)
      if (weight[i] > 0) total += weight[i] * exp(potential[i] - load(cost + int64_t(i) * t.padded_bins + j) - top);
    store(out + j, -(top + log(max(total, splat(kSmallestNormal)))));
  }
}

// A pair, over the bins that hold mass. The side with fewer of them is called x here, whichever it is outside. Tables
// are (m, width): a row per bin of z, so that sums over bins of x run along vectors.
struct Pair {
  bool swapped;
  int n, m, width;          // bins of x, of z, and n padded
  int32_t *bin_x, *bin_z;   // which they are
  double *a, *b, *log_a, *log_b;
  double *x, *z;            // potentials / reg; z is the best for x
  double *rows;             // T 1, which should be a
  double *step, *change;    // of x, times scale: Newton's, and as reg changes
  double *trial_x, *trial_z, *pivots, *scratch;
  double *cost, *plan, *trial, *hessian;
  double scale;             // the final reg over that of now
  double moved;             // how far x, times scale, has moved since the plan was made by logs
};
constexpr double kNoMass = 1e-15;  // what a bin may hold and count as empty: all of them together are rounding
constexpr int kTile = 4;  // rows of a tile of the Hessian

INLINE int compact(const double* from, int n_bins, int padded, int32_t* bins, double* mass, double* log_mass) {
  int n = 0;
  for (int k = 0; k < n_bins; k++)
    if (from[k] > kNoMass) bins[n] = k, mass[n++] = from[k];
  for (int k = n; k < padded; k++) mass[k] = 0.0;
  for (int k = 0; k < padded; k += W) store(log_mass + k, log(max(load(mass + k), splat(kSmallestNormal))));
  for (int k = n; k < padded; k++) log_mass[k] = -1e30;
  return n;
}

// From the start in s.x, or for a swapped pair the answer to it.
INLINE Pair make_pair(const SinkhornTables& t, const double* a, const double* b, const Full& s, double* work) {
  const int64_t padded = t.padded_bins;
  double* v = s.z + padded;
  Pair p;
  int n_x = 0, n_z = 0;
  for (int k = 0; k < t.n_bins; k++) n_x += a[k] > kNoMass, n_z += b[k] > kNoMass;
  p.swapped = n_z < n_x;
  if (p.swapped) log_step(t.cost, t, a, s.x, s.z);
  auto next = [&](int64_t size) { return v += size, v - size; };
  p.bin_x = reinterpret_cast<int32_t*>(next(padded)), p.bin_z = reinterpret_cast<int32_t*>(next(padded));
  double** const vectors[] = {&p.a,    &p.b,      &p.log_a,   &p.log_b,   &p.x,      &p.z,      &p.rows,
                              &p.step, &p.change, &p.trial_x, &p.trial_z, &p.pivots, &p.scratch};
  for (double** to : vectors) *to = next(padded);
  v = after_lanes(t, work) + (kColumns + kFull + kCompact) * padded;
  double** const tables[] = {&p.cost, &p.plan, &p.trial, &p.hessian};
  for (double** to : tables) *to = next(padded * padded);
  p.n = compact(p.swapped ? b : a, t.n_bins, t.padded_bins, p.bin_x, p.a, p.log_a);
  p.m = compact(p.swapped ? a : b, t.n_bins, t.padded_bins, p.bin_z, p.b, p.log_b);
  constexpr int kStep = W > kTile ? W : kTile;
  p.width = (p.n + kStep - 1) / kStep * kStep;
  const double *cost = p.swapped ? t.cost : t.cost_t, *start = p.swapped ? s.z : s.x;
  for (int j = 0; j < p.m; j++)
    for (int i = 0; i < p.width; i++)
      p.cost[int64_t(j) * p.width + i] = i < p.n ? cost[p.bin_z[j] * padded + p.bin_x[i]] : 0.0;
  for (int i = 0; i < padded; i++) p.x[i] = i < p.n ? start[p.bin_x[i]] : 0.0, p.z[i] = 0.0, p.step[i] = p.change[i] = 0.0;
  p.scale = 1.0;
  return p;
}

INLINE double largest(V x) {
  double most = x[0];
  for (int l = 1; l < W; l++) most = x[l] > most ? x[l] : most;
  return most;
}

INLINE void sum_rows(Pair& p) {
  for (int i = 0; i < p.width; i += W) {
    V total = {};
    for (int j = 0; j < p.m; j++) total += load(p.plan + int64_t(j) * p.width + i);
    store(p.rows + i, total);
  }
}

INLINE double row_error(const Pair& p) {
  V total = {};
  for (int i = 0; i < p.width; i += W) total += abs(load(p.rows + i) - load(p.a + i));
  return sum(total);
}

// z, the best for x, and their plan, by logs. Entries that are next to nothing are left out: products of them would be
// denormal, and slow. They may matter again once potentials have moved by some kFarAway.
constexpr double kNegligible = 180.0, kFarAway = 40.0;
void answer(const Pair& p, const double* x, double* z, double* plan) {
  for (int j = 0; j < p.m; j++, plan += p.width) {
    const double* cost = p.cost + int64_t(j) * p.width;
    V most = splat(-1.7e308), total = {};
    for (int i = 0; i < p.width; i += W) {
      const V log_term = p.scale * (load(x + i) - load(cost + i)) + load(p.log_a + i);
      store(plan + i, log_term);
      most = max(most, log_term);
    }
    const double top = largest(most);
    for (int i = 0; i < p.width; i += W) {
      const V below = load(plan + i) - top, term = below > -kNegligible ? exp(below) : V{};
      store(plan + i, term);
      total += term;
    }
    z[j] = sum(total), p.scratch[j] = top;
    const double share = p.b[j] / z[j];
    for (int i = 0; i < p.width; i += W) store(plan + i, share * load(plan + i));
  }
  for (int j = p.m; j % W; j++) z[j] = 1.0, p.scratch[j] = 0.0;
  for (int j = 0; j < p.m; j += W) store(z + j, (load(p.scratch + j) + log(load(z + j))) / -p.scale);
}

// The same where x changes by log(factor) / scale, without logs of the plan
void answer_scaled(const Pair& p, const double* factor, const double* from_z, const double* from, double* z,
                   double* plan) {
  for (int j = 0; j < p.m; j++, plan += p.width, from += p.width) {
    V total = {};
    for (int i = 0; i < p.width; i += W) {
      const V term = load(factor + i) * load(from + i);
      store(plan + i, term);
      total += term;
    }
    const double share = p.b[j] / sum(total);
    p.scratch[j] = share;
    for (int i = 0; i < p.width; i += W) store(plan + i, share * load(plan + i));
  }
  for (int j = p.m; j % W; j++) p.scratch[j] = 1.0;
  for (int j = 0; j < p.m; j += W) store(z + j, load(from_z + j) + log(load(p.scratch + j)) / p.scale);
}

// One plain iteration: x is the best for z, then z for x.
void plain_step(Pair& p) {
  bool safe = true;
  for (int i = 0; i < p.n; i++) safe = safe && p.rows[i] > 1e-15 * p.a[i];
  if (safe) {
    for (int i = p.n; i < p.width; i++) p.rows[i] = 1.0;
    double* factor = p.trial_x;
    V most = {};
    for (int i = 0; i < p.width; i += W) {
      const V ratio = load(p.a + i) / load(p.rows + i);
      store(factor + i, ratio);
      const V by = load(p.a + i) > 0.0 ? log(max(ratio, splat(kSmallestNormal))) : V{};
      store(p.x + i, load(p.x + i) + by / p.scale);
      most = max(most, abs(by));
    }
    p.moved += largest(most);
    if (p.moved < kFarAway) answer_scaled(p, factor, p.z, p.plan, p.z, p.plan);
    else answer(p, p.x, p.z, p.plan), p.moved = 0.0;
  } else {  // in logs
    for (int i = 0; i < p.width; i += W) {
      V top = splat(-1.7e308), total = {};
      auto log_term = [&](int j) INLINE_LAMBDA {
        return p.scale * (p.z[j] - load(p.cost + int64_t(j) * p.width + i)) + p.log_b[j];
      };
      for (int j = 0; j < p.m; j++) top = max(top, log_term(j));
      for (int j = 0; j < p.m; j++) total += exp(log_term(j) - top);
      store(p.x + i, (top + log(total)) / -p.scale);
    }
    answer(p, p.x, p.z, p.plan);
    p.moved = 0.0;
  }
  sum_rows(p);
}

// hessian[i, k] = sum_j T_ji T_jk / b_j, for a tile of rows i and `vectors` of columns k
template <int kWide>
INLINE void hessian_tile(const Pair& p, int i, int k) {
  V acc[kTile][kWide] = {};
  const double* plan = p.plan;
  for (int j = 0; j < p.m; j++, plan += p.width) {
    V right[kWide];
    for (int v = 0; v < kWide; v++) right[v] = load(plan + k + v * W) * p.scratch[j];
    for (int r = 0; r < kTile; r++)
      for (int v = 0; v < kWide; v++) acc[r][v] -= plan[i + r] * right[v];
  }
  for (int r = 0; r < kTile; r++)
    for (int v = 0; v < kWide; v++) store(p.hessian + int64_t(i + r) * p.width + k + v * W, acc[r][v]);
}

// U' D U = diag(T 1) - T diag(1 / b) T', a little enlarged: it is singular, and more so where parts of the plan hang
// together by next to nothing. D in p.pivots; U D replaces the upper triangle, with zeros up to the diagonal.
constexpr double kEnlarge = 1e-12;
void factor_hessian(Pair& p) {
  const int64_t width = p.width;
  Patience patience;
  for (int j = 0; j < p.m; j++) p.scratch[j] = 1.0 / p.b[j];
  for (int i = 0; i < p.n; i += kTile) {
    if (patience.over(int64_t(kTile) * p.n * p.m)) return;
    int k = i / W * W;
    for (; k + W < p.width; k += 2 * W) hessian_tile<2>(p, i, k);
    if (k < p.width) hessian_tile<1>(p, i, k);
  }
  for (int k = 0; k < p.n; k++) {
    if (patience.over(int64_t(p.n - k) * (p.n - k))) return;
    double* row = p.hessian + k * width;
    const double extra = kEnlarge * (p.rows[k] + p.a[k]), pivot = row[k] + p.rows[k] + extra;
    p.pivots[k] = pivot > extra ? pivot : extra;
    for (int i = k / W * W; i <= k; i++) row[i] = 0.0;
    const double inverse = 1.0 / p.pivots[k];
    for (int i = k + 1; i < p.n; i++) {
      const double l = row[i] * inverse;
      double* other = p.hessian + i * width;
      for (int c = i / W * W; c < p.width; c += W) store(other + c, load(other + c) - l * load(row + c));
    }
  }
}

// v = hessian^-1 v
INLINE void solve_hessian(const Pair& p, double* v) {
  for (int k = 0; k < p.n; k++) {
    const double* row = p.hessian + int64_t(k) * p.width;
    v[k] /= p.pivots[k];
    const double y = v[k];
    for (int c = k / W * W; c < p.width; c += W) store(v + c, load(v + c) - y * load(row + c));
  }
  for (int k = p.n - 1; k >= 0; k--) {
    const double* row = p.hessian + int64_t(k) * p.width;
    V total = {};
    for (int c = k / W * W; c < p.width; c += W) total += load(row + c) * load(v + c);
    v[k] -= sum(total) / p.pivots[k];
  }
}

// change = dx / d(1 / scale): where the solution goes as reg changes. Needs a factored Hessian.
void follow_reg(Pair& p) {
  for (int i = 0; i < p.width; i++) p.change[i] = 0.0;
  for (int j = 0; j < p.m; j++) {
    const double *plan = p.plan + int64_t(j) * p.width, *cost = p.cost + int64_t(j) * p.width;
    V total = {};
    for (int i = 0; i < p.width; i += W) {
      const V term = load(plan + i) * (load(p.x + i) + p.z[j] - load(cost + i));
      store(p.trial + i, term);
      total += term;
    }
    const double mean = sum(total) / p.b[j];
    for (int i = 0; i < p.width; i += W)
      store(p.change + i, load(p.change + i) + p.scale * (load(p.trial + i) - mean * load(plan + i)));
  }
  solve_hessian(p, p.change);
}

// Newton's step to p.step, its mean taken off; returns its largest entry. Bins of next to no mass take no part in that,
// and are held back.
constexpr double kBold = 4.0;
INLINE double newton_step(Pair& p, double tol) {
  double mean = 0, largest = 0;
  for (int i = 0; i < p.width; i++) p.step[i] = i < p.n ? p.a[i] - p.rows[i] : 0.0;
  solve_hessian(p, p.step);
  for (int i = 0; i < p.n; i++) mean += p.a[i] * p.step[i];
  for (int i = 0; i < p.n; i++) {
    double& s = p.step[i];
    s -= mean;
    if (p.a[i] * p.n < 0.01 * tol) s = s > kBold ? kBold : s < -kBold ? -kBold : s;
    else largest = __builtin_fabs(s) > largest ? __builtin_fabs(s) : largest;
  }
  return largest;
}

// Goes along p.step as far as the dual value rises, at first by no more than `bold` in any bin; false if it does not.
bool line_search(Pair& p, double largest, double& bold) {
  double slope = 0, share = largest > bold ? bold / largest : 1.0;
  for (int i = 0; i < p.n; i++) slope += p.step[i] * (p.a[i] - p.rows[i]);
  for (bool first = true; share * largest > 1e-3 || first; share *= 0.25, first = false) {
    const bool far = p.moved + share * largest > kFarAway;
    double gain = 0;
    for (int i = 0; i < p.width; i += W) {
      const V by = share * load(p.step + i);
      store(p.trial_x + i, far ? load(p.x + i) + by / p.scale : exp(by));
    }
    if (far) answer(p, p.trial_x, p.trial_z, p.trial);
    else answer_scaled(p, p.trial_x, p.z, p.plan, p.trial_z, p.trial);
    for (int i = 0; i < p.n; i++) gain += p.a[i] * share * p.step[i];
    for (int j = 0; j < p.m; j++) gain += p.b[j] * p.scale * (p.trial_z[j] - p.z[j]);
    if (!(gain >= 0.1 * share * slope - 1e-12)) continue;
    for (int i = 0; i < p.n; i++) p.x[i] += share * p.step[i] / p.scale;
    double* old = p.plan;
    p.plan = p.trial, p.trial = old;
    old = p.z, p.z = p.trial_z, p.trial_z = old;
    sum_rows(p);
    p.moved = far ? 0.0 : p.moved + share * largest;
    if (!first) bold = share * largest > kBold ? share * largest : kBold;
    else if (share < 1.0) bold *= 4.0;
    return true;
  }
  return false;
}

constexpr double kStage = 0.25;  // what reg falls to from stage to stage
constexpr double kNear = 1.0;    // Newton's step from which it may fall
constexpr double kFar = 100.0;   // Newton's step from which a start is no better than none at this stage
constexpr int kFirstSteps = 20;  // plain ones, of the first stage

struct Outcome {
  int iterations;
  double error;
};

// Solves a pair from p.x. A step is a plain iteration and one of Newton's; within a stage until the latter is small,
// which is when the next stage can be foreseen.
Outcome solve_pair(Pair& p, bool cold, double coarsest, double tol, int max_iter) {
  const int plain = 1 + p.n / 64;  // as Newton's steps grow dearer
  int iterations = 0;
  double error, bold = kBold;
  auto renew = [&]() { answer(p, p.x, p.z, p.plan), sum_rows(p), error = row_error(p), p.moved = 0.0; };
  p.scale = cold ? coarsest : 1.0;
  bool starting = true;
  renew();
  while (iterations < max_iter && !stopped()) {
    for (int k = starting && p.scale < 1.0 ? kFirstSteps : plain; k > 0 && iterations < max_iter && !(p.scale == 1.0 && error < tol); k--) {
      plain_step(p);
      error = row_error(p), iterations++;
    }
    if (iterations >= max_iter || (p.scale == 1.0 && error < tol)) break;
    factor_hessian(p);
    iterations++;
    const double largest = newton_step(p, tol);
    if (starting && largest > kFar && p.scale > coarsest) {
      p.scale = p.scale * kStage > coarsest ? p.scale * kStage : coarsest;
      renew();
      continue;
    }
    starting = false;
    const bool near = largest < kNear;
    if (p.scale < 1.0 && (near || error < 0.1 * tol)) {
      follow_reg(p);
      const double next = p.scale / kStage < 1.0 ? p.scale / kStage : 1.0, by = 1.0 / next - 1.0 / p.scale;
      for (int i = 0; i < p.n; i++) p.x[i] += (near ? p.step[i] / p.scale : 0.0) + p.change[i] * by;
      p.scale = next, bold = kBold;
      renew();
    } else if (line_search(p, largest, bold)) {
      error = row_error(p);
    }
  }
  if (p.scale < 1.0) p.scale = 1.0, renew();
  return {iterations, error};
}

INLINE double dual_value(const Pair& p) {
  double value = 0;
  for (int i = 0; i < p.n; i++) value += p.a[i] * p.x[i];
  for (int j = 0; j < p.m; j++) value += p.b[j] * p.z[j];
  return value;
}

// <T, C> of the plan, rounded to its marginals (Altschuler, Weed, Rigollet 2017): rows too heavy are scaled down, and
// what is then missing in rows and columns is sent between them in proportion.
double rounded_cost(Pair& p) {
  double value = 0, missing = 0, last = 0;
  double *factor = p.trial_x, *missing_x = p.step, *missing_z = p.trial_z;
  for (int i = 0; i < p.width; i++) {
    const bool heavy = p.rows[i] > p.a[i];
    factor[i] = heavy ? p.a[i] / p.rows[i] : 1.0;
    missing_x[i] = heavy || i >= p.n ? 0.0 : p.a[i] - p.rows[i];
    missing += missing_x[i];
  }
  for (int j = 0; j < p.m; j++) {
    const double *plan = p.plan + int64_t(j) * p.width, *cost = p.cost + int64_t(j) * p.width;
    V kept = {}, paid = {}, rest = {};
    for (int i = 0; i < p.width; i += W) {
      const V mass = load(factor + i) * load(plan + i), c = load(cost + i);
      kept += mass, paid += mass * c, rest += load(missing_x + i) * c;
    }
    missing_z[j] = p.b[j] - sum(kept);
    missing_z[j] = missing_z[j] > 0 ? missing_z[j] : 0.0;
    value += sum(paid), last += missing_z[j] * sum(rest);
  }
  return missing > 0 ? value + last / missing : value;
}

// Potentials of all bins from those that hold mass
INLINE void spread(const SinkhornTables& t, const double* b, const Pair& p, const Full& s) {
  for (int k = 0; k < t.padded_bins; k++) s.z[k] = 0.0;
  const int count = p.swapped ? p.n : p.m;
  for (int j = 0; j < count; j++) s.z[(p.swapped ? p.bin_x : p.bin_z)[j]] = (p.swapped ? p.x : p.z)[j];
  log_step(t.cost_t, t, b, s.z, s.x);
}

// Solves pair p of the job from s.x, potentials / reg.
void finish_by_newton(const SinkhornTables& t, const SinkhornJob& job, int64_t p, double coarsest, int spent,
                      const Full& s, double* work) {
  const int d = t.n_bins;
  const double *a = job.x + p / job.m * d, *b = job.z + p % job.m * d;
  bool cold = true;
  for (int k = 0; k < d; k++) cold = cold && s.x[k] == 0.0;
  Pair pair = make_pair(t, a, b, s, work);
  const Outcome found = solve_pair(pair, cold, coarsest, tol_of(job, p), job.max_iter - spent);
  job.value[p] = t.reg * (job.transport ? rounded_cost(pair) : dual_value(pair));
  job.iterations[p] = spent + found.iterations, job.error[p] = found.error;
  if (!job.potential_x) return;
  spread(t, b, pair, s);
  for (int k = 0; k < d; k++) job.potential_x[p * d + k] = s.x[k] * t.reg;
}

// ---- shared kernel, one pair per lane -------------------------------------------------------------------------

template <class T, class X = typename Vector<T>::type>
void solve_shared(const SinkhornTables& t, const SinkhornJob& job, double* work) {
  constexpr int L = Vector<T>::lanes, kPairs = KNNPRESS_TARGET::kPairs<T>;
  const int d = t.n_bins, padded = t.padded_bins;
  const Lanes<T> s = carve_lanes<T>(t, work);
  const Full full = carve_full(t, work);
  double* column[kColumns];  // contiguous copies of one lane
  for (int k = 0; k < kColumns; k++) column[k] = after_lanes(t, work) + int64_t(k) * padded;
  const int64_t n_jobs = job.n * job.m;
  int64_t next = 0, pair[kPairs];
  int iterations[kPairs], active = 0;
  Relaxation relaxation[kPairs];
  X relax[kVectors] = {};

  auto load_pair = [&](int lane) {
    while (job.limit && next < n_jobs && job.limit[next] == -__builtin_inf()) leave_out(job, next++);
    const int64_t p = pair[lane] = next < n_jobs ? next++ : -1;
    if (p < 0) return;  // the lane goes on with what it has, and nobody looks
    active++;
    iterations[lane] = 0;
    relaxation[lane] = {job.relaxation ? job.relaxation[p] : 0.0, 0.0};
    relax[lane / L][lane % L] = 0;
    const int64_t i = p / job.m * d, j = p % job.m * d;
    const double *a = job.x + i, *b = job.z + j;
    if (job.potential_x) scaling_of(job.potential_x + p * d, a, t, column[0]);
    for (int k = 0; k < d; k++) {
      const int64_t at = int64_t(k) * kPairs + lane;
      const double scaling = job.potential_x ? column[0][k] : 1.0;
      s.x.marginal[at] = T(a[k]), s.z.marginal[at] = T(b[k]);
      s.x.relaxed[at] = T(scaling), s.x.scaled[at] = T(a[k] * scaling);
    }
  };
  double *a = column[0], *b = column[1], *sx = column[2], *sz = column[3];
  auto copy_lane = [&](int lane) {
    const double *x = job.x + pair[lane] / job.m * d, *z = job.z + pair[lane] % job.m * d;
    for (int k = 0; k < d; k++) {
      const int64_t at = int64_t(k) * kPairs + lane;
      a[k] = x[k], b[k] = z[k];
      sx[k] = s.x.scaling[at];  // exact for the relaxed sz that it answers
      sz[k] = s.z.relaxed[at];
    }
    for (int k = d; k < padded; k++) a[k] = b[k] = 0.0, sx[k] = sz[k] = 1.0;
  };
  auto dual_value = [&](int lane) {  // a lower bound before convergence; leaves the lane's logs in sx and sz
    copy_lane(lane);
    return t.reg * (dot_log(a, sx, padded) + dot_log(b, sz, padded));
  };
  auto beyond_limit = [&](int lane, int step) {  // looked at ever more rarely, and not where it must be solved
    const double limit = job.limit ? job.limit[pair[lane]] : __builtin_inf();
    return (step & (step - 1)) == 0 && limit < __builtin_inf() && dual_value(lane) > limit;
  };
  auto finish_pair = [&](int lane, double error) {
    const int64_t p = pair[lane];
    job.value[p] = dual_value(lane);
    for (int k = 0; job.potential_x && k < d; k++) job.potential_x[p * d + k] = t.reg * sx[k];
    if (job.transport) {
      copy_lane(lane);
      for (int k = 0; k < padded; k++) sx[k] *= a[k], sz[k] *= b[k];
      job.value[p] = rounded_transport(a, sx, b, sz, sizeof(T) == sizeof(double), t, full.z);
    }
    if (job.relaxation) job.relaxation[p] = relaxation[lane].amount;
    job.iterations[p] = iterations[lane], job.error[p] = error;
    if (job.limit && job.value[p] > job.limit[p]) leave_out(job, p);
    active--;
  };

  // Some pairs would take thousands of iterations, and a few of Newton's, each as dear as about d of these.
  const int slow = kSlow + 2 * d;
  auto hand_over = [&](int lane) {
    copy_lane(lane);
    for (int k = 0; k < padded; k += W) store(full.x + k, log(load(sx + k)));
    finish_by_newton(t, job, pair[lane], 1.0, iterations[lane], full, work);
    if (job.relaxation) job.relaxation[pair[lane]] = relaxation[lane].amount;
    if (job.limit && job.value[pair[lane]] > job.limit[pair[lane]]) leave_out(job, pair[lane]);
    active--;
  };

  for (int k = 0; k < d * kPairs; k++) s.x.scaled[k] = 1;  // lanes that never get a pair stay finite
  for (int lane = 0; lane < kPairs; lane++) load_pair(lane);
  Patience patience;
  while (active > 0 && !patience.over(int64_t(2 * kPairs) * d * d)) {
    X error_z[kVectors] = {}, error_x[kVectors] = {};
    half_step<T>(kernel_of<T>(t, true), t, s.x.scaled, s.z, relax, error_z);
    half_step<T>(kernel_of<T>(t, false), t, s.z.scaled, s.x, relax, error_x);
    for (int lane = 0; lane < kPairs; lane++) {
      if (pair[lane] < 0) continue;
      // a plain step meets its marginal exactly, so only the other one is off
      double error = error_x[lane / L][lane % L];
      const double other = error_z[lane / L][lane % L];
      if (relax[lane / L][lane % L] > 0 && other > error) error = other;
      const int step = ++iterations[lane];
      if (step >= job.max_iter || error < tol_of(job, pair[lane]) || beyond_limit(lane, step)) {
        finish_pair(lane, error);
        load_pair(lane);
      } else if (step >= slow) {
        hand_over(lane);
        load_pair(lane);
      } else {  // the first step has nothing yet to overshoot from
        if (step % kWindow == 0) adapt(relaxation[lane], error, step == kWindow);
        relax[lane / L][lane % L] = T(relaxation[lane].amount);
      }
    }
  }
}

// ---- the three operations -------------------------------------------------------------------------------------

void sinkhorn(const SinkhornTables& t, const SinkhornJob& job, double* work) {
  if (job.single && t.single_is_safe) return solve_shared<float>(t, job, work);
  if (t.scaling_is_safe) return solve_shared<double>(t, job, work);
  const Full s = carve_full(t, work);
  for (int64_t p = 0; p < job.n * job.m && !stopped(); p++) {
    if (job.limit && job.limit[p] == -__builtin_inf()) {
      leave_out(job, p);
      continue;
    }
    start_potential(t, job.potential_x ? job.potential_x + p * t.n_bins : nullptr, s.x);
    finish_by_newton(t, job, p, t.coarsest, 0, s, work);
  }
}

// The potentials of (a, a) are equal, so averaging a half-step with its input converges in a few steps.
void sinkhorn_self(const SinkhornTables& t, const double* x, int64_t n, double tol, int max_iter, double* work,
                   double* value, double* potential, int32_t* iterations, double* error) {
  const int d = t.n_bins;
  if (!t.scaling_is_safe) {
    const Full s = carve_full(t, work);
    Patience patience;
    for (int64_t i = 0; i < n; i++) {
      const double* a = x + i * d;
      start_potential(t, nullptr, s.x);
      int steps = 0;
      double gap = 1.0;
      while (steps++ < max_iter && !(gap < tol) && !patience.over(20 * int64_t(d) * d)) {
        log_step(t.cost, t, a, s.x, s.z);
        gap = value[i] = 0;
        for (int k = 0; k < d; k++) value[i] += a[k] * (s.x[k] + s.z[k]) * t.reg;
        for (int k = 0; k < t.padded_bins; k += W) {
          const V difference = max(min(load(s.x + k) - load(s.z + k), splat(50.0)), splat(-50.0));
          const V moved = abs(exp(difference) - 1.0);
          for (int l = 0; l < W && k + l < d; l++) gap += a[k + l] * moved[l];
          store(s.x + k, load(s.x + k) - 0.5 * difference);
        }
      }
      for (int k = 0; k < d; k++) potential[i * d + k] = s.z[k] * t.reg;
      iterations[i] = steps - 1, error[i] = gap;
    }
    return;
  }
  constexpr int kPairs = KNNPRESS_TARGET::kPairs<double>;
  double *a, *scaled, *scaling;
  Patience patience;
  for (int64_t first = 0; first < n; first += kPairs) {
    const int count = n - first < kPairs ? int(n - first) : kPairs;
    const Lanes<double> s = carve_lanes<double>(t, work);
    a = s.x.marginal, scaled = s.x.scaled, scaling = s.x.scaling;
    bool done[kPairs] = {};
    int remaining = count;
    for (int lane = 0; lane < kPairs; lane++)
      for (int k = 0; k < d; k++) {
        const int64_t at = int64_t(k) * kPairs + lane;
        a[at] = s.z.marginal[at] = scaled[at] = x[(first + (lane < count ? lane : 0)) * d + k], scaling[at] = 1.0;
      }
    for (int step = 1; remaining > 0; step++) {
      if (patience.over(int64_t(kPairs) * d * d)) return;
      V gap[kVectors] = {}, plain[kVectors] = {};
      for (int64_t k = 0; k < vectors_of(t); k++) vectors(s.z.relaxed)[k] = vectors(scaling)[k];
      half_step<double>(t.kernel, t, scaled, s.z, plain, gap);
      for (int lane = 0; lane < count; lane++) {
        const double e = gap[lane / W][lane % W];
        if (done[lane] || (step < max_iter && !(e < tol))) continue;
        const int64_t i = first + lane;
        value[i] = 0;
        for (int k = 0; k < d; k++) {
          const int64_t at = int64_t(k) * kPairs + lane;
          const double f = __builtin_log(scaling[at]), g = __builtin_log(s.z.scaling[at]);
          value[i] += a[at] * (f + g) * t.reg;
          potential[i * d + k] = g * t.reg;  // the half-step's answer, which holds at empty bins too
        }
        iterations[i] = step, error[i] = e;
        done[lane] = true, remaining--;
      }
      for (int64_t k = 0; k < vectors_of(t); k++) {
        vectors(scaling)[k] = 0.5 * (vectors(scaling)[k] + vectors(s.z.scaling)[k]);
        vectors(scaled)[k] = vectors(a)[k] * vectors(scaling)[k];
      }
    }
  }
}

template <class T, class X = typename Vector<T>::type>
void pullback_in(const SinkhornTables& t, const double* x, int64_t n, int64_t m, const double* potential_x,
                 const double* weight, double tolerance, double* work, double* out) {
  constexpr int kPairs = KNNPRESS_TARGET::kPairs<T>;
  const int d = t.n_bins;
  const Lanes<T> s = carve_lanes<T>(t, work);
  double* column = after_lanes(t, work);
  Patience patience;
  for (int64_t j = 0; j < m; j++) {
    double* gradient = out + j * d;
    for (int k = 0; k < d; k++) gradient[k] = 0.0;
    double weights[kPairs];
    int count = 0;
    auto flush = [&]() {
      X plain[kVectors] = {}, unused[kVectors] = {};
      for (int lane = count; lane < kPairs; lane++)  // idle lanes repeat the first: any valid pair will do
        for (int k = 0; k < d; k++) s.x.scaled[int64_t(k) * kPairs + lane] = s.x.scaled[int64_t(k) * kPairs];
      half_step<T>(kernel_of<T>(t, true), t, s.x.scaled, s.z, plain, unused);
      for (int lane = count; lane < kPairs; lane++) weights[lane] = 0.0;
      for (int k = 0; k < d; k++) {
        V total = {};
        for (int lane = 0; lane < kPairs; lane += W)
          total += load(weights + lane) * log(load(s.z.scaling + int64_t(k) * kPairs + lane));
        gradient[k] += t.reg * sum(total);
      }
      count = 0;
    };
    for (int64_t i = 0; i < n; i++) {
      const double w = weight[i * m + j];
      if (!(w > tolerance || w < -tolerance)) continue;
      if (patience.over(20 * int64_t(d) * d)) return;
      const double *a = x + i * d, *potential = potential_x + (i * m + j) * d;
      if (t.scaling_is_safe) {
        scaling_of(potential, a, t, column);
        for (int k = 0; k < d; k++) s.x.scaled[int64_t(k) * kPairs + count] = T(a[k] * column[k]);
        weights[count++] = w;
        if (count == kPairs) flush();
      } else {
        const Full full = carve_full(t, work);
        start_potential(t, potential, full.x);
        log_step(t.cost, t, a, full.x, full.z);
        for (int k = 0; k < d; k++) gradient[k] += w * t.reg * full.z[k];
      }
    }
    if (count > 0) flush();
  }
}

void pullback(const SinkhornTables& t, const double* x, int64_t n, int64_t m, const double* potential_x,
              const double* weight, double tolerance, bool single, double* work, double* out) {
  auto run = single && t.single_is_safe ? pullback_in<float> : pullback_in<double>;
  run(t, x, n, m, potential_x, weight, tolerance, work, out);
}

}  // namespace

void fill_sinkhorn(Kernels& k) {
  k.tile_rows = kRows;
  k.sinkhorn = sinkhorn, k.sinkhorn_self = sinkhorn_self, k.sinkhorn_pullback = pullback;
  k.sinkhorn_work = sinkhorn_work;
}

}  // namespace knnpress::KNNPRESS_TARGET
