// Entropic transport between clouds of points: many pairs, each with a cost matrix of its own, cut out of one table.
//
// All costs and potentials are in units of reg. A pair's plan is T = a b exp(f + g - C). Columns (points of z) are in
// lanes; rows (points of x) and columns that fill the last vector have no mass.
#include "arena.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr double kSafeCost = 300.0;  // range of costs within a row up to which no scaling leaves the doubles
constexpr double kCoarseCost = 50.0;  // from which reg falls in stages
constexpr int kStageIterations = 30;
constexpr int kLook = 8;  // iterations between looks at whether a pair is above its limit
constexpr double kNone = -1e300;     // log of no mass
constexpr double kNoLimit = 1e300;
constexpr double kInfinity = __builtin_inf();

INLINE int64_t round_up(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

INLINE double max_of(V x) {
  double top = x[0];
  for (int l = 1; l < kLanes; l++) top = x[l] > top ? x[l] : top;
  return top;
}
INLINE double log1(double x) { return log(splat(x))[0]; }

struct Scratch {
  double *cost, *a, *u, *row, *b, *v, *g, *log_b, *column;
};
template <class Job>
Scratch layout(Arena& arena, const Job& job) {
  const int64_t rows = round_up(job.table.most_rows), columns = round_up(job.table.most_columns);
  Scratch s;
  s.cost = arena.take<double>(rows * columns);
  for (double** of_row : {&s.a, &s.u, &s.row}) *of_row = arena.take<double>(rows);
  for (double** of_column : {&s.b, &s.v, &s.g, &s.log_b, &s.column}) *of_column = arena.take<double>(columns);
  return s;
}

// The pair's costs, (padded_n, padded_k), with the least of each row taken off and kept in `row`; returns the largest
// that is left.
double gather(const CloudTable& t, int64_t i, int64_t j, const Scratch& s) {
  const int64_t first = t.x_offsets[i], n = t.x_offsets[i + 1] - first, padded_n = round_up(n);
  const int64_t begin = t.z_offsets[j], k = t.z_offsets[j + 1] - begin, padded_k = round_up(k);
  const int64_t full = k / kLanes * kLanes;
  double largest = 0;
  for (int64_t l = 0; l < n; l++) {
    const double* from = t.cost + t.index[first + l] * t.width + (t.z_index ? 0 : begin);
    double* to = s.cost + l * padded_k;
    if (t.z_index) {
      for (int64_t c = 0; c < k; c++) to[c] = from[t.z_index[begin + c]];
      from = to;
    }
    double least = from[0], most = from[0];
    if (full) {
      V low = load(from), high = low;
      for (int64_t c = kLanes; c < full; c += kLanes) low = min(low, load(from + c)), high = max(high, load(from + c));
      least = -max_of(-low), most = max_of(high);
    }
    for (int64_t c = full; c < k; c++) least = from[c] < least ? from[c] : least, most = from[c] > most ? from[c] : most;
    for (int64_t c = 0; c < full; c += kLanes) store(to + c, load(from + c) - least);
    for (int64_t c = full; c < k; c++) to[c] = from[c] - least;
    for (int64_t c = k; c < padded_k; c++) to[c] = 0;
    s.a[l] = t.x_weights[first + l], s.row[l] = least;
    if (most - least > largest) largest = most - least;
  }
  for (int64_t l = n; l < padded_n; l++) {
    for (int64_t c = 0; c < padded_k; c++) s.cost[l * padded_k + c] = 0;
    s.a[l] = 0, s.row[l] = 0;
  }
  for (int64_t c = 0; c < padded_k; c++) s.b[c] = c < k ? t.z_weights[begin + c] : 0;
  return largest;
}

struct Solved {
  double value, error;
  int iterations;
  bool above = false;  // the limit: given up
};

// The dual value of scalings, without what was taken off the rows; never falls from one iteration to the next.
double dual_value(int64_t padded_n, int64_t padded_k, const Scratch& s) {
  double value = 0;
  for (int64_t l = 0; l < padded_n; l += kLanes) {
    const V a = load(s.a + l);
    value += sum(a > 0.0 ? a * log(load(s.u + l) / a) : V{});
  }
  for (int64_t c = 0; c < padded_k; c += kLanes) value -= sum(load(s.b + c) * log(load(s.column + c)));
  return value;
}

// Scalings: one pass over the kernel gives u = a / K v and K'u. N vectors of columns; 0: as many as `vectors` says.
template <int N>
Solved scale(int64_t padded_n, int vectors, const Scratch& s, double tol, int max_iter, double limit,
             Patience& patience) {
  const int nv = N ? N : vectors;
  const int64_t padded_k = int64_t(nv) * kLanes;
  Solved done{0, 0, 0};
  for (int it = 1; it <= max_iter; it++) {
    V local[N ? N : 1];
    if constexpr (N > 0)
      for (int c = 0; c < N; c++) local[c] = V{};
    else
      for (int c = 0; c < nv; c++) store(s.column + c * kLanes, V{});
    for (int64_t l = 0; l < padded_n; l += kLanes) {
      const double* k = s.cost + l * padded_k;
      V sums[kLanes];
      for (int r = 0; r < kLanes; r++) {
        V x = V{};
        for (int c = 0; c < nv; c++) x += load(k + r * padded_k + c * kLanes) * load(s.v + c * kLanes);
        sums[r] = x;
      }
      transpose(sums);
      V total = sums[0];
      for (int r = 1; r < kLanes; r++) total += sums[r];
      const V u = load(s.a + l) / total;
      store(s.u + l, u);
      for (int r = 0; r < kLanes; r++) {
        const V ur = splat(u[r]);
        if constexpr (N > 0)
          for (int c = 0; c < N; c++) local[c] += ur * load(k + r * padded_k + c * kLanes);
        else
          for (int c = 0; c < nv; c++)
            store(s.column + c * kLanes, load(s.column + c * kLanes) + ur * load(k + r * padded_k + c * kLanes));
      }
    }
    if constexpr (N > 0)
      for (int c = 0; c < N; c++) store(s.column + c * kLanes, local[c]);
    V off = V{};
    for (int c = 0; c < nv; c++) {
      const V b = load(s.b + c * kLanes), column = load(s.column + c * kLanes);
      off += abs(load(s.v + c * kLanes) * column - b);
      store(s.v + c * kLanes, b / column);
    }
    done.error = sum(off), done.iterations = it;
    if (done.error <= tol || patience.exhausted(2 * padded_n * padded_k)) break;
    if (limit < kNoLimit && (it & (kLook - 1)) == 1 && dual_value(padded_n, padded_k, s) > limit) {
      done.above = true;
      break;
    }
  }
  return done;
}

template <int N>
Solved scale_by_size(int64_t padded_n, int vectors, const Scratch& s, double tol, int max_iter, double limit,
                     Patience& patience) {
  if constexpr (N > 0) {
    if (vectors == N) return scale<N>(padded_n, vectors, s, tol, max_iter, limit, patience);
    return scale_by_size<N - 1>(padded_n, vectors, s, tol, max_iter, limit, patience);
  }
  return scale<0>(padded_n, vectors, s, tol, max_iter, limit, patience);
}

Solved solve_by_scaling(int64_t n, int64_t k, bool warm, const Scratch& s, double tol, int max_iter, double limit,
                        Patience& patience) {
  const int64_t padded_n = round_up(n), padded_k = round_up(k);
  for (int64_t c = 0; c < padded_n * padded_k; c += kLanes) store(s.cost + c, exp(-load(s.cost + c)));
  double top = s.g[0];
  for (int64_t c = 1; c < k; c++) top = s.g[c] > top ? s.g[c] : top;
  for (int64_t c = 0; c < padded_k; c += kLanes) {
    const V b = load(s.b + c);
    store(s.v + c, warm ? b * exp(min(max(load(s.g + c) - top, splat(-600.0)), V{})) : b);
  }
  for (int64_t l = 0; l < n && limit < kNoLimit; l++) limit -= s.a[l] * s.row[l];
  Solved done = scale_by_size<8>(padded_n, int(padded_k / kLanes), s, tol, max_iter, limit, patience);
  if (done.above) return done;
  for (int64_t c = 0; c < padded_k; c += kLanes) store(s.g + c, -log(load(s.column + c)));
  for (int64_t l = 0; l < n; l++) done.value += s.a[l] * s.row[l];
  for (int64_t l = 0; l < padded_n; l += kLanes) {
    const V a = load(s.a + l);
    done.value += sum(a > 0.0 ? a * log(load(s.u + l) / a) : V{});
  }
  for (int64_t c = 0; c < k; c++) done.value += s.b[c] * s.g[c];
  return done;
}

// -log sum_c exp(h_c - scale * cost_c)
INLINE double soft_least(const double* cost, const double* h, int64_t padded_k, double scale) {
  V top = load(h) - scale * load(cost), total = V{};
  for (int64_t c = kLanes; c < padded_k; c += kLanes) top = max(top, load(h + c) - scale * load(cost + c));
  const double most = max_of(top);
  for (int64_t c = 0; c < padded_k; c += kLanes) total += exp(load(h + c) - scale * load(cost + c) - most);
  return -most - log1(sum(total));
}

double first_stage(double largest) {
  double scale = 1;
  while (largest * scale > kCoarseCost) scale *= 0.5;
  return scale;
}

// Potentials, where scalings would underflow; reg falls in stages unless a start is known.
Solved solve_by_logs(int64_t n, int64_t k, bool warm, double largest, const Scratch& s, double tol, int max_iter,
                     double limit, Patience& patience) {
  const int64_t padded_k = round_up(k);
  const auto dual = [&] {
    double value = 0;
    for (int64_t l = 0; l < n; l++) value += exp(splat(s.a[l]))[0] * (s.u[l] + s.row[l]);
    for (int64_t c = 0; c < k; c++) value += s.b[c] * s.g[c];
    return value;
  };
  for (int64_t l = 0; l < n; l++) s.a[l] = log1(s.a[l]);
  for (int64_t c = 0; c < padded_k; c++) {
    s.log_b[c] = s.b[c] > 0 ? log1(s.b[c]) : kNone;
    if (!warm || c >= k) s.g[c] = 0;
  }
  Solved done{0, 0, 0};
  for (double scale = warm ? 1.0 : first_stage(largest);; scale *= 2) {
    const bool last = scale >= 1.0;
    for (int it = 1; it <= (last ? max_iter : kStageIterations); it++) {
      for (int64_t c = 0; c < padded_k; c += kLanes) store(s.column + c, load(s.log_b + c) + load(s.g + c));
      for (int64_t l = 0; l < n; l++) s.u[l] = soft_least(s.cost + l * padded_k, s.column, padded_k, scale);
      V off = V{};
      for (int64_t c = 0; c < padded_k; c += kLanes) {
        V top = splat(kNone), total = V{};
        for (int64_t l = 0; l < n; l++) top = max(top, s.a[l] + s.u[l] - scale * load(s.cost + l * padded_k + c));
        for (int64_t l = 0; l < n; l++) total += exp(s.a[l] + s.u[l] - scale * load(s.cost + l * padded_k + c) - top);
        const V g = -top - log(total);
        off += load(s.b + c) * abs(exp(min(load(s.g + c) - g, splat(50.0))) - 1.0);
        store(s.g + c, g);
      }
      done.error = sum(off), done.iterations++;
      if (done.error <= (last ? tol : 0.01) || patience.exhausted(30 * n * padded_k)) break;
      if (last && limit < kNoLimit && (it & (kLook - 1)) == 1 && dual() > limit) {
        done.above = true;
        return done;
      }
    }
    if (last) break;
    for (int64_t c = 0; c < padded_k; c++) s.g[c] *= 2;
  }
  done.value = dual();
  return done;
}

void clouds(const CloudJob& job, const Scratch& s) {
  const CloudTable& t = job.table;
  Patience patience;
  for (int64_t i = 0; i < t.n; i++)
    for (int64_t j = 0; j < t.m; j++) {
      const int64_t n = t.x_offsets[i + 1] - t.x_offsets[i], begin = t.z_offsets[j], k = t.z_offsets[j + 1] - begin;
      const int64_t at = i * t.m + j;
      const double limit = job.limit ? job.limit[at] : kInfinity;
      if (limit < -kNoLimit) {
        job.value[at] = kInfinity, job.error[at] = 0, job.iterations[at] = 0;
        continue;
      }
      const double largest = gather(t, i, j, s);
      double* potential = job.potential ? job.potential + i * t.columns + begin : nullptr;
      for (int64_t c = 0; c < round_up(k); c++) s.g[c] = job.warm && c < k ? potential[c] : 0;
      const Solved done = largest <= kSafeCost
                              ? solve_by_scaling(n, k, job.warm, s, job.tol, job.max_iter, limit, patience)
                              : solve_by_logs(n, k, job.warm, largest, s, job.tol, job.max_iter, limit, patience);
      if (patience.exhausted(n * k * 20)) return;
      job.value[at] = done.above ? kInfinity : done.value;
      job.error[at] = done.above ? 0 : done.error, job.iterations[at] = done.iterations;
      if (potential)
        for (int64_t c = 0; c < k; c++) potential[c] = s.g[c];
    }
}

void clouds_pullback(const CloudPullbackJob& job, const Scratch& s) {
  const CloudTable& t = job.table;
  const double* weight = job.weight;
  Patience patience;
  for (int64_t i = 0; i < t.n; i++)
    for (int64_t j = 0; j < t.m; j++) {
      const double w = weight[i * t.m + j];
      if (!(w > job.tolerance || w < -job.tolerance)) continue;
      const int64_t first = t.x_offsets[i], n = t.x_offsets[i + 1] - first;
      const int64_t begin = t.z_offsets[j], k = t.z_offsets[j + 1] - begin, padded_k = round_up(k);
      gather(t, i, j, s);
      const double* g = job.potential + i * t.columns + begin;
      for (int64_t c = 0; c < padded_k; c++)
        s.column[c] = c < k && s.b[c] > 0 ? g[c] + log1(s.b[c]) : kNone;
      for (int64_t l = 0; l < n; l++) {
        double* row = s.cost + l * padded_k;
        V top = splat(kNone), total = V{};
        for (int64_t c = 0; c < padded_k; c += kLanes) top = max(top, load(s.column + c) - load(row + c));
        const double most = max_of(top);
        for (int64_t c = 0; c < padded_k; c += kLanes) {
          const V e = exp(load(s.column + c) - load(row + c) - most);
          total += e;
          store(row + c, e);
        }
        const double mass = w * s.a[l] / sum(total);
        double* to = job.plan + t.index[first + l] * t.columns + begin;
        for (int64_t c = 0; c < k; c++) to[c] += mass * row[c];
      }
      for (int64_t c = 0; c < k; c++) job.gradient[begin + c] += w * g[c];
      if (patience.exhausted(n * padded_k * 30)) return;
    }
}

struct SelfScratch {
  double *cost, *log_a, *h, *next;  // (n, padded n), and numbers per point
};
SelfScratch self_layout(Arena& arena, const CloudSelfJob& job) {
  const int64_t columns = round_up(job.n);
  SelfScratch s;
  s.cost = arena.take<double>(job.n * columns);
  for (double** of_point : {&s.log_a, &s.h, &s.next}) *of_point = arena.take<double>(columns);
  return s;
}

// OT(a, a) by the symmetric iteration; columns that fill the last vector cost nothing, and have no mass.
void cloud_self(const CloudSelfJob& job, const SelfScratch& s) {
  const int64_t n = job.n, columns = round_up(n);
  const double *cost = job.cost, *a = job.a;
  double *padded_cost = s.cost, *log_a = s.log_a, *h = s.h, *next = s.next, *potential = job.potential;
  double largest = 0;
  for (int64_t l = 0; l < n; l++)
    for (int64_t c = 0; c < columns; c++) {
      padded_cost[l * columns + c] = c < n ? cost[l * n + c] : 0;
      if (padded_cost[l * columns + c] > largest) largest = padded_cost[l * columns + c];
    }
  for (int64_t c = 0; c < columns; c++) log_a[c] = c < n && a[c] > 0 ? log1(a[c]) : kNone;
  for (int64_t c = 0; c < n; c++) potential[c] = 0;
  Patience patience;
  *job.iterations = 0;
  for (double scale = first_stage(largest);; scale *= 2) {
    const bool last = scale >= 1.0;
    for (int it = 1; it <= (last ? job.max_iter : kStageIterations); it++) {
      for (int64_t c = 0; c < columns; c++) h[c] = log_a[c] + (c < n ? potential[c] : 0);
      double off = 0;
      for (int64_t l = 0; l < n; l++) next[l] = soft_least(padded_cost + l * columns, h, columns, scale);
      for (int64_t l = 0; l < n; l++) {
        const double gap = potential[l] - next[l];
        const V e = exp(splat(gap > 50 ? 50.0 : gap));
        off += a[l] * abs(e - 1.0)[0];
        potential[l] = 0.5 * (potential[l] + next[l]);
      }
      *job.error = off, *job.iterations += 1;
      if (off <= (last ? job.tol : 0.01) || patience.exhausted(20 * n * columns)) break;
    }
    if (last || stopped()) break;
    for (int64_t c = 0; c < n; c++) potential[c] *= 2;
  }
  *job.value = 0;
  for (int64_t l = 0; l < n; l++) *job.value += 2 * a[l] * potential[l];
}

}  // namespace

void fill_clouds(Kernels& k) {
  define<layout<CloudJob>, clouds>(k.clouds);
  define<layout<CloudPullbackJob>, clouds_pullback>(k.clouds_pullback);
  define<self_layout, cloud_self>(k.cloud_self);
}

}  // namespace knnpress::KNNPRESS_TARGET
