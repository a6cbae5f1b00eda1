// Eigenvalues, eigenvectors and functions of symmetric matrices, one matrix per lane.
//
// Householder reflections make a matrix tridiagonal, implicit QL steps make that diagonal. A QL step of a lane turns
// the planes of its own window, from the first eigenvalue not yet found to the first zero beside the diagonal; the lanes
// go through the union of their windows together, and turn by nothing outside their own. The rotations do not depend
// on the vectors: they are collected and applied to a few rows at a time, which stay in the nearest cache.
#include "spectral.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr int kTurned = kAccumulators / 4;   // rows that are rotated together
constexpr int kSide = kAccumulators / 6 + (kAccumulators < 24);  // of a square tile of a product: 4 x 4 or 3 x 3
constexpr int kMostSweeps = 64;              // whose rotations are kept

// What G groups of lanes need. Tridiagonal matrices lie side by side, so that their recurrences overlap in time.
struct Scratch {
  V* a;         // G (d, stride): lower triangles, then the reflections below the diagonal; then scaled vectors
  V* q;         // G (d, stride): vectors
  V* result;    // (d, stride)
  V* tau;       // G d: of the reflections
  V* vectors;   // 6 d
  V* diagonal;  // (d, G)
  V* off;       // (d, G): beside the diagonal
  V* rotation;  // (capacity, G, 2): cosines and sines
  int* order;   // d: of eigenvalues
};
constexpr int kGroups = 2;                           // of lanes that are decomposed together; the last may be alone
INLINE int64_t capacity(int d) { return 4 * d; }     // rotations kept
template <class Job>
Scratch layout(Arena& arena, const Job& job) {
  const int64_t d = job.d, square = d * stride(job.d);
  Scratch s;
  s.a = arena.take<V>(kGroups * square), s.q = arena.take<V>(kGroups * square), s.result = arena.take<V>(square);
  s.tau = arena.take<V>(kGroups * d), s.vectors = arena.take<V>(6 * d);
  s.diagonal = arena.take<V>(kGroups * d), s.off = arena.take<V>(kGroups * d);
  s.rotation = arena.take<V>(2 * kGroups * capacity(job.d));
  s.order = arena.take<int>(d);
  return s;
}

INLINE void store_row(const V* from, int64_t n, int64_t row, int d, int i, double* out) {
  double* to = out + (row * d + i) * d;
  const int64_t step = int64_t(d) * d, lanes = n - row < kLanes ? n - row : kLanes;
  int j = 0;
  for (; j + kLanes <= d; j += kLanes) {
    V block[kLanes];
    for (int l = 0; l < kLanes; l++) block[l] = from[j + l];
    transpose(block);
    for (int l = 0; l < lanes; l++) store(to + l * step + j, block[l]);
  }
  for (; j < d; j++)
    for (int l = 0; l < lanes; l++) to[l * step + j] = reinterpret_cast<const double*>(from + j)[l];
}

// a -= v w' + w v' in R rows from i on, left of and on the diagonal, and their share of p = a u.
template <int R>
INLINE void update_rows(V* a, int ld, int begin, int i, const V* v, const V* w, const V* u, V* p) {
  V vi[R], wi[R], ui[R], sum[R] = {};
  for (int r = 0; r < R; r++) vi[r] = v[i + r], wi[r] = w[i + r], ui[r] = u[i + r];
  V* row = a + int64_t(i) * ld;
  for (int j = begin; j < i; j++) {
    const V vj = v[j], wj = w[j], uj = u[j];
    V pj = p[j];
    for (int r = 0; r < R; r++) {
      const V x = row[r * ld + j] - vi[r] * wj - wi[r] * vj;
      row[r * ld + j] = x, sum[r] += x * uj, pj += x * ui[r];
    }
    p[j] = pj;
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c <= r; c++) {
      const V x = row[r * ld + i + c] - vi[r] * wi[c] - wi[r] * vi[c];
      row[r * ld + i + c] = x, sum[r] += x * ui[c];
      if (c < r) sum[c] += x * ui[r];
    }
  for (int r = 0; r < R; r++) p[i + r] = sum[r];
}

