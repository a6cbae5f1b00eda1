// Affine-invariant distances, from singular values: reflections make a matrix bidiagonal, implicit QR steps make that
// diagonal, in the windows of spectral.hpp.
#include "spectral.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

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

// Singular values are scaled to at most about this, so that squares of them range as far as doubles do.
constexpr double kLargeScale = 0x1p480, kLogLargeScale = 480 * kLn2;

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
    for (int64_t j = 0; j < m && !patience.exhausted(2 * work_of(d)); j += kTogether) {
      const int count = m - j < kTogether ? int(m - j) : kTogether, lanes = n - row < kLanes ? int(n - row) : kLanes;
      auto* some = count > 2 ? airm_some<kTogether> : count == 2 ? airm_some<2> : airm_some<1>;
      some(job.whiteners + j * d * d, count, lanes, m, d, s, job.out + row * m + j);
    }
  }
}

}  // namespace

void fill_airm(Kernels& k) { define<airm_layout, airm>(k.airm); }

}  // namespace knnpress::KNNPRESS_TARGET
