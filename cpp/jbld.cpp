// Log-determinants of sums of symmetric positive definite matrices, one pair per SIMD lane.
//
// The factorisation is A = L D L', left-looking over panels of two columns: one division a column and no square root.
// V = L D is kept beside L, so that an update is V[row, k] * L[col, k] with no scaling in the inner loop.
#include "lanes.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr int C = kPanel;
constexpr int kRows = kAccumulators / C;  // rows of a register tile

// Where panel k begins in packed storage.
INLINE int64_t panel_begin(int k, int d) {
  int64_t h = k / C;
  return int64_t(k) * d - C * h * (h - 1);
}

// acc[r][c] -= sum over panels of a[row r, k] * b[row c, k]; a and b step from panel to panel by *_step, which
// itself changes by *_change (packed storage shrinks by C * C a panel, square storage does not).
template <int R>
INLINE void multiply_subtract(V (&acc)[R][C], const V* a, int64_t a_step, int64_t a_change, const V* b,
                              int64_t b_step, int64_t b_change, int panels) {
  for (; panels > 0; panels--) {
    for (int k = 0; k < C; k++) {
      V b0 = b[k], b1 = b[C + k];
      for (int r = 0; r < R; r++) {
        V x = a[r * C + k];
        acc[r][0] -= x * b0;
        acc[r][1] -= x * b1;
      }
    }
    a += a_step, a_step += a_change, b += b_step, b_step += b_change;
  }
}

// Calls body(Int<R>, Int<is_first>, first_row) for row tiles of nearly equal size that cover [begin, end).
template <int R, int kFirst, class Body>
INLINE void call_tile(int rows, int i, Body& body) {
  if constexpr (R > 0) {
    if (rows == R) return body(Int<R>{}, Int<kFirst>{}, i);
    call_tile<R - 1, kFirst>(rows, i, body);
  }
}
template <class Body>
INLINE void for_row_tiles(int begin, int end, Body body) {
  int tiles = (end - begin + kRows - 1) / kRows;
  if (tiles == 0) return;
  int rows = (end - begin + tiles - 1) / tiles;
  call_tile<kRows, true>(rows, begin, body);
  while (--tiles > 0) {
    begin += rows;
    rows = (end - begin + tiles - 1) / tiles;
    call_tile<kRows, false>(rows, begin, body);
  }
}

// The product of the pivots, exponents split off so that it can neither overflow nor underflow.
struct LogProduct {
  V product = splat(1.0);
  U exponents = {};
  int terms = 0;  // exponents added so far, each biased by 1023
};
INLINE void normalise(LogProduct& p) {
  p.exponents += exponent(p.product), p.product = mantissa(p.product), p.terms++;
}
INLINE void multiply(LogProduct& p, V pivot) {
  pivot = max(pivot, splat(kSmallestNormal));  // rounding must not turn a nearly singular sum into NaN
  p.exponents += exponent(pivot), p.product *= mantissa(pivot), p.terms++;
}

// The smaller of pivot / |diagonal| and the margin so far; a NaN, which follows a zero pivot, changes nothing any more.
INLINE V smaller(V pivot, V diagonal, V margin) {
  return min(pivot / max(abs(diagonal), splat(kSmallestNormal)), margin);
}

struct Scratch {
  V *v, *l;  // packed: V = L D and L
  V *e, *f;  // square panels: L^-T, and the same times weight / D
  V *g;      // square panels: minus the weighted sum of inverses, upper triangle
  V *x;      // packed: matrices gathered from several groups
};
INLINE Scratch carve(double* work, int d) {
  int64_t packed = packed_size(d) + C * C, square = int64_t(d + 1) * d + C * C;
  V* p = reinterpret_cast<V*>(work);
  return {p, p + packed, p + 2 * packed, p + 2 * packed + square, p + 2 * packed + 2 * square,
          p + 2 * packed + 3 * square};
}
int64_t jbld_work(int d) { return W * (3 * (packed_size(d) + C * C) + 3 * (int64_t(d + 1) * d + C * C)); }