// Makes the lower triangle a tridiagonal: H a H with H = H_0 ... H_{d-3}, H_k = I - tau_k u_k u_k', where u_k, whose
// first entry is 1, replaces column k below the diagonal. Each pass makes the last update and multiplies by the next u.
template <int G>
void tridiagonalise(V* a, int d, V* tau, V* vectors, V* diagonal, V* off) {
  const int ld = stride(d);
  V *v = vectors, *w = v + d, *u = w + d, *p = u + d;
  for (int i = 0; i < d; i++) v[i] = w[i] = V{};
  for (int k = 0; k + 2 < d; k++) {
    for (int i = k; i < d; i++) u[i] = a[int64_t(i) * ld + k] - v[i] * w[k] - w[i] * v[k];
    diagonal[k * G] = u[k];
    V rest = {};
    for (int i = k + 2; i < d; i++) rest += u[i] * u[i];
    const Reflection h = reflect(u[k + 1], rest);
    off[k * G] = h.beta, tau[k] = h.tau;
    u[k + 1] = splat(1.0);
    for (int i = k + 2; i < d; i++) u[i] *= h.factor;
    for (int i = k + 1; i < d; i++) a[int64_t(i) * ld + k] = u[i];
    for_row_tiles<kUpdated>(k + 1, d, [&](auto size, auto, int i) INLINE_LAMBDA {
      update_rows<decltype(size)::value>(a, ld, k + 1, i, v, w, u, p);
    });
    V along = {};
    for (int i = k + 1; i < d; i++) p[i] *= tau[k], along += p[i] * u[i];
    along *= 0.5 * tau[k];
    for (int i = k + 1; i < d; i++) w[i] = p[i] - along * u[i];
    V* last = v;
    v = u, u = last;
  }
  for (int k = d > 1 ? d - 2 : 0; k < d; k++) {
    diagonal[k * G] = a[int64_t(k) * ld + k] - 2.0 * v[k] * w[k];
    off[k * G] = k + 1 < d ? a[int64_t(k + 1) * ld + k] - v[k + 1] * w[k] - w[k + 1] * v[k] : V{};
  }
}

// q = H_0 ... H_{d-3}, from the last to the first, so that each concerns only what is below and right of it.
INLINE void form_reflections(const V* a, const V* tau, int d, V* q) {
  const int ld = stride(d);
  for (int i = 0; i < d; i++)
    for (int j = 0; j < d; j++) q[int64_t(i) * ld + j] = splat(i == j ? 1.0 : 0.0);
  for (int k = d - 3; k >= 0; k--)
    for_row_tiles<kAccumulators / 3>(k + 1, d, [&](auto size, auto, int j) INLINE_LAMBDA {
      constexpr int R = decltype(size)::value;
      V sum[R] = {};
      for (int i = k + 1; i < d; i++)
        for (int r = 0; r < R; r++) sum[r] += a[int64_t(i) * ld + k] * q[int64_t(i) * ld + j + r];
      for (int r = 0; r < R; r++) sum[r] *= tau[k];
      for (int i = k + 1; i < d; i++)
        for (int r = 0; r < R; r++) q[int64_t(i) * ld + j + r] -= a[int64_t(i) * ld + k] * sum[r];
    });
}

// The rotations of one QL step of all lanes: planes (i, i + 1) for i from last - 1 down to first.
struct Sweep {
  int first, last;
};

template <int G>
INLINE void turn(V* q, int d, const Sweep* sweeps, int n, const V* rotation) {
  const int ld = stride(d);
  for_row_tiles<kTurned>(0, d, [&](auto size, auto, int begin) INLINE_LAMBDA {
    constexpr int R = decltype(size)::value;
    V* row = q + int64_t(begin) * ld;
    const V* next = rotation;
    for (int k = 0; k < n; k++) {
      V carried[R];
      for (int r = 0; r < R; r++) carried[r] = row[r * ld + sweeps[k].last];
      for (int i = sweeps[k].last - 1; i >= sweeps[k].first; i--, next += 2 * G) {
        const V c = next[0], s = next[1];
        for (int r = 0; r < R; r++) {
          const V x = row[r * ld + i];
          row[r * ld + i + 1] = s * x + c * carried[r];
          carried[r] = c * x - s * carried[r];
        }
      }
      for (int r = 0; r < R; r++) row[r * ld + sweeps[k].first] = carried[r];
    }
  });
}

