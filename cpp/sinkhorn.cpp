// Entropic optimal transport between many pairs of histograms that share one ground cost C = M / reg.
//
// The plan of a pair is T = a sx K sz b with K = exp(-C); a half-step is s = 1 / (K' (marginal * other s)). In logs,
// s = exp(potential / reg). Two solvers compute the same thing:
//   - shared: one pair per SIMD lane, all lanes multiply the same K, a matrix product in registers. A lane that has
//     converged is given the next pair at once, so no lane waits for another. Scalings are doubles, or floats, twice
//     as many, where marginals need not be met closely; potentials and values are doubles in any case.
//   - stabilised: where exp(-C) would underflow. One pair at a time, log-domain steps, with the potentials absorbed
//     into a kernel of its own between them.
#include "lanes.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr int kVectors = 3;                      // vectors of pairs in a register tile
constexpr int kRows = kAccumulators / kVectors;  // bins in a register tile
template <class T>
constexpr int kPairs = kVectors * Vector<T>::lanes;  // pairs in flight
constexpr double kRange = 1e100;                 // scalings beyond it are absorbed into the potentials
template <class T>
constexpr T kMost = sizeof(T) == 8 ? T(kRange) : T(1e30);

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

int64_t sinkhorn_work(const SinkhornTables& t) {
  const int64_t stabilised = t.scaling_is_safe ? 0 : 2 * int64_t(t.n_bins) * t.padded_bins;
  return kArrays * vectors_of(t) * W + 10 * int64_t(t.padded_bins) + stabilised;
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

// sum_ij a_i kernel[i, j] b_j
INLINE double bilinear(const double* a, const double* kernel, const double* b, const SinkhornTables& t) {
  double total = 0;
  for (int i = 0; i < t.n_bins; i++) {
    V row = {};
    const double* k = kernel + int64_t(i) * t.padded_bins;
    for (int j = 0; j < t.padded_bins; j += W) row += load(k + j) * load(b + j);
    total += a[i] * sum(row);
  }
  return total;
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

// ---- shared kernel, one pair per lane -------------------------------------------------------------------------

template <class T, class X = typename Vector<T>::type>
void solve_shared(const SinkhornTables& t, const SinkhornJob& job, double* work) {
  constexpr int L = Vector<T>::lanes, kPairs = KNNPRESS_TARGET::kPairs<T>;
  const int d = t.n_bins, padded = t.padded_bins;
  const Lanes<T> s = carve_lanes<T>(t, work);
  double* column[4];  // contiguous copies of one lane
  for (int k = 0; k < 4; k++) column[k] = after_lanes(t, work) + int64_t(k) * padded;
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
      for (int k = 0; k < d; k++) a[k] *= sx[k], b[k] *= sz[k];
      job.value[p] = bilinear(a, t.plan_cost, b, t);
    }
    if (job.relaxation) job.relaxation[p] = relaxation[lane].amount;
    job.iterations[p] = iterations[lane], job.error[p] = error;
    if (job.limit && job.value[p] > job.limit[p]) leave_out(job, p);
    active--;
  };

  for (int k = 0; k < d * kPairs; k++) s.x.scaled[k] = 1;  // lanes that never get a pair stay finite
  for (int lane = 0; lane < kPairs; lane++) load_pair(lane);
  while (active > 0) {
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
      } else {  // the first step has nothing yet to overshoot from
        if (step % kWindow == 0) adapt(relaxation[lane], error, step == kWindow);
        relax[lane / L][lane % L] = T(relaxation[lane].amount);
      }
    }
  }
}

// ---- stabilised, one pair at a time ---------------------------------------------------------------------------

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

// out_j = exp(potential_i + other_j - cost[i, j]), every row i
INLINE void absorb(const double* cost, const SinkhornTables& t, const double* potential, const double* other,
                   double* out) {
  for (int i = 0; i < t.n_bins; i++)
    for (int j = 0; j < t.padded_bins; j += W) {
      const int64_t at = int64_t(i) * t.padded_bins + j;
      store(out + at, exp(min(potential[i] + load(other + j) - load(cost + at), splat(700.0))));
    }
}

// scaling_j = 1 / sum_i kernel[i, j] marginal_i s_i; false, and nothing written, where one leaves the safe range
INLINE bool scaled_step(const double* kernel, const SinkhornTables& t, const double* weight, const double* s,
                        double* sums, double* out) {
  bool safe = true;
  for (int j = 0; j < t.padded_bins; j += W) {
    V total = {};
    for (int i = 0; i < t.n_bins; i++) total += (weight[i] * s[i]) * load(kernel + int64_t(i) * t.padded_bins + j);
    store(sums + j, total);
  }
  for (int j = 0; j < t.n_bins; j++) safe = safe && sums[j] > 1 / kRange && sums[j] < kRange;
  for (int j = 0; safe && j < t.padded_bins; j += W) store(out + j, 1.0 / load(sums + j));
  return safe;
}

struct Stabilised {
  double *x, *z, *sx, *sz, *sums, *old;  // potentials / reg, scalings since the last absorption, scratch
  double *kernel, *kernel_t;             // exp(x + z - C) and its transpose
  int iterations;
  double error;
};
INLINE Stabilised carve_stabilised(const SinkhornTables& t, double* work) {
  double* p = after_lanes(t, work) + 4 * int64_t(t.padded_bins);
  const int64_t padded = t.padded_bins, table = int64_t(t.n_bins) * padded;
  return {p, p + padded, p + 2 * padded, p + 3 * padded, p + 4 * padded, p + 5 * padded, p + 6 * padded,
          p + 6 * padded + table, 0, 0.0};
}