// log|x + z| - halvings * log 2: factors x + z, one matrix a lane. With kInverse also fills e and f.
template <bool kMargin, bool kInverse>
INLINE V factor(const V* x, const double* z, int d, const Scratch& s, double halvings, V* margin, V weight) {
  LogProduct det;
  int64_t panel = 0;
  for (int j = 0; j < d; j += C) {
    const bool narrow = j + 1 == d;  // the last panel of an odd matrix has one column
    V inverse0 = {}, inverse1 = {}, l10 = {};
    for_row_tiles(j, d, [&](auto size, auto on_diagonal, int i) INLINE_LAMBDA {
      constexpr int R = decltype(size)::value;
      const int64_t at = panel + (i - j) * C;
      V acc[R][C];
      for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) acc[r][c] = x[at + r * C + c] + z[at + r * C + c];
      V diagonal0 = acc[0][0], diagonal1 = acc[R > 1][1];
      multiply_subtract(acc, s.v + i * C, (d - C) * C, -C * C, s.l + j * C, (d - C) * C, -C * C, j / C);
      constexpr bool kDiagonal = decltype(on_diagonal)::value;
      if constexpr (kDiagonal) {  // this tile makes the pivots
        V pivot0 = acc[0][0];
        inverse0 = 1.0 / pivot0;
        multiply(det, pivot0);
        if constexpr (kMargin) *margin = smaller(pivot0, diagonal0, *margin);
        if (R > 1) {
          l10 = acc[R > 1][0] * inverse0;
          V pivot1 = acc[R > 1][1] - acc[R > 1][0] * l10;
          inverse1 = 1.0 / pivot1;
          multiply(det, pivot1);
          if constexpr (kMargin) *margin = smaller(pivot1, diagonal1, *margin);
        }
      }
      for (int r = kDiagonal ? C : 0; r < R; r++) {
        V v0 = acc[r][0], v1 = acc[r][1] - v0 * l10;
        s.v[at + r * C] = v0, s.v[at + r * C + 1] = v1;
        s.l[at + r * C] = v0 * inverse0, s.l[at + r * C + 1] = v1 * inverse1;
      }
    });
    if (det.terms > 1000) normalise(det);  // mantissas below 2 each: far from overflow until here

    if constexpr (kInverse) {
      // Eliminating the rows of I below A leaves L^-T there: rows below j + 2, upper triangular.
      V *e = s.e + int64_t(j) * d, *f = s.f + int64_t(j) * d;
      V scale0 = inverse0 * weight, scale1 = inverse1 * weight;
      for_row_tiles(0, j, [&](auto size, auto, int i) INLINE_LAMBDA {
        constexpr int R = decltype(size)::value;
        V acc[R][C] = {};
        const int k = i & ~1;  // these rows are zero before column i
        multiply_subtract(acc, s.e + int64_t(k) * d + i * C, d * C, 0, s.l + panel_begin(k, d) + (j - k) * C,
                          (d - k - C) * C, -C * C, (j - k) / C);
        for (int r = 0; r < R; r++) {
          V v0 = acc[r][0], v1 = narrow ? V{} : acc[r][1] - v0 * l10;
          e[(i + r) * C] = v0, e[(i + r) * C + 1] = v1;
          f[(i + r) * C] = v0 * scale0, f[(i + r) * C + 1] = v1 * scale1;
        }
      });
      e[j * C] = splat(1.0), e[j * C + 1] = -l10;
      f[j * C] = scale0, f[j * C + 1] = -l10 * scale1;
      if (!narrow) e[j * C + C + 1] = splat(1.0), f[j * C + C + 1] = scale1;
    }
    panel += (d - j) * C;
  }
  normalise(det);
  return log_scaled(det.product, det.exponents, 1023.0 * det.terms + halvings);
}