// Wilkinson's shift: where the recurrence of each lane begins.
template <int G>
INLINE V first_bulge(const V* diagonal, const V* off, V low, V high) {
  V d0 = {}, d1 = {}, e = splat(1.0), dm = {};
  for (int l = 0; l < kLanes; l++) {
    if (high[l] < 0) continue;
    const int i = int(low[l]) * G;
    d0[l] = diagonal[i][l], d1[l] = diagonal[i + G][l], e[l] = off[i][l], dm[l] = diagonal[int(high[l]) * G][l];
  }
  const V g = (d1 - d0) / (2.0 * e);
  return dm - d0 + e / (g + copysign(square_root(g * g + 1.0), g));
}

// Diagonal entries become eigenvalues, in no order; lanes that do not converge become NaN (not seen so far).
// `apply(sweeps, n)` is called when rotations have been collected, if they are wanted.
template <int G, bool kRotate, class Apply>
INLINE void diagonalise(V* diagonal, V* off, int d, V* rotation, Apply apply) {
  V low[G] = {}, high[G];
  Sweep sweeps[kMostSweeps];
  int kept = 0;
  int64_t used = 0;
  for (int step = 0;; step++) {
    V g[G], s[G], c[G], p[G], above[G];  // above: the last diagonal entry, not by way of memory, which would take longer
    int first = d, last = 0;
    for (int k = 0; k < G; k++) {
      find_windows<G>(diagonal + k, off + k, d, low[k], high[k]);
      for (int l = 0; l < kLanes; l++)
        if (high[k][l] >= 0) {
          first = low[k][l] < first ? int(low[k][l]) : first;
          last = high[k][l] > last ? int(high[k][l]) : last;
        }
    }
    if (kRotate && (kept == kMostSweeps || used + last - first > capacity(d) || (last == 0 && kept > 0)))
      apply(sweeps, kept), kept = 0, used = 0;
    if (last == 0) return;
    if (step == 30 * d) break;
    for (int k = 0; k < G; k++) {
      g[k] = first_bulge<G>(diagonal + k, off + k, low[k], high[k]);
      s[k] = c[k] = splat(1.0), p[k] = V{}, above[k] = diagonal[last * G + k];
    }
    for (int i = last - 1; i >= first; i--)
      for (int k = 0; k < G; k++) {
        V *di = diagonal + i * G + k, *ei = off + i * G + k;
        const V at = splat(double(i)), d0 = *di, e = *ei, f = s[k] * e, b = c[k] * e, square = f * f + g[k] * g[k];
        const auto inside = (at >= low[k]) & (at < high[k]), bottom = inside & (at == low[k]);
        const auto turns = square > kNegligible;
        const V inverse = inverse_square_root(square), r = turns ? square * inverse : V{};
        const V si = turns ? f * inverse : V{}, ci = turns ? g[k] * inverse : splat(1.0);
        const V shifted = above[k] - p[k], t = (d0 - shifted) * si + 2.0 * ci * b;
        const V pi = si * t, gi = ci * t - b;
        ei[G] = inside ? (at + 1.0 < high[k] ? r : V{}) : ei[G];
        di[G] = inside ? shifted + pi : di[G];
        *di = bottom ? d0 - pi : d0;
        *ei = bottom ? gi : e;
        s[k] = inside ? si : s[k], c[k] = inside ? ci : c[k], p[k] = inside ? pi : p[k], g[k] = inside ? gi : g[k];
        above[k] = d0;
        if (kRotate) {
          V* to = rotation + (used + last - 1 - i) * 2 * G + 2 * k;
          to[0] = inside ? ci : splat(1.0), to[1] = inside ? si : V{};
        }
      }
    if (kRotate) sweeps[kept++] = {first, last}, used += last - first;
  }
  for (int k = 0; k < G; k++)
    for (int i = 0; i < d; i++) diagonal[i * G + k] = high[k] >= 0.0 ? splat(__builtin_nan("")) : diagonal[i * G + k];
}

// ---- whole matrices -------------------------------------------------------------------------------------------

