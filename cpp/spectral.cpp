// Eigenvalues, eigenvectors and functions of symmetric matrices, one matrix per SIMD lane.
//
// Householder reflections make a matrix tridiagonal, implicit QL steps make that diagonal. A QL step of a lane turns
// the planes of its own window, from the first eigenvalue not yet found to the first zero beside the diagonal; the lanes
// go through the union of their windows together, and turn by nothing outside their own. The rotations do not depend
// on the vectors: they are collected and applied to a few rows at a time, which stay in the nearest cache.
#include "arena.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr int kUpdated = kAccumulators / 6;  // rows of a tile that is updated and multiplied in one pass: 6 vectors each
constexpr int kTurned = kAccumulators / 4;   // rows that are rotated together
constexpr int kSide = kAccumulators / 6 + (kAccumulators < 24);  // of a square tile of a product: 4 x 4 or 3 x 3
constexpr int kMostSweeps = 64;              // whose rotations are kept
constexpr double kEps2 = 4.93e-32;           // eps squared
constexpr double kNegligible = 1e-280;       // squares of entries this small, next to 1, are not worth a rotation

INLINE int stride(int d) { return d | 1; }  // odd, so that a column does not fall on one set of the cache
INLINE V copysign(V size, V sign) { return (V)(((Bits)size & ~kSignBit) | ((Bits)sign & kSignBit)); }

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