// g -= e f': adds minus the weighted inverses of the last factorisation. Panel j holds rows 0 to j + 1, so that a tile
// begins at column j, before which rows j and j + 1 of f are zero.
INLINE void add_inverse(const Scratch& s, int d) {
  const int end = (d + 1) & ~1;
  for (int j = 0; j < d; j += C) {
    V* panel = s.g + int64_t(j) * d;
    for_row_tiles(0, j + C < d ? j + C : d, [&](auto size, auto, int i) INLINE_LAMBDA {
      constexpr int R = decltype(size)::value;
      V acc[R][C];
      for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) acc[r][c] = panel[(i + r) * C + c];
      multiply_subtract(acc, s.e + int64_t(j) * d + i * C, d * C, 0, s.f + int64_t(j) * d + j * C, d * C, 0,
                        (end - j) / C);
      for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) panel[(i + r) * C + c] = acc[r][c];
    });
  }
}

// Fills a (d, d) matrix from g, each entry by way of `reduce`.
template <class Reduce>
INLINE void write_symmetric(const Scratch& s, int d, double* out, Reduce reduce) {
  for (int i = 0; i < d; i++)
    for (int c = 0; c <= i; c++)
      out[i * d + c] = out[c * d + i] = reduce(s.g[int64_t(i & ~1) * d + c * C + (i & 1)]);
}

void logdet(const double* x, int64_t groups, int d, double* work, double* out, double* out_margin) {
  const int64_t size = packed_size(d);
  const Scratch s = carve(work, d);
  double* zeros = reinterpret_cast<double*>(s.g);
  for (int64_t k = 0; k < size; k++) zeros[k] = 0.0;
  for (int64_t g = 0; g < groups; g++) {
    V margin = splat(1.0);
    const V* matrices = reinterpret_cast<const V*>(x) + g * size;
    store(out + g * W, factor<true, false>(matrices, zeros, d, s, 0.0, &margin, V{}));
    store(out_margin + g * W, margin);
  }
}

void pairwise(const double* x, const double* logdet_x, int64_t n, const double* z, const double* logdet_z, int64_t m,
              int d, const double* limit, double* lower, double* work, double* out) {
  const int64_t size = packed_size(d);
  const Scratch s = carve(work, d);
  for (int64_t i = 0; i < n; i += W) {
    const V* matrices = reinterpret_cast<const V*>(x) + i / W * size;
    const V half_x = 0.5 * load(logdet_x + i);
    const int rows = n - i < W ? int(n - i) : W;
    double farthest = 0.0, *bound = lower ? lower + i / W * m : nullptr;
    for (int l = 0; limit && l < rows; l++) farthest = limit[i + l] > farthest ? limit[i + l] : farthest;
    for (int64_t j = 0; j < m; j++) {
      if (limit && bound[j] > farthest) {  // no row of the group needs it
        for (int l = 0; l < rows; l++) out[(i + l) * m + j] = __builtin_inf();
        continue;
      }
      V middle = factor<false, false>(matrices, z + j * size, d, s, d, nullptr, V{});
      V value = max(middle - (half_x + 0.5 * logdet_z[j]), V{});
      for (int l = 0; l < rows; l++) out[(i + l) * m + j] = value[l];
      if (bound) {
        double least = value[0];
        for (int l = 1; l < rows; l++) least = value[l] < least ? value[l] : least;
        bound[j] = least;
      }
    }
  }
}

