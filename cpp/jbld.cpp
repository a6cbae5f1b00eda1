// Log-determinants of sums of symmetric positive definite matrices, one pair per SIMD lane.
//
// The factorisation is A = L D L', left-looking over panels of two columns: one division a column and no square root.
// V = L D is kept beside L, so that an update is V[row, k] * L[col, k] with no scaling in the inner loop.
#include "arena.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr int kRows = kAccumulators / kPanel;  // rows of a register tile

// Where panel k begins in packed storage.
INLINE int64_t panel_begin(int k, int d) {
  int64_t h = k / kPanel;
  return int64_t(k) * d - kPanel * h * (h - 1);
}

// Some rows of a matrix, panel by panel: each is `step` behind the last, which itself changes by `change`.
template <class X>
struct Panels {
  const X* rows;
  int64_t step, change;
};
template <class X>
INLINE Panels<X> packed_panels(const X* rows, int d) {  // of a matrix with d rows from the first panel on
  return {rows, int64_t(d - kPanel) * kPanel, -kPanel * kPanel};
}
template <class X>
INLINE Panels<X> square_panels(const X* rows, int d) { return {rows, int64_t(d) * kPanel, 0}; }

// acc[r][c] -= sum over panels of a[row r, k] * b[row c, k]
template <int R, class X>
INLINE void multiply_subtract(X (&acc)[R][kPanel], Panels<X> a, Panels<X> b, int panels) {
  for (; panels > 0; panels--) {
    for (int k = 0; k < kPanel; k++) {
      X b0 = b.rows[k], b1 = b.rows[kPanel + k];
      for (int r = 0; r < R; r++) {
        X x = a.rows[r * kPanel + k];
        acc[r][0] -= x * b0;
        acc[r][1] -= x * b1;
      }
    }
    a.rows += a.step, a.step += a.change, b.rows += b.step, b.step += b.change;
  }
}

// The product of the pivots, exponents split off so that it can neither overflow nor underflow.
struct LogProduct {
  V product = splat(1.0);
  Bits exponents = {};
  int terms = 0;  // exponents added so far, each biased by 1023
};
INLINE void normalise(LogProduct& p) {
  p.exponents += exponent(p.product), p.product = mantissa(p.product), p.terms++;
}
INLINE void multiply(LogProduct& p, V pivot) {
  pivot = max(pivot, splat(kSmallestNormal));  // rounding must not turn a nearly singular sum into NaN
  p.exponents += exponent(pivot), p.product *= mantissa(pivot), p.terms++;
  if (p.terms % 1000 == 0) normalise(p);  // mantissas below 2 each: far from overflow until here
}
// The logarithm of the product, halved so many times.
INLINE V log(LogProduct p, double halvings) {
  normalise(p);
  return log_scaled(p.product, p.exponents, 1023.0 * p.terms + halvings);
}

// The smaller of pivot / |diagonal| and the margin so far; a NaN, which follows a zero pivot, changes nothing any more.
INLINE V smaller(V pivot, V diagonal, V margin) {
  return min(pivot / max(abs(diagonal), splat(kSmallestNormal)), margin);
}