// Row i of matrices from `row` on, up to column `end` at least, one per lane; the last is repeated where there are no more.
INLINE void load_row(const double* x, int64_t n, int64_t row, int d, int i, int end, V* to) {
  const double* from[kLanes];
  for (int l = 0; l < kLanes; l++) from[l] = x + ((row + l < n ? row + l : n - 1) * d + i) * d;
  int j = 0;
  for (; j < end && j + kLanes <= d; j += kLanes) {
    V block[kLanes];
    for (int l = 0; l < kLanes; l++) block[l] = load(from[l] + j);
    transpose(block);
    for (int l = 0; l < kLanes; l++) to[j + l] = block[l];
  }
  for (; j < end; j++)
    for (int l = 0; l < kLanes; l++) reinterpret_cast<double*>(to + j)[l] = from[l][j];
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

// The reflection I - tau u u', u_0 = 1, that turns a vector, alpha above entries whose squares add up to `rest`, into
// (beta, 0, ...); u below u_0 is the vector times `factor`.
struct Reflection {
  V beta, tau, factor;
};
INLINE Reflection reflect(V alpha, V rest) {
  const V beta = copysign(square_root(alpha * alpha + rest), -alpha);
  const auto needed = rest > kNegligible;
  return {needed ? beta : alpha, needed ? (beta - alpha) / beta : V{}, needed ? 1.0 / (alpha - beta) : V{}};
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

// The window of each lane: `low`, where it has no eigenvalue yet, to `high`, the first zero from there on; high is -1
// in lanes that are done. What is not a number counts as zero, so that it ends.
template <int G>
INLINE void find_windows(const V* diagonal, const V* off, int d, V& low, V& high) {
  int begin = d - 1;
  for (int l = 0; l < kLanes; l++) begin = low[l] < begin ? int(low[l]) : begin;
  V end = splat(d - 1.0);
  for (int i = begin; i + 1 < d; i++) {
    const V e = off[i * G], size = kEps2 * abs(diagonal[i * G] * diagonal[i * G + G]);
    const V split = e * e > max(size, splat(kNegligible)) ? V{} : splat(1.0);
    const V at = splat(double(i));
    low = low == at ? low + split : low;
    const V ends = at > low ? split : V{};  // a zero within the window; the first counts
    end = end > at ? (ends > 0.0 ? at : end) : end;
  }
  high = low < end ? end : splat(-1.0);
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

// Diagonal entries become eigenvalues, in no order; lanes that do not converge become NaN, which nobody has seen.
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

// ---- singular values ------------------------------------------------------------------------------------------

// b -= u y' + x v' in R rows from i on, right of column k, and their share of y_next = b' u_next.
template <int R>
INLINE void update_square(V* b, int d, int k, int i, const V* u, const V* y, const V* x, const V* v, const V* u_next,
                          V* y_next) {
  const int ld = stride(d);
  V ui[R], xi[R], next[R];
  for (int r = 0; r < R; r++) ui[r] = u[i + r], xi[r] = x[i + r], next[r] = u_next[i + r];
  V* row = b + int64_t(i) * ld;
  for (int j = k + 1; j < d; j++) {
    const V yj = y[j], vj = v[j];
    V sum = y_next[j];
    for (int r = 0; r < R; r++) {
      const V entry = row[r * ld + j] - ui[r] * yj - xi[r] * vj;
      row[r * ld + j] = entry, sum += entry * next[r];
    }
    y_next[j] = sum;
  }
}

// Makes square b upper bidiagonal by reflections from both sides. The result is stored from the last entry to the
// first, which leaves the singular values as they are, so that `find_windows` finds the small ones first.
template <int G>
void bidiagonalise(V* b, int d, V* vectors, V* diagonal, V* off) {
  const int ld = stride(d);
  V *u = vectors, *y = u + d, *x = y + d, *v = x + d, *u_next = v + d, *y_next = u_next + d;
  for (int i = 0; i < 4 * d; i++) vectors[i] = V{};
  off[(d - 1) * G] = V{};
  for (int k = 0; k < d; k++) {
    V rest = {};
    for (int i = k; i < d; i++) {
      u_next[i] = b[int64_t(i) * ld + k] - u[i] * y[k] - x[i] * v[k];
      if (i > k) rest += u_next[i] * u_next[i];
      y_next[i] = V{};
    }
    const Reflection left = reflect(u_next[k], rest);
    diagonal[(d - 1 - k) * G] = left.beta;
    if (k + 1 == d) return;
    u_next[k] = splat(1.0);
    for (int i = k + 1; i < d; i++) u_next[i] *= left.factor;
    for_row_tiles<kUpdated>(k, d, [&](auto size, auto, int i) INLINE_LAMBDA {
      update_square<decltype(size)::value>(b, d, k, i, u, y, x, v, u_next, y_next);
    });
    rest = V{};
    for (int j = k + 1; j < d; j++) {
      y_next[j] *= left.tau, v[j] = b[int64_t(k) * ld + j] - y_next[j];
      if (j > k + 1) rest += v[j] * v[j];
    }
    const Reflection right = reflect(v[k + 1], rest);
    off[(d - 2 - k) * G] = right.beta;
    v[k + 1] = splat(1.0);
    V along = y_next[k + 1];
    for (int j = k + 2; j < d; j++) v[j] *= right.factor, along += y_next[j] * v[j];
    for_row_tiles<kAccumulators / 3>(k + 1, d, [&](auto size, auto, int i) INLINE_LAMBDA {
      constexpr int R = decltype(size)::value;
      V sum[R] = {};
      for (int j = k + 1; j < d; j++)
        for (int r = 0; r < R; r++) sum[r] += b[int64_t(i + r) * ld + j] * v[j];
      for (int r = 0; r < R; r++) x[i + r] = right.tau * (sum[r] - u_next[i + r] * along);
    });
    V *last_u = u, *last_y = y;
    u = u_next, y = y_next, u_next = last_u, y_next = last_y;
  }
}

// Where the chase of each lane begins, as a vector to rotate onto an axis: Wilkinson's shift of b'b.
template <int G>
INLINE void first_rotation(const V* diagonal, const V* off, V low, V high, V& f, V& g) {
  V a0 = splat(1.0), a1 = a0, b0 = a0, b1 = {}, am = a0, bm = {};
  for (int l = 0; l < kLanes; l++) {
    if (high[l] < 0) continue;
    const int i = int(low[l]) * G, m = int(high[l]) * G;
    a0[l] = diagonal[i][l], a1[l] = diagonal[i + G][l], b0[l] = off[i][l], b1[l] = i + G < m ? off[i + G][l] : 0.0;
    am[l] = diagonal[m][l], bm[l] = off[m - G][l];
  }
  V unit = max(max(abs(a0), abs(b0)), max(abs(a1), abs(b1)));
  unit = 1.0 / max(unit, max(abs(am), abs(bm)));  // so that nothing below can overflow
  a0 *= unit, b0 *= unit, a1 *= unit, b1 *= unit, am *= unit, bm *= unit;
  const V t00 = a0 * a0 + b0 * b0, t11 = a1 * a1 + b1 * b1, t01 = a1 * b0, half = 0.5 * (t11 - t00);
  const V root = square_root(half * half + t01 * t01), sum = half + copysign(root, half);
  const V shift = abs(sum) > 0.0 ? t00 - t01 * t01 / sum : t00;
  f = am * am - shift, g = am * bm;
}

// Diagonal entries become singular values, in no order, with either sign; lanes that do not converge become NaN. Golub
// and Kahan's steps, in the windows of `find_windows`, from the high end to the low one.
template <int G>
INLINE void singular_values(V* diagonal, V* off, int d) {
  V low[G] = {}, high[G];
  for (int step = 0; step < 30 * d; step++) {
    V f[G], g[G], above[G], beside[G];  // entries on their way, not by way of memory, which would take longer
    int first = d, last = 0;
    for (int k = 0; k < G; k++) {
      find_windows<G>(diagonal + k, off + k, d, low[k], high[k]);
      for (int l = 0; l < kLanes; l++)
        if (high[k][l] >= 0) {
          first = low[k][l] < first ? int(low[k][l]) : first;
          last = high[k][l] > last ? int(high[k][l]) : last;
        }
      first_rotation<G>(diagonal + k, off + k, low[k], high[k], f[k], g[k]);
    }
    if (last == 0) return;
    for (int k = 0; k < G; k++) above[k] = diagonal[last * G + k], beside[k] = off[(last - 1) * G + k];
    for (int i = last - 1; i >= first; i--)
      for (int k = 0; k < G; k++) {
        V *a = diagonal + i * G + k, *b = off + i * G + k;
        const V at = splat(double(i)), b0 = beside[k], a1 = above[k], a0 = a[0], b2 = i > 0 ? b[-G] : V{};
        const auto inside = (at >= low[k]) & (at < high[k]), more = inside & (at > low[k]);
        const V square = f[k] * f[k] + g[k] * g[k], inverse = inverse_square_root(square);
        const V c = square > kNegligible ? f[k] * inverse : splat(1.0), s = square > kNegligible ? g[k] * inverse : V{};
        b[G] = inside & (at + 1.0 < high[k]) ? square * inverse : b[G];
        const V f1 = c * a1 + s * b0, b1 = c * b0 - s * a1, g1 = s * a0, a2 = c * a0;
        const V square1 = f1 * f1 + g1 * g1, inverse1 = inverse_square_root(square1);
        const V c1 = square1 > kNegligible ? f1 * inverse1 : splat(1.0), s1 = square1 > kNegligible ? g1 * inverse1 : V{};
        const V f2 = c1 * b1 + s1 * a2;
        a[G] = inside ? c1 * f1 + s1 * g1 : a1;
        a[0] = above[k] = inside ? c1 * a2 - s1 * b1 : a0;
        b[0] = inside ? f2 : b0;
        beside[k] = more ? c1 * b2 : b2;
        g[k] = inside ? s1 * b2 : g[k];
        f[k] = inside ? f2 : f[k];
      }
  }
  for (int k = 0; k < G; k++)
    for (int i = 0; i < d; i++) diagonal[i * G + k] = high[k] >= 0.0 ? splat(__builtin_nan("")) : diagonal[i * G + k];
}

// ---- whole matrices -------------------------------------------------------------------------------------------

// The power of two below x, from 2^-1022 to 2^1022, so that its inverse is a normal number too.
INLINE V power_of_two(V x) {
  return min(max((V)((Bits)x & ~kMantissa), splat(kSmallestNormal)), splat(0x1p1022));
}
// Singular values are scaled to at most about this, so that squares of them range as far as doubles do.
constexpr double kLargeScale = 0x1p480, kLogLargeScale = 480 * kLn2;

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

int64_t work_of(int d) { return 10LL * kLanes * d * d * d; }  // multiplications of a pair of groups, roughly

void eigen(const EigenJob& job, const Scratch& s) {
  const int64_t n = job.n;
  Patience patience;
  for (int64_t row = 0; row < n && !patience.over(work_of(job.d)); row += kGroups * kLanes) {
    const bool pair = n - row > kLanes;
    auto* some = job.vectors ? (pair ? eigen_groups<2, true> : eigen_groups<1, true>)
                             : (pair ? eigen_groups<2, false> : eigen_groups<1, false>);
    some(job.x, n, row, job.d, s, job.values, job.vectors);
  }
}
void spectral_map(const SpectralMapJob& job, const Scratch& s) {
  Patience patience;
  for (int64_t row = 0; row < job.n && !patience.over(work_of(job.d)); row += kGroups * kLanes) {
    const bool pair = job.n - row > kLanes;
    (pair ? map_groups<2> : map_groups<1>)(job.x, job.m, job.n, row, job.d, job.map, s, job.out);
  }
}

// b = whitener a for lower triangles, one whitener for all lanes, scaled to at most about kLargeScale. Returns the
// logarithm of what undoes that.
INLINE V whiten(const double* whitener, const V* a, int d, V* b) {
  const int ld = stride(d);
  V largest = {};
  for (int i = 0; i < d; i++)
    for_row_tiles<kAccumulators / 3>(0, d, [&](auto size, auto, int c) INLINE_LAMBDA {
      constexpr int R = decltype(size)::value;
      V sum[R] = {};
      for (int t = c; t <= i; t++)  // above the diagonal both are zero
        for (int r = 0; r < R; r++) sum[r] += whitener[i * d + t] * a[int64_t(t) * ld + c + r];
      for (int r = 0; r < R; r++) b[int64_t(i) * ld + c + r] = sum[r], largest = max(abs(sum[r]), largest);
    });
  const V power = power_of_two(largest), factor = (V)((Bits)splat(kLargeScale) + (1023ULL << 52) - (Bits)power);
  for (int64_t i = 0; i < int64_t(d) * ld; i++) b[i] *= factor;
  return log(power) - kLogLargeScale;
}

struct AirmScratch {
  V *factor, *whitened;   // (d, stride)
  V* vectors;             // 6 d
  V *diagonal, *off;      // (d, kTogether)
};
constexpr int kTogether = 4;  // prototypes whose bidiagonal matrices lie side by side: their recurrences overlap
AirmScratch airm_layout(Arena& arena, const AirmJob& job) {
  const int64_t d = job.d, square = d * stride(job.d);
  AirmScratch s;
  s.factor = arena.take<V>(square), s.whitened = arena.take<V>(square);
  s.vectors = arena.take<V>(6 * d);
  s.diagonal = arena.take<V>(kTogether * d), s.off = arena.take<V>(kTogether * d);
  return s;
}

// Distances of a group, whose factors are in s.factor, to `count` of m prototypes, at most G, by the singular values of
// b = whitener_j factor_i: their squares are the generalised eigenvalues, and b has only the root of their condition.
template <int G>
void airm_some(const double* whiteners, int count, int lanes, int64_t m, int d, const AirmScratch& s,
               double* out) {
  V *diagonal = s.diagonal, *off = s.off;
  V shift[G] = {};
  for (int k = 0; k < G; k++) {
    for (int i = 0; i < d; i++) diagonal[i * G + k] = splat(1.0), off[i * G + k] = V{};  // beyond count: found at once
    if (k >= count) continue;
    shift[k] = whiten(whiteners + int64_t(k) * d * d, s.factor, d, s.whitened);
    bidiagonalise<G>(s.whitened, d, s.vectors, diagonal + k, off + k);
  }
  singular_values<G>(diagonal, off, d);
  for (int k = 0; k < count; k++) {
    V sum = {};
    for (int i = 0; i < d; i++) {
      const V value = diagonal[i * G + k];
      const V size = log(max(splat(kSmallestNormal), abs(value))) + shift[k] + (value - value);
      sum += size * size;
    }
    const V distance = 2.0 * square_root(sum);
    for (int l = 0; l < lanes; l++) out[l * m + k] = distance[l];
  }
}
void airm(const AirmJob& job, const AirmScratch& s) {
  const int d = job.d;
  const int64_t n = job.n, m = job.m;
  Patience patience;
  for (int64_t row = 0; row < n; row += kLanes) {
    for (int i = 0; i < d; i++) {
      V* to = s.factor + int64_t(i) * stride(d);
      load_row(job.factors, n, row, d, i, i + 1, to);
      for (int c = i + 1; c < d; c++) to[c] = V{};
    }
    for (int64_t j = 0; j < m && !patience.over(2 * work_of(d)); j += kTogether) {
      const int count = m - j < kTogether ? int(m - j) : kTogether, lanes = n - row < kLanes ? int(n - row) : kLanes;
      auto* some = count > 2 ? airm_some<kTogether> : count == 2 ? airm_some<2> : airm_some<1>;
      some(job.whiteners + j * d * d, count, lanes, m, d, s, job.out + row * m + j);
    }
  }
}

}  // namespace

void fill_spectral(Kernels& k) {
  define<layout<EigenJob>, eigen>(k.eigen);
  define<layout<SpectralMapJob>, spectral_map>(k.spectral_map);
  define<airm_layout, airm>(k.airm);
}

}  // namespace knnpress::KNNPRESS_TARGET