void pullback(const double* x, int64_t n, const double* z, int64_t m, int d, const double* weight, double tolerance,
              double* work, double* out) {
  const int64_t size = packed_size(d);
  const Scratch s = carve(work, d);
  for (int64_t k = 0; k < int64_t(d + 1) * d; k++) s.e[k] = V{}, s.f[k] = V{};
  for (int64_t j = 0; j < m; j++) {
    const double* zj = z + j * size;
    for (int64_t k = 0; k < int64_t(d + 1) * d; k++) s.g[k] = V{};
    auto add = [&](const V* matrices, V weights) {
      factor<false, true>(matrices, zj, d, s, 0.0, nullptr, weights);
      add_inverse(s, d);
    };
    // Groups whose every pair matters run as they lie; the pairs that matter in other groups are gathered.
    int64_t pending[W];
    V pending_weights = {};
    int n_pending = 0;
    auto flush = [&]() {
      for (int l = 0; l < W; l++) {
        const int64_t row = pending[l < n_pending ? l : 0];
        const double* from = x + row / W * size * W + row % W;
        for (int64_t k = 0; k < size; k++) s.x[k][l] = from[k * W];
      }
      add(s.x, pending_weights);
      pending_weights = V{}, n_pending = 0;
    };
    for (int64_t i = 0; i < n; i += W) {
      V weights = {};
      int active = 0;
      for (int l = 0; l < W && i + l < n; l++) {
        const double w = weight[(i + l) * m + j];
        if (w > tolerance || w < -tolerance) weights[l] = w, active++;
      }
      if (active == W) {
        add(reinterpret_cast<const V*>(x) + i / W * size, weights);
      } else {
        for (int l = 0; active > 0 && l < W; l++) {
          if (weights[l] == 0.0) continue;
          pending_weights[n_pending] = weights[l], pending[n_pending++] = i + l;
          if (n_pending == W) flush();
        }
      }
    }
    if (n_pending > 0) flush();
    write_symmetric(s, d, out + j * d * d, [](V v) { return -sum(v); });
  }
}

void inverse(const double* x, int64_t n, int d, double* work, double* out) {
  const Scratch s = carve(work, d);
  for (int64_t k = 0; k < int64_t(d + 1) * d; k++) s.e[k] = V{}, s.f[k] = V{};
  double* zeros = reinterpret_cast<double*>(s.x);
  for (int64_t k = 0; k < packed_size(d); k++) zeros[k] = 0.0;
  for (int64_t i = 0; i < n; i++) {
    if (i % W == 0) {
      for (int64_t k = 0; k < int64_t(d + 1) * d; k++) s.g[k] = V{};
      const V* matrices = reinterpret_cast<const V*>(x) + i / W * packed_size(d);
      factor<false, true>(matrices, zeros, d, s, 0.0, nullptr, splat(1.0));
      add_inverse(s, d);
    }
    write_symmetric(s, d, out + i * d * d, [&](V v) { return -v[i % W]; });
  }
}

// Chunks of boxes stay in registers while the coordinates go by.
void box_gaps(const double* low, const double* high, int64_t boxes, const double* x, int64_t n, int p, double* out) {
  constexpr int kChunk = 4;
  for (int64_t i = 0; i < n; i++) {
    const double* xi = x + i * p;
    int64_t g = 0;
    for (; g + kChunk * W <= boxes; g += kChunk * W) {
      V far[kChunk];
      for (int c = 0; c < kChunk; c++) far[c] = splat(-1.7e308);
      for (int k = 0; k < p; k++)
        for (int c = 0; c < kChunk; c++) {
          const int64_t at = k * boxes + g + c * W;
          far[c] = max(far[c], max(load(low + at) - xi[k], xi[k] - load(high + at)));
        }
      for (int c = 0; c < kChunk; c++) store(out + i * boxes + g + c * W, far[c]);
    }
    for (; g < boxes; g++) {
      double far = -1.7e308;
      for (int k = 0; k < p; k++) {
        const double below = low[k * boxes + g] - xi[k], above = xi[k] - high[k * boxes + g];
        far = below > far ? below : far, far = above > far ? above : far;
      }
      out[i * boxes + g] = far;
    }
  }
}

}  // namespace

void fill_jbld(Kernels& k) {
  k.lanes = W;
  k.logdet = logdet, k.jbld_pairwise = pairwise, k.jbld_pullback = pullback, k.inverse = inverse;
  k.box_gaps = box_gaps;
  k.jbld_work = jbld_work;
}

}  // namespace knnpress::KNNPRESS_TARGET