// What a factorisation works in.
template <class T>
struct Scratch {
  typedef typename Vector<T>::type X;
  X *v, *l;  // packed: V = L D and L
  X *e, *f;  // square panels: L^-T, and the same times weight / D
  X *x;      // packed: matrices gathered from several groups
  X *g;      // square panels: minus the weighted sum of inverses, upper triangle
  T *z;      // packed: one matrix
};
// Doubles and floats share all but g: each fills the rest anew before it reads it, except for the zeros of e and f, which
// lie at the same places and are zeros in both.
struct Pieces {
  V *v, *l, *e, *f, *x, *g, *g_single;
  double* z;
};
template <class T>
INLINE Scratch<T> scratch_of(const Pieces& p) {
  auto as = [](V* piece) INLINE_LAMBDA { return reinterpret_cast<typename Vector<T>::type*>(piece); };
  V* g = sizeof(T) == sizeof(double) ? p.g : p.g_single;
  return {as(p.v), as(p.l), as(p.e), as(p.f), as(p.x), as(g), reinterpret_cast<T*>(p.z)};
}
INLINE int64_t square_size(int d) { return int64_t(d + 1) * d; }
template <class Job>
Pieces layout(Arena& arena, const Job& job) {
  // updates of the narrow last panel of an odd matrix read a row beyond the end
  const int64_t spare = kPanel * kPanel, packed = packed_size(job.d) + spare, square = square_size(job.d) + spare;
  Pieces p;
  p.v = arena.take<V>(packed), p.l = arena.take<V>(packed);
  p.e = arena.take<V>(square), p.f = arena.take<V>(square);
  p.x = arena.take<V>(packed);
  p.g = arena.take<V>(square), p.g_single = arena.take<V>(square);
  p.z = arena.take<double>(packed_size(job.d));
  return p;
}
constexpr int kLong = 256;  // columns from which a single factorisation may last
INLINE int64_t work_of(int d) { return kLanes * (int64_t(d) * d * d / 6 + 1); }  // of one factorisation
template <class T>
INLINE void clear(T* p, int64_t size) { __builtin_memset(p, 0, size * sizeof(T)); }

// Factors x + z, one matrix a lane, and calls at_pivot(pivot, diagonal entry) a column. With kInverse also fills e
// and f.
template <bool kInverse, class T, class X, class AtPivot>
INLINE void factor(const X* x, const T* z, int d, const Scratch<T>& s, X weight, AtPivot at_pivot) {
  const X one = X{} + T(1);
  int64_t panel = 0;
  Patience patience;
  for (int j = 0; j < d; j += kPanel) {
    if (d >= kLong && patience.exhausted(int64_t(kPanel) * kLanes * d * d / 2)) return;
    const bool narrow = j + 1 == d;  // the last panel of an odd matrix has one column
    X inverse0 = {}, inverse1 = {}, l10 = {};
    for_row_tiles<kRows>(j, d, [&](auto size, auto on_diagonal, int i) INLINE_LAMBDA {
      constexpr int R = decltype(size)::value;
      const int64_t at = panel + (i - j) * kPanel;
      X acc[R][kPanel];
      for (int r = 0; r < R; r++)
        for (int c = 0; c < kPanel; c++) acc[r][c] = x[at + r * kPanel + c] + z[at + r * kPanel + c];
      X diagonal0 = acc[0][0], diagonal1 = acc[R > 1][1];
      multiply_subtract(acc, packed_panels(s.v + i * kPanel, d), packed_panels(s.l + j * kPanel, d), j / kPanel);
      constexpr bool kDiagonal = decltype(on_diagonal)::value;
      if constexpr (kDiagonal) {  // this tile makes the pivots
        X pivot0 = acc[0][0];
        inverse0 = one / pivot0;
        at_pivot(pivot0, diagonal0);
        if (R > 1) {
          l10 = acc[R > 1][0] * inverse0;
          X pivot1 = acc[R > 1][1] - acc[R > 1][0] * l10;
          inverse1 = one / pivot1;
          at_pivot(pivot1, diagonal1);
        }
      }
      for (int r = kDiagonal ? kPanel : 0; r < R; r++) {
        X v0 = acc[r][0], v1 = acc[r][1] - v0 * l10;
        s.v[at + r * kPanel] = v0, s.v[at + r * kPanel + 1] = v1;
        s.l[at + r * kPanel] = v0 * inverse0, s.l[at + r * kPanel + 1] = v1 * inverse1;
      }
    });
    if constexpr (kInverse) {
      // Eliminating the rows of I below A leaves L^-T there: rows below j + 2, upper triangular.
      X *e = s.e + int64_t(j) * d, *f = s.f + int64_t(j) * d;
      X scale0 = inverse0 * weight, scale1 = inverse1 * weight;
      for_row_tiles<kRows>(0, j, [&](auto size, auto, int i) INLINE_LAMBDA {
        constexpr int R = decltype(size)::value;
        X acc[R][kPanel] = {};
        const int k = i & ~1;  // these rows are zero before column i
        const X* l = s.l + panel_begin(k, d) + (j - k) * kPanel;
        multiply_subtract(acc, square_panels(s.e + int64_t(k) * d + i * kPanel, d), packed_panels(l, d - k),
                          (j - k) / kPanel);
        for (int r = 0; r < R; r++) {
          X v0 = acc[r][0], v1 = narrow ? X{} : acc[r][1] - v0 * l10;
          e[(i + r) * kPanel] = v0, e[(i + r) * kPanel + 1] = v1;
          f[(i + r) * kPanel] = v0 * scale0, f[(i + r) * kPanel + 1] = v1 * scale1;
        }
      });
      e[j * kPanel] = one, e[j * kPanel + 1] = -l10;
      f[j * kPanel] = scale0, f[j * kPanel + 1] = -l10 * scale1;
      if (!narrow) e[j * kPanel + kPanel + 1] = one, f[j * kPanel + kPanel + 1] = scale1;
    }
    panel += (d - j) * kPanel;
  }
}