// Scales lanes by powers of two so that entries are at most about one, and returns what undoes it. What is not finite
// makes `poison`, otherwise zero, NaN.
INLINE V scale(V* a, int d, V& poison) {
  const int ld = stride(d);
  V largest = {}, zero = {};
  for (int i = 0; i < d; i++)
    for (int j = 0; j <= i; j++) largest = max(abs(a[int64_t(i) * ld + j]), largest), zero += a[int64_t(i) * ld + j] * 0.0;
  const V power = power_of_two(largest);
  const V factor = (V)((2046ULL << 52) - (Bits)power);
  for (int i = 0; i < d; i++)
    for (int j = 0; j <= i; j++) a[int64_t(i) * ld + j] *= factor;
  poison = zero;
  return power;
}

// sum[r][c] = left_r right_c' for kSide rows of each; those beyond the last repeat it.
template <class T>
INLINE void multiply_rows(V (&sum)[kSide][kSide], const T* left, int64_t left_step, int i, const V* right, int j, int d) {
  const T* x[kSide];
  const V* y[kSide];
  for (int r = 0; r < kSide; r++) {
    x[r] = left + (i + r < d ? i + r : d - 1) * left_step;
    y[r] = right + int64_t(j + r < d ? j + r : d - 1) * stride(d);
  }
  for (int r = 0; r < kSide; r++)
    for (int c = 0; c < kSide; c++) sum[r][c] = V{};
  for (int t = 0; t < d; t++)
    for (int r = 0; r < kSide; r++)
      for (int c = 0; c < kSide; c++) sum[r][c] += x[r][t] * y[c][t];
}

// The lower triangle a becomes that of m a m', one m for all lanes.
INLINE void congruence(const double* m, V* a, int d, V* product) {
  const int ld = stride(d);
  for (int i = 0; i < d; i++)
    for (int j = 0; j < i; j++) a[int64_t(j) * ld + i] = a[int64_t(i) * ld + j];
  V sum[kSide][kSide];
  for (int i = 0; i < d; i += kSide)
    for (int j = 0; j < d; j += kSide) {
      multiply_rows(sum, m, d, i, a, j, d);
      for (int r = 0; r < kSide && i + r < d; r++)
        for (int c = 0; c < kSide && j + c < d; c++) product[int64_t(i + r) * ld + j + c] = sum[r][c];
    }
  for (int j = 0; j < d; j += kSide)
    for (int i = j; i < d; i += kSide) {
      multiply_rows(sum, m, d, j, product, i, d);
      for (int r = 0; r < kSide; r++)
        for (int c = 0; c < kSide && i + c < d; c++)
          if (j + r <= i + c) a[int64_t(i + c) * ld + j + r] = sum[r][c];
    }
}

// Loads matrices x, or m x m', from `row` on into lanes and decomposes them.
template <int G, bool kVectors>
INLINE void decompose(const double* x, const double* m, int64_t n, int64_t row, int d, const Scratch& s) {
  const int ld = stride(d);
  const int64_t square = int64_t(d) * ld;
  V power[G], poison[G];
  for (int k = 0; k < G; k++) {
    V* a = s.a + k * square;
    for (int i = 0; i < d; i++) load_row(x, n, row + k * kLanes, d, i, i + 1, a + int64_t(i) * ld);
    if (m) congruence(m, a, d, s.result);
    power[k] = scale(a, d, poison[k]);
    tridiagonalise<G>(a, d, s.tau + k * d, s.vectors, s.diagonal + k, s.off + k);
    if (kVectors) form_reflections(a, s.tau + k * d, d, s.q + k * square);
  }
  diagonalise<G, kVectors>(s.diagonal, s.off, d, s.rotation, [&](const Sweep* sweeps, int count) INLINE_LAMBDA {
    for (int k = 0; k < G; k++) turn<G>(s.q + k * square, d, sweeps, count, s.rotation + 2 * k);
  });
  for (int i = 0; i < d; i++)
    for (int k = 0; k < G; k++) s.diagonal[i * G + k] = s.diagonal[i * G + k] * power[k] + poison[k];
}

