// Pairs of histograms by scaling: one pair per SIMD lane, all lanes multiply the same K, a matrix product in registers.
// A lane that has converged is given the next pair at once, so no lane waits for another. Scalings are doubles, or
// floats, twice as many; potentials and values are doubles in any case.
#include "sinkhorn.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

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
template <class T>
INLINE Lanes<T> clear_lanes(const SinkhornTables& t, const SinkhornScratch& s) {
  const int64_t n = vectors_of(t) * Vector<T>::lanes;
  T* p = reinterpret_cast<T*>(s.lanes);
  for (int64_t k = 0; k < kArrays * n; k++) p[k] = 0;
  return {{p, p + n, p + 2 * n, p + 3 * n}, {p + 4 * n, p + 5 * n, p + 6 * n, p + 7 * n}};
}

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
        // of the marginal before to what it should be
        const X ratio = min(relaxeds[at] * scalings[at], splat(kMost<T>));
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
  for (int k = 0; k < padded; k += kLanes) {
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
    for (int j = 0; j < t.padded_bins; j += kLanes) row += load(k + j) * load(b + j);
    total += a[i] * sum(row);
  }
  return total;
}

// out = kernel v, for a tiled kernel
INLINE void multiply_tiled(const double* kernel, const double* v, const SinkhornTables& t, double* out) {
  for (int i = 0; i < t.n_bins; i += kRows, kernel += int64_t(t.n_bins) * kRows) {
    constexpr int kTerms = 4;  // sums in flight
    V acc[kTerms][kRows / kLanes] = {};
    int j = 0;
    for (; j + kTerms <= t.n_bins; j += kTerms)
      for (int k = 0; k < kTerms; k++)
        for (int r = 0; r < kRows / kLanes; r++)
          acc[k][r] += load(kernel + int64_t(j + k) * kRows + r * kLanes) * v[j + k];
    for (; j < t.n_bins; j++)
      for (int r = 0; r < kRows / kLanes; r++) acc[0][r] += load(kernel + int64_t(j) * kRows + r * kLanes) * v[j];
    for (int r = 0; r < kRows / kLanes; r++)
      store(out + i + r * kLanes, (acc[0][r] + acc[1][r]) + (acc[2][r] + acc[3][r]));
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
  for (int k = 0; k < t.padded_bins; k += kLanes) store(out + k, exp(min(load(out + k), splat(700.0))));
}

template <class T, class X = typename Vector<T>::type>
void solve_pairs(const SinkhornJob& job, const SinkhornScratch& scratch) {
  constexpr int L = Vector<T>::lanes, kPairs = KNNPRESS_TARGET::kPairs<T>;
  const SinkhornTables& t = *job.tables;
  const int d = t.n_bins, padded = t.padded_bins;
  const Lanes<T> s = clear_lanes<T>(t, scratch);
  const int64_t n_jobs = job.n * job.m;
  int64_t next = 0, pair[kPairs];
  int iterations[kPairs], active = 0;
  Relaxation relaxation[kPairs];
  X relax[kVectors] = {};

  double* start = scratch.column[0];
  auto load_pair = [&](int lane) {
    while (job.limit && next < n_jobs && job.limit[next] == -__builtin_inf()) leave_out(job, next++);
    const int64_t p = pair[lane] = next < n_jobs ? next++ : -1;
    if (p < 0) return;  // no pair is left: the lane goes on with its last one, unread
    active++;
    iterations[lane] = 0;
    relaxation[lane] = {job.relaxation ? job.relaxation[p] : 0.0, 0.0};
    relax[lane / L][lane % L] = 0;
    const int64_t i = p / job.m * d, j = p % job.m * d;
    const double *a = job.x + i, *b = job.z + j;
    if (job.potential_x) scaling_of(job.potential_x + p * d, a, t, start);
    for (int k = 0; k < d; k++) {
      const int64_t at = int64_t(k) * kPairs + lane;
      const double scaling = job.potential_x ? start[k] : 1.0;
      s.x.marginal[at] = T(a[k]), s.z.marginal[at] = T(b[k]);
      s.x.relaxed[at] = T(scaling), s.x.scaled[at] = T(a[k] * scaling);
    }
  };
  double *a = scratch.column[0], *b = scratch.column[1], *sx = scratch.column[2], *sz = scratch.column[3];
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
  auto beyond_limit = [&](int lane, int step) {  // asked after 1, 2, 4, 8, ... steps
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
      job.value[p] = rounded_transport(a, sx, b, sz, sizeof(T) == sizeof(double), t, scratch.z);
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
    for (int k = 0; k < padded; k += kLanes) store(scratch.x + k, log(load(sx + k)));
    finish_by_newton(job, pair[lane], 1.0, iterations[lane], scratch);
    if (job.relaxation) job.relaxation[pair[lane]] = relaxation[lane].amount;
    if (job.limit && job.value[pair[lane]] > job.limit[pair[lane]]) leave_out(job, pair[lane]);
    active--;
  };

  for (int k = 0; k < d * kPairs; k++) s.x.scaled[k] = 1;  // lanes that never get a pair stay finite
  for (int lane = 0; lane < kPairs; lane++) load_pair(lane);
  Patience patience;
  while (active > 0 && !patience.exhausted(int64_t(2 * kPairs) * d * d)) {
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

// The potentials of (a, a) are equal, so averaging a half-step with its input converges in a few steps.
void solve_self(const SinkhornSelfJob& job, const SinkhornScratch& scratch) {
  const SinkhornTables& t = *job.tables;
  const int d = t.n_bins;
  const int64_t n = job.n;
  constexpr int kPairs = KNNPRESS_TARGET::kPairs<double>;
  double *a, *scaled, *scaling;
  Patience patience;
  for (int64_t first = 0; first < n; first += kPairs) {
    const int count = n - first < kPairs ? int(n - first) : kPairs;
    const Lanes<double> s = clear_lanes<double>(t, scratch);
    a = s.x.marginal, scaled = s.x.scaled, scaling = s.x.scaling;
    bool done[kPairs] = {};
    int remaining = count;
    for (int lane = 0; lane < kPairs; lane++)
      for (int k = 0; k < d; k++) {
        const int64_t at = int64_t(k) * kPairs + lane;
        a[at] = s.z.marginal[at] = scaled[at] = job.x[(first + (lane < count ? lane : 0)) * d + k], scaling[at] = 1.0;
      }
    for (int step = 1; remaining > 0; step++) {
      if (patience.exhausted(int64_t(kPairs) * d * d)) return;
      V gap[kVectors] = {}, plain[kVectors] = {};
      for (int64_t k = 0; k < vectors_of(t); k++) vectors(s.z.relaxed)[k] = vectors(scaling)[k];
      half_step<double>(t.kernel, t, scaled, s.z, plain, gap);
      for (int lane = 0; lane < count; lane++) {
        const double e = gap[lane / kLanes][lane % kLanes];
        if (done[lane] || (step < job.max_iter && !(e < job.tol))) continue;
        const int64_t i = first + lane;
        job.value[i] = 0;
        for (int k = 0; k < d; k++) {
          const int64_t at = int64_t(k) * kPairs + lane;
          const double f = __builtin_log(scaling[at]), g = __builtin_log(s.z.scaling[at]);
          job.value[i] += a[at] * (f + g) * t.reg;
          job.potential[i * d + k] = g * t.reg;  // the half-step's answer, which holds at empty bins too
        }
        job.iterations[i] = step, job.error[i] = e;
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
void pull_back(const SinkhornPullbackJob& job, const SinkhornScratch& scratch) {
  const SinkhornTables& t = *job.tables;
  constexpr int kPairs = KNNPRESS_TARGET::kPairs<T>;
  const int d = t.n_bins;
  const int64_t n = job.n, m = job.m;
  const double *x = job.x, *potential_x = job.potential_x, *weight = job.weight, tolerance = job.tolerance;
  const Lanes<T> s = clear_lanes<T>(t, scratch);
  double* column = scratch.column[0];
  Patience patience;
  for (int64_t j = 0; j < m; j++) {
    double* gradient = job.out + j * d;
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
        for (int lane = 0; lane < kPairs; lane += kLanes)
          total += load(weights + lane) * log(load(s.z.scaling + int64_t(k) * kPairs + lane));
        gradient[k] += t.reg * sum(total);
      }
      count = 0;
    };
    for (int64_t i = 0; i < n; i++) {
      const double w = weight[i * m + j];
      if (!(w > tolerance || w < -tolerance)) continue;
      if (patience.exhausted(20 * int64_t(d) * d)) return;
      const double* a = x + i * d;
      scaling_of(potential_x + (i * m + j) * d, a, t, column);
      for (int k = 0; k < d; k++) s.x.scaled[int64_t(k) * kPairs + count] = T(a[k] * column[k]);
      weights[count++] = w;
      if (count == kPairs) flush();
    }
    if (count > 0) flush();
  }
}

}  // namespace

const SinkhornSolver kByScaling{solve_pairs<double>, solve_self, pull_back<double>};
const SinkhornSolver kBySingleScaling{solve_pairs<float>, solve_self, pull_back<float>};

}  // namespace knnpress::KNNPRESS_TARGET