// g -= e f': adds minus the weighted inverses of the last factorisation. Panel j holds rows 0 to j + 1, so that a tile
// begins at column j, before which rows j and j + 1 of f are zero.
template <class T>
INLINE void add_inverse(const Scratch<T>& s, int d) {
  typedef typename Vector<T>::type X;
  const int end = (d + 1) & ~1;
  Patience patience;
  for (int j = 0; j < d; j += kPanel) {
    if (d >= kLong && patience.exhausted(int64_t(kPanel) * kLanes * d * d / 2)) return;
    X* panel = s.g + int64_t(j) * d;
    for_row_tiles<kRows>(0, j + kPanel < d ? j + kPanel : d, [&](auto size, auto, int i) INLINE_LAMBDA {
      constexpr int R = decltype(size)::value;
      X acc[R][kPanel];
      for (int r = 0; r < R; r++)
        for (int c = 0; c < kPanel; c++) acc[r][c] = panel[(i + r) * kPanel + c];
      multiply_subtract(acc, square_panels(s.e + int64_t(j) * d + i * kPanel, d),
                        square_panels(s.f + int64_t(j) * d + j * kPanel, d), (end - j) / kPanel);
      for (int r = 0; r < R; r++)
        for (int c = 0; c < kPanel; c++) panel[(i + r) * kPanel + c] = acc[r][c];
    });
  }
}

// Below this share of its diagonal entry, a pivot has lost too many digits to be a float.
constexpr float kFloatMargin = 1e-4f;

// Adds minus the weighted inverses of x + z to g; of floats, only if all of them are accurate, and says if they are.
template <class T, class X>
bool add_inverses(const X* x, const T* z, int d, const Scratch<T>& s, const double* weight) {
  constexpr bool kFloat = Vector<T>::lanes > kLanes;
  X weights, sound = X{} + T(1);
  for (int l = 0; l < Vector<T>::lanes; l++) weights[l] = T(weight[l]);
  factor<true>(x, z, d, s, weights, [&](X pivot, X diagonal) INLINE_LAMBDA {
    if constexpr (kFloat) sound = pivot > kFloatMargin * abs(diagonal) ? sound : X{};
  });
  for (int l = 0; kFloat && l < Vector<T>::lanes; l++)
    if (sound[l] == 0) return false;
  add_inverse(s, d);
  return true;
}

// Fills a (d, d) matrix from g, each entry by way of `reduce`, which is told where it is.
template <class Reduce>
INLINE void write_symmetric(int d, double* out, Reduce reduce) {
  for (int i = 0; i < d; i++)
    for (int c = 0; c <= i; c++)
      out[i * d + c] = out[c * d + i] = reduce(int64_t(i & ~1) * d + c * kPanel + (i & 1));
}

void logdet(const LogdetJob& job, const Pieces& pieces) {
  const int d = job.d;
  const int64_t size = packed_size(d);
  const Scratch<double> s = scratch_of<double>(pieces);
  clear(s.z, size);
  Patience patience;
  for (int64_t g = 0; g < job.groups && !patience.exhausted(work_of(d)); g++) {
    LogProduct det;
    V margin = splat(1.0);
    const V* matrices = reinterpret_cast<const V*>(job.x) + g * size;
    factor<false>(matrices, s.z, d, s, V{}, [&](V pivot, V diagonal) INLINE_LAMBDA {
      multiply(det, pivot), margin = smaller(pivot, diagonal, margin);
    });
    store(job.logdet + g * kLanes, log(det, 0.0));
    store(job.margin + g * kLanes, margin);
  }
}