// Ascending; the vectors, columns of q, follow.
template <int G, bool kVectors>
void eigen_groups(const double* x, int64_t n, int64_t row, int d, const Scratch& s, double* values, double* vectors) {
  decompose<G, kVectors>(x, nullptr, n, row, d, s);
  const int ld = stride(d);
  int* order = s.order;
  for (int k = 0; k < G * kLanes && row + k < n; k++) {
    const double* value = reinterpret_cast<double*>(s.diagonal) + k;
    for (int i = 0; i < d; i++) {
      int j = i;
      for (; j > 0 && value[order[j - 1] * G * kLanes] > value[i * G * kLanes]; j--) order[j] = order[j - 1];
      order[j] = i;
    }
    double *to = values + (row + k) * d, *columns = vectors + (row + k) * d * d;
    for (int i = 0; i < d; i++) to[i] = value[order[i] * G * kLanes];
    if (!kVectors) continue;
    const double* q = reinterpret_cast<double*>(s.q + k / kLanes * int64_t(d) * ld) + k % kLanes;
    for (int i = 0; i < d; i++)
      for (int j = 0; j < d; j++) columns[i * d + j] = q[(int64_t(i) * ld + order[j]) * kLanes];
  }
}

INLINE V map_value(SpectralMap map, V x) {
  const V positive = max(splat(kSmallestNormal), x);  // in this order NaN stays
  switch (map) {
    case SpectralMap::log: return log(positive) + (x - x);
    case SpectralMap::sqrt: return square_root(max(V{}, x));
    case SpectralMap::inverse_sqrt: return 1.0 / square_root(positive);
    default: {  // exp: in two factors, each within the range of a double
      const V most = splat(700.0), near = min(max(x, -most), most), rest = min(max(x - near, -most), most);
      return exp(near) * exp(rest) + (x - x);
    }
  }
}

// q f(s) q', each entry of the lower triangle written twice.
template <int G>
void map_groups(const double* x, const double* m, int64_t n, int64_t row, int d, SpectralMap map, const Scratch& s,
                double* out) {
  decompose<G, true>(x, m, n, row, d, s);
  const int ld = stride(d);
  for (int k = 0; k < G; k++) {
    V *q = s.q + k * int64_t(d) * ld, *scaled = s.a + k * int64_t(d) * ld;
    for (int i = 0; i < d; i++) s.vectors[i] = map_value(map, s.diagonal[i * G + k]);
    for (int i = 0; i < d; i++)
      for (int j = 0; j < d; j++) scaled[int64_t(i) * ld + j] = q[int64_t(i) * ld + j] * s.vectors[j];
    for (int i = 0; i < d; i += kSide)
      for (int j = 0; j <= i; j += kSide) {
        V sum[kSide][kSide];
        multiply_rows(sum, q, ld, i, scaled, j, d);
        for (int r = 0; r < kSide && i + r < d; r++)
          for (int c = 0; c < kSide && j + c <= i + r; c++)
            s.result[int64_t(i + r) * ld + j + c] = s.result[int64_t(j + c) * ld + i + r] = sum[r][c];
      }
    for (int i = 0; i < d; i++) store_row(s.result + int64_t(i) * ld, n, row + k * kLanes, d, i, out);
  }
}

void eigen(const EigenJob& job, const Scratch& s) {
  const int64_t n = job.n;
  Patience patience;
  for (int64_t row = 0; row < n && !patience.exhausted(work_of(job.d)); row += kGroups * kLanes) {
    const bool pair = n - row > kLanes;
    auto* some = job.vectors ? (pair ? eigen_groups<2, true> : eigen_groups<1, true>)
                             : (pair ? eigen_groups<2, false> : eigen_groups<1, false>);
    some(job.x, n, row, job.d, s, job.values, job.vectors);
  }
}
void spectral_map(const SpectralMapJob& job, const Scratch& s) {
  Patience patience;
  for (int64_t row = 0; row < job.n && !patience.exhausted(work_of(job.d)); row += kGroups * kLanes) {
    const bool pair = job.n - row > kLanes;
    (pair ? map_groups<2> : map_groups<1>)(job.x, job.m, job.n, row, job.d, job.map, s, job.out);
  }
}

}  // namespace

void fill_spectral(Kernels& k) {
  define<layout<EigenJob>, eigen>(k.eigen);
  define<layout<SpectralMapJob>, spectral_map>(k.spectral_map);
}

}  // namespace knnpress::KNNPRESS_TARGET
