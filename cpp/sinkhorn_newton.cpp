// One pair of histograms by Newton's method, over the bins that hold mass.
#include "sinkhorn.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr double kNoMass = 1e-15;  // what a bin may hold and count as empty: all of them together are rounding
constexpr int kTile = 4;  // rows of a tile of the Hessian

INLINE int compact(const double* from, int n_bins, int padded, int32_t* bins, double* mass, double* log_mass) {
  int n = 0;
  for (int k = 0; k < n_bins; k++)
    if (from[k] > kNoMass) bins[n] = k, mass[n++] = from[k];
  for (int k = n; k < padded; k++) mass[k] = 0.0;
  for (int k = 0; k < padded; k += kLanes) store(log_mass + k, log(max(load(mass + k), splat(kSmallestNormal))));
  for (int k = n; k < padded; k++) log_mass[k] = -1e30;
  return n;
}

// From the start in s.x, or for a swapped pair the answer to it.
INLINE Pair make_pair(const SinkhornTables& t, const double* a, const double* b, const SinkhornScratch& s) {
  const int64_t padded = t.padded_bins;
  Pair p = s.pair;
  int n_x = 0, n_z = 0;
  for (int k = 0; k < t.n_bins; k++) n_x += a[k] > kNoMass, n_z += b[k] > kNoMass;
  p.swapped = n_z < n_x;
  if (p.swapped) log_step(t.cost, t, a, s.x, s.z);
  p.n = compact(p.swapped ? b : a, t.n_bins, t.padded_bins, p.bin_x, p.a, p.log_a);
  p.m = compact(p.swapped ? a : b, t.n_bins, t.padded_bins, p.bin_z, p.b, p.log_b);
  constexpr int kStep = kLanes > kTile ? kLanes : kTile;
  p.width = (p.n + kStep - 1) / kStep * kStep;
  const double *cost = p.swapped ? t.cost : t.cost_t, *start = p.swapped ? s.z : s.x;
  for (int j = 0; j < p.m; j++)
    for (int i = 0; i < p.width; i++)
      p.cost[int64_t(j) * p.width + i] = i < p.n ? cost[p.bin_z[j] * padded + p.bin_x[i]] : 0.0;
  for (int i = 0; i < padded; i++) {
    p.x[i] = i < p.n ? start[p.bin_x[i]] : 0.0;
    p.z[i] = p.step[i] = p.change[i] = 0.0;
  }
  p.scale = 1.0;
  return p;
}

INLINE double largest(V x) {
  double most = x[0];
  for (int l = 1; l < kLanes; l++) most = x[l] > most ? x[l] : most;
  return most;
}

INLINE void sum_rows(Pair& p) {
  for (int i = 0; i < p.width; i += kLanes) {
    V total = {};
    for (int j = 0; j < p.m; j++) total += load(p.plan + int64_t(j) * p.width + i);
    store(p.rows + i, total);
  }
}

INLINE double row_error(const Pair& p) {
  V total = {};
  for (int i = 0; i < p.width; i += kLanes) total += abs(load(p.rows + i) - load(p.a + i));
  return sum(total);
}

// z, the best for x, and their plan, by logs. Entries that are next to nothing are left out: products of them would be
// denormal, and slow. They may matter again once potentials have moved by some kFarAway.
constexpr double kNegligible = 180.0, kFarAway = 40.0;
void answer(const Pair& p, const double* x, double* z, double* plan) {
  for (int j = 0; j < p.m; j++, plan += p.width) {
    const double* cost = p.cost + int64_t(j) * p.width;
    V most = splat(-1.7e308), total = {};
    for (int i = 0; i < p.width; i += kLanes) {
      const V log_term = p.scale * (load(x + i) - load(cost + i)) + load(p.log_a + i);
      store(plan + i, log_term);
      most = max(most, log_term);
    }
    const double top = largest(most);
    for (int i = 0; i < p.width; i += kLanes) {
      const V below = load(plan + i) - top, term = below > -kNegligible ? exp(below) : V{};
      store(plan + i, term);
      total += term;
    }
    z[j] = sum(total), p.scratch[j] = top;
    const double share = p.b[j] / z[j];
    for (int i = 0; i < p.width; i += kLanes) store(plan + i, share * load(plan + i));
  }
  for (int j = p.m; j % kLanes; j++) z[j] = 1.0, p.scratch[j] = 0.0;
  for (int j = 0; j < p.m; j += kLanes) store(z + j, (load(p.scratch + j) + log(load(z + j))) / -p.scale);
}

// The same where x changes by log(factor) / scale, without logs of the plan
void answer_scaled(const Pair& p, const double* factor, const double* from_z, const double* from, double* z,
                   double* plan) {
  for (int j = 0; j < p.m; j++, plan += p.width, from += p.width) {
    V total = {};
    for (int i = 0; i < p.width; i += kLanes) {
      const V term = load(factor + i) * load(from + i);
      store(plan + i, term);
      total += term;
    }
    const double share = p.b[j] / sum(total);
    p.scratch[j] = share;
    for (int i = 0; i < p.width; i += kLanes) store(plan + i, share * load(plan + i));
  }
  for (int j = p.m; j % kLanes; j++) p.scratch[j] = 1.0;
  for (int j = 0; j < p.m; j += kLanes) store(z + j, load(from_z + j) + log(load(p.scratch + j)) / p.scale);
}