void pairwise(const JbldJob& job, const Pieces& pieces) {
  const int d = job.d;
  const int64_t n = job.n, m = job.m, size = packed_size(d), each = work_of(d);
  const double *z = job.z, *logdet_z = job.logdet_z, *limit = job.limit;
  double* out = job.out;
  const Scratch<double> s = scratch_of<double>(pieces);
  Patience patience;
  for (int64_t i = 0; i < n; i += kLanes) {
    const V* matrices = reinterpret_cast<const V*>(job.x) + i / kLanes * size;
    const V half_x = 0.5 * load(job.logdet_x + i);
    const int rows = n - i < kLanes ? int(n - i) : kLanes;
    const uint8_t* mask = job.mask ? job.mask + i / kLanes * m : nullptr;
    double farthest = 0.0, *lower = job.lower ? job.lower + i / kLanes * m : nullptr;
    for (int l = 0; limit && l < rows; l++) farthest = limit[i + l] > farthest ? limit[i + l] : farthest;
    for (int64_t j = 0; j < m; j++) {
      if (patience.exhausted(each)) return;
      if ((mask && !mask[j]) || (limit && lower[j] > farthest)) {
        for (int l = 0; l < rows; l++) out[(i + l) * m + j] = __builtin_inf();
        continue;
      }
      LogProduct det;
      factor<false>(matrices, z + j * size, d, s, V{}, [&](V pivot, V) INLINE_LAMBDA { multiply(det, pivot); });
      // log |(x + z) / 2|: each of the d pivots is halved
      V value = max(log(det, d) - (half_x + 0.5 * logdet_z[j]), V{});
      for (int l = 0; l < rows; l++) out[(i + l) * m + j] = value[l];
      if (lower) {
        double least = value[0];
        for (int l = 1; l < rows; l++) least = value[l] < least ? value[l] : least;
        lower[j] = least;
      }
    }
  }
}

// Matrices of one batch, as vectors of T: as they lie, or gathered in s.x. `whole`: each kLanes rows are those of a
// group.
template <class T>
INLINE const typename Vector<T>::type* gather(const double* x, const int64_t* rows, bool whole, int64_t size,
                                              const Scratch<T>& s) {
  typedef T Part __attribute__((vector_size(kLanes * sizeof(T))));
  constexpr int L = Vector<T>::lanes, kGroups = L / kLanes;
  if (whole && kGroups == 1) return reinterpret_cast<const typename Vector<T>::type*>(x + rows[0] * size);
  T* to = reinterpret_cast<T*>(s.x);
  for (int g = 0; whole && g < kGroups; g++) {
    const V* from = reinterpret_cast<const V*>(x + rows[g * kLanes] * size);
    Part* part = reinterpret_cast<Part*>(to) + g;
    for (int64_t k = 0; k < size; k++) part[k * kGroups] = __builtin_convertvector(from[k], Part);
  }
  if (whole) return s.x;
  const double* from[L];
  for (int l = 0; l < L; l++) from[l] = x + rows[l] / kLanes * size * kLanes + rows[l] % kLanes;
  for (int64_t k = 0; k < size; k++)
    for (int l = 0; l < L; l++) to[k * L + l] = T(from[l][k * kLanes]);
  return s.x;
}

// Pairs on their way into one batch.
template <int L>
struct Pairs {
  int64_t row[L];
  double weight[L];
  int count;
};