INLINE void fold(double* potential, double* scaling, const SinkhornTables& t) {
  for (int k = 0; k < t.padded_bins; k += W) {
    store(potential + k, load(potential + k) + log(load(scaling + k)));
    store(scaling + k, splat(1.0));
  }
}

// From s.x to converged s.x and s.z. A scaled step that would leave the safe range is replaced by a log-domain one.
void solve_stabilised(const SinkhornTables& t, const double* a, const double* b, double tol, int max_iter,
                      Stabilised& s) {
  for (int k = 0; k < t.padded_bins; k++) s.sx[k] = s.sz[k] = 1.0;
  s.iterations = 0;
  for (;;) {
    log_step(t.cost, t, a, s.x, s.z);
    for (int k = 0; k < t.padded_bins; k++) s.old[k] = s.x[k];
    log_step(t.cost_t, t, b, s.z, s.x);
    s.error = 0;
    for (int k = 0; k < t.padded_bins; k += W) {
      const V ratio = exp(max(min(load(s.old + k) - load(s.x + k), splat(50.0)), splat(-50.0)));
      const V gap = abs(ratio - 1.0);
      for (int l = 0; l < W && k + l < t.n_bins; l++) s.error += a[k + l] * gap[l];
    }
    if (++s.iterations >= max_iter || s.error < tol) return;
    absorb(t.cost, t, s.x, s.z, s.kernel);
    absorb(t.cost_t, t, s.z, s.x, s.kernel_t);
    for (;;) {
      if (!scaled_step(s.kernel, t, a, s.sx, s.sums, s.sz)) break;
      if (!scaled_step(s.kernel_t, t, b, s.sz, s.sums, s.old)) break;
      s.error = 0;
      for (int k = 0; k < t.n_bins; k++) {
        const double gap = s.sx[k] * s.sums[k] - 1.0;
        s.error += a[k] * (gap < 0 ? -gap : gap);
      }
      for (int k = 0; k < t.padded_bins; k++) s.sx[k] = s.old[k];
      if (++s.iterations >= max_iter || s.error < tol) {
        fold(s.x, s.sx, t);
        fold(s.z, s.sz, t);
        return;
      }
    }
    fold(s.x, s.sx, t);
    fold(s.z, s.sz, t);
  }
}

INLINE double stabilised_value(const SinkhornTables& t, const double* a, const double* b, bool transport,
                               Stabilised& s) {
  double value = 0;
  if (transport) {
    absorb(t.cost, t, s.x, s.z, s.kernel);
    for (int i = 0; i < t.n_bins; i++)
      for (int j = 0; a[i] > 0 && j < t.n_bins; j++) {
        const int64_t at = int64_t(i) * t.padded_bins + j;
        value += a[i] * b[j] * s.kernel[at] * t.cost[at];
      }
  } else {
    for (int k = 0; k < t.n_bins; k++) value += a[k] * s.x[k] + b[k] * s.z[k];
  }
  return value * t.reg;
}

INLINE void start_potential(const SinkhornTables& t, const double* potential, double* x) {
  for (int k = 0; k < t.padded_bins; k++) x[k] = potential && k < t.n_bins ? potential[k] / t.reg : 0.0;
}

// ---- the three operations -------------------------------------------------------------------------------------

void sinkhorn(const SinkhornTables& t, const SinkhornJob& job, double* work) {
  if (job.single && t.single_is_safe) return solve_shared<float>(t, job, work);
  if (t.scaling_is_safe) return solve_shared<double>(t, job, work);
  Stabilised s = carve_stabilised(t, work);
  for (int64_t p = 0; p < job.n * job.m; p++) {
    if (job.limit && job.limit[p] == -__builtin_inf()) {
      leave_out(job, p);
      continue;
    }
    const double *a = job.x + p / job.m * t.n_bins, *b = job.z + p % job.m * t.n_bins;
    double* potential = job.potential_x ? job.potential_x + p * t.n_bins : nullptr;
    start_potential(t, potential, s.x);
    solve_stabilised(t, a, b, tol_of(job, p), job.max_iter, s);
    job.value[p] = stabilised_value(t, a, b, job.transport, s);
    job.iterations[p] = s.iterations, job.error[p] = s.error;
    for (int k = 0; potential && k < t.n_bins; k++) potential[k] = s.x[k] * t.reg;
  }
}

// The potentials of (a, a) are equal, so averaging a half-step with its input converges in a few steps.
void sinkhorn_self(const SinkhornTables& t, const double* x, int64_t n, double tol, int max_iter, double* work,
                   double* value, double* potential, int32_t* iterations, double* error) {
  const int d = t.n_bins;
  if (!t.scaling_is_safe) {
    Stabilised s = carve_stabilised(t, work);
    for (int64_t i = 0; i < n; i++) {
      const double* a = x + i * d;
      start_potential(t, nullptr, s.x);
      int steps = 0;
      double gap = 1.0;
      while (steps++ < max_iter && !(gap < tol)) {
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
      const double *a = x + i * d, *potential = potential_x + (i * m + j) * d;
      if (t.scaling_is_safe) {
        scaling_of(potential, a, t, column);
        for (int k = 0; k < d; k++) s.x.scaled[int64_t(k) * kPairs + count] = T(a[k] * column[k]);
        weights[count++] = w;
        if (count == kPairs) flush();
      } else {
        Stabilised stable = carve_stabilised(t, work);
        start_potential(t, potential, stable.x);
        log_step(t.cost, t, a, stable.x, stable.z);
        for (int k = 0; k < d; k++) gradient[k] += w * t.reg * stable.z[k];
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