// One plain iteration: x is the best for z, then z for x.
void plain_step(Pair& p) {
  bool safe = true;
  for (int i = 0; i < p.n; i++) safe = safe && p.rows[i] > 1e-15 * p.a[i];
  if (safe) {
    for (int i = p.n; i < p.width; i++) p.rows[i] = 1.0;
    double* factor = p.trial_x;
    V most = {};
    for (int i = 0; i < p.width; i += kLanes) {
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
    for (int i = 0; i < p.width; i += kLanes) {
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
    for (int v = 0; v < kWide; v++) right[v] = load(plan + k + v * kLanes) * p.scratch[j];
    for (int r = 0; r < kTile; r++)
      for (int v = 0; v < kWide; v++) acc[r][v] -= plan[i + r] * right[v];
  }
  for (int r = 0; r < kTile; r++)
    for (int v = 0; v < kWide; v++) store(p.hessian + int64_t(i + r) * p.width + k + v * kLanes, acc[r][v]);
}

// U' D U = diag(T 1) - T diag(1 / b) T', a little enlarged: it is singular, and more so where parts of the plan hang
// together by next to nothing. D in p.pivots; U D replaces the upper triangle, with zeros up to the diagonal.
constexpr double kEnlarge = 1e-12;
void factor_hessian(Pair& p) {
  const int64_t width = p.width;
  Patience patience;
  for (int j = 0; j < p.m; j++) p.scratch[j] = 1.0 / p.b[j];
  for (int i = 0; i < p.n; i += kTile) {
    if (patience.exhausted(int64_t(kTile) * p.n * p.m)) return;
    int k = i / kLanes * kLanes;
    for (; k + kLanes < p.width; k += 2 * kLanes) hessian_tile<2>(p, i, k);
    if (k < p.width) hessian_tile<1>(p, i, k);
  }
  for (int k = 0; k < p.n; k++) {
    if (patience.exhausted(int64_t(p.n - k) * (p.n - k))) return;
    double* row = p.hessian + k * width;
    const double extra = kEnlarge * (p.rows[k] + p.a[k]), pivot = row[k] + p.rows[k] + extra;
    p.pivots[k] = pivot > extra ? pivot : extra;
    for (int i = k / kLanes * kLanes; i <= k; i++) row[i] = 0.0;
    const double inverse = 1.0 / p.pivots[k];
    for (int i = k + 1; i < p.n; i++) {
      const double l = row[i] * inverse;
      double* other = p.hessian + i * width;
      for (int c = i / kLanes * kLanes; c < p.width; c += kLanes) store(other + c, load(other + c) - l * load(row + c));
    }
  }
}

// v = hessian^-1 v
INLINE void solve_hessian(const Pair& p, double* v) {
  for (int k = 0; k < p.n; k++) {
    const double* row = p.hessian + int64_t(k) * p.width;
    v[k] /= p.pivots[k];
    const double y = v[k];
    for (int c = k / kLanes * kLanes; c < p.width; c += kLanes) store(v + c, load(v + c) - y * load(row + c));
  }
  for (int k = p.n - 1; k >= 0; k--) {
    const double* row = p.hessian + int64_t(k) * p.width;
    V total = {};
    for (int c = k / kLanes * kLanes; c < p.width; c += kLanes) total += load(row + c) * load(v + c);
    v[k] -= sum(total) / p.pivots[k];
  }
}

// change = dx / d(1 / scale): where the solution goes as reg changes. Needs a factored Hessian.
void follow_reg(Pair& p) {
  for (int i = 0; i < p.width; i++) p.change[i] = 0.0;
  for (int j = 0; j < p.m; j++) {
    const double *plan = p.plan + int64_t(j) * p.width, *cost = p.cost + int64_t(j) * p.width;
    V total = {};
    for (int i = 0; i < p.width; i += kLanes) {
      const V term = load(plan + i) * (load(p.x + i) + p.z[j] - load(cost + i));
      store(p.trial + i, term);
      total += term;
    }
    const double mean = sum(total) / p.b[j];
    for (int i = 0; i < p.width; i += kLanes)
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
    for (int i = 0; i < p.width; i += kLanes) {
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
    const auto done = [&] { return iterations >= max_iter || (p.scale == 1.0 && error < tol); };
    for (int k = starting && p.scale < 1.0 ? kFirstSteps : plain; k > 0 && !done(); k--) {
      plain_step(p);
      error = row_error(p), iterations++;
    }
    if (done()) break;
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
    for (int i = 0; i < p.width; i += kLanes) {
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
INLINE void spread(const SinkhornTables& t, const double* b, const Pair& p, const SinkhornScratch& s) {
  for (int k = 0; k < t.padded_bins; k++) s.z[k] = 0.0;
  const int count = p.swapped ? p.n : p.m;
  for (int j = 0; j < count; j++) s.z[(p.swapped ? p.bin_x : p.bin_z)[j]] = (p.swapped ? p.x : p.z)[j];
  log_step(t.cost_t, t, b, s.z, s.x);
}

}  // namespace

void finish_by_newton(const SinkhornJob& job, int64_t p, double coarsest, int spent, const SinkhornScratch& s) {
  const SinkhornTables& t = *job.tables;
  const int d = t.n_bins;
  const double *a = job.x + p / job.m * d, *b = job.z + p % job.m * d;
  bool cold = true;
  for (int k = 0; k < d; k++) cold = cold && s.x[k] == 0.0;
  Pair pair = make_pair(t, a, b, s);
  const Outcome found = solve_pair(pair, cold, coarsest, tol_of(job, p), job.max_iter - spent);
  job.value[p] = t.reg * (job.transport ? rounded_cost(pair) : dual_value(pair));
  job.iterations[p] = spent + found.iterations, job.error[p] = found.error;
  if (!job.potential_x) return;
  spread(t, b, pair, s);
  for (int k = 0; k < d; k++) job.potential_x[p * d + k] = s.x[k] * t.reg;
}

}  // namespace knnpress::KNNPRESS_TARGET