template <class T>
void pullback_in(const JbldPullbackJob& job, const Pieces& pieces) {
  constexpr int L = Vector<T>::lanes;
  constexpr bool kFloat = L > kLanes;
  const int d = job.d;
  const int64_t n = job.n, m = job.m, size = packed_size(d), square = square_size(d);
  const double *x = job.x, *weight = job.weight, tolerance = job.tolerance;
  const Scratch<double> s = scratch_of<double>(pieces);
  const Scratch<T> t = scratch_of<T>(pieces);
  clear(s.e, square), clear(s.f, square);
  Patience patience;
  for (int64_t j = 0; j < m; j++) {
    const double* zj = job.z + j * size;
    clear(t.g, square);
    bool exact = !kFloat;  // whether s.g is in use
    double scale = 1.0;    // weights of floats are at most one
    if constexpr (kFloat) {
      for (int64_t k = 0; k < size; k++) t.z[k] = T(zj[k]);
      double largest = 0.0;
      for (int64_t i = 0; i < n; i++) {
        const double w = __builtin_fabs(weight[i * m + j]);
        largest = w > largest ? w : largest;
      }
      if (largest > 0.0) scale = largest;
    }
    auto add = [&](Pairs<L>& p, bool whole) {
      for (int l = p.count; l < L; l++) p.row[l] = p.row[0], p.weight[l] = 0.0;
      p.count = 0;
      if constexpr (kFloat) {
        double scaled[L];
        for (int l = 0; l < L; l++) scaled[l] = p.weight[l] / scale;
        if (add_inverses(gather(x, p.row, whole, size, t), t.z, d, t, scaled)) return;
        if (!exact) clear(s.g, square), exact = true;
      }
      for (int l = 0; l < L; l += kLanes) add_inverses(gather(x, p.row + l, whole, size, s), zj, d, s, p.weight + l);
    };
    // Groups whose every pair matters run as they lie; the pairs that matter in other groups are gathered.
    Pairs<L> groups{}, singles{};
    auto append = [&](Pairs<L>& to, int64_t row) INLINE_LAMBDA {
      to.row[to.count] = row, to.weight[to.count++] = weight[row * m + j];
      if (to.count == L) add(to, &to == &groups);
    };
    auto matters = [&](int64_t row) INLINE_LAMBDA {
      const double w = weight[row * m + j];
      return w > tolerance || w < -tolerance;
    };
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t end = i + kLanes < n ? i + kLanes : n;
      if (patience.exhausted(4 * work_of(d))) return;
      int active = 0;
      for (int64_t row = i; row < end; row++) active += matters(row);
      for (int64_t row = i; active > 0 && row < end; row++)
        if (matters(row)) append(active == kLanes ? groups : singles, row);
    }
    for (int k = 0; k < groups.count; k++) append(singles, groups.row[k]);
    if (singles.count > 0) add(singles, false);
    write_symmetric(d, job.out + j * d * d, [&](int64_t at) INLINE_LAMBDA {
      if constexpr (kFloat) return -((exact ? sum(s.g[at]) : 0.0) + scale * sum(t.g[at]));
      return -sum(s.g[at]);
    });
  }
}
void pullback(const JbldPullbackJob& job, const Pieces& pieces) {
  (job.single ? pullback_in<float> : pullback_in<double>)(job, pieces);
}

void inverse(const InverseJob& job, const Pieces& pieces) {
  const int d = job.d;
  const int64_t n = job.n, size = packed_size(d), square = square_size(d);
  const double* x = job.x;
  double* out = job.out;
  const Scratch<double> s = scratch_of<double>(pieces);
  clear(s.e, square), clear(s.f, square), clear(s.z, size);
  double ones[kLanes];
  for (int l = 0; l < kLanes; l++) ones[l] = 1.0;
  Patience patience;
  for (int64_t i = 0; i < n && !patience.exhausted(work_of(d)); i++) {
    if (i % kLanes == 0) {
      clear(s.g, square);
      add_inverses(reinterpret_cast<const V*>(x + i * size), s.z, d, s, ones);
    }
    write_symmetric(d, out + i * d * d, [&](int64_t at) INLINE_LAMBDA { return -s.g[at][i % kLanes]; });
  }
}

}  // namespace

void fill_jbld(Kernels& k) {
  k.lanes = kLanes;
  define<layout<LogdetJob>, logdet>(k.logdet);
  define<layout<InverseJob>, inverse>(k.inverse);
  define<layout<JbldJob>, pairwise>(k.jbld);
  define<layout<JbldPullbackJob>, pullback>(k.jbld_pullback);
}

}  // namespace knnpress::KNNPRESS_TARGET
