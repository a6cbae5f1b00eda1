// Means and second moments of signals: products of every two channels, summed over time, a moment per lane. A tile of
// R x R pairs of channels shares its loads, and a piece of the signal that fits into the first cache serves all tiles
// before the next one is read.
#include "arena.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr int R = 3;              // channels of a tile: 9 sums and 4 operands fit into 16 registers
constexpr int64_t kPiece = 3072;  // doubles of a signal that are worked on at a time

INLINE int tiles_of(int d) { return (d + R - 1) / R; }
INLINE int64_t pairs_of(int d) { return int64_t(tiles_of(d)) * (tiles_of(d) + 1) / 2; }

struct Sums {
  V *products, *sums;  // of tiles of pairs of channels, and of channels
  double* tail;        // (d, kLanes): the last, incomplete vector of each channel
};
Sums layout(Arena& arena, const MomentsJob& job) {
  Sums s;
  s.products = arena.take<V>(pairs_of(job.d) * R * R);
  s.sums = arena.take<V>(int64_t(tiles_of(job.d)) * R);
  s.tail = arena.take<double>(int64_t(job.d) * kLanes);
  return s;
}

// products[r, s] += sum_t x_r z_s and sums[r] += sum_t x_r, lane by lane, over `length` vectors.
template <bool kDiagonal>
INLINE void add_tile(const double* const* x, const double* const* z, int64_t length, V* products, V* sums) {
  V c[R][R], total[R];
  for (int r = 0; r < R; r++) {
    for (int s = 0; s < R; s++) c[r][s] = products[r * R + s];
    if (kDiagonal) total[r] = sums[r];
  }
  for (int64_t t = 0; t < length * kLanes; t += kLanes) {
    V a[R];
    for (int r = 0; r < R; r++) a[r] = *reinterpret_cast<const Unaligned*>(x[r] + t);
    for (int s = 0; s < R; s++) {
      const V b = kDiagonal ? a[s] : V(*reinterpret_cast<const Unaligned*>(z[s] + t));
      for (int r = 0; r < R; r++) c[r][s] += a[r] * b;
    }
    if (kDiagonal)
      for (int r = 0; r < R; r++) total[r] += a[r];
  }
  for (int r = 0; r < R; r++) {
    for (int s = 0; s < R; s++) products[r * R + s] = c[r][s];
    if (kDiagonal) sums[r] = total[r];
  }
}

void moments(const MomentsJob& job, const Sums& pieces) {
  const int d = job.d, tiles = tiles_of(d);
  const int64_t length = job.length;
  V *products = pieces.products, *sums = pieces.sums;
  const double* signals = job.signals;
  double *tail = pieces.tail, *second = job.second, *mean = job.mean;
  const int64_t whole = length / kLanes, rest = length % kLanes, piece = kPiece / d / kLanes + 8;
  Patience patience;

  // channels beyond the last one are the last one again; what comes of them is not kept
  auto rows = [&](const double* base, int64_t stride, int tile, const double** x) INLINE_LAMBDA {
    for (int r = 0; r < R; r++) x[r] = base + stride * (tile * R + r < d ? tile * R + r : d - 1);
  };
  auto add = [&](const double* base, int64_t stride, int64_t vectors) INLINE_LAMBDA {
    const double *x[R], *z[R];
    V* at = products;
    for (int i = 0; i < tiles; i++) {
      rows(base, stride, i, x);
      for (int j = 0; j < i; j++, at += R * R) {
        rows(base, stride, j, z);
        add_tile<false>(x, z, vectors, at, nullptr);
      }
      add_tile<true>(x, x, vectors, at, sums + i * R);
      at += R * R;
    }
  };

  for (int64_t k = 0; k < job.n; k++, signals += int64_t(d) * length, second += int64_t(d) * d, mean += d) {
    for (int64_t v = 0; v < pairs_of(d) * R * R; v++) products[v] = V{};
    for (int64_t v = 0; v < tiles * R; v++) sums[v] = V{};
    for (int64_t start = 0; start < whole; start += piece) {
      if (patience.exhausted(piece * kLanes * d * d / 2)) return;
      add(signals + start * kLanes, length, whole - start < piece ? whole - start : piece);
    }
    if (rest) {
      for (int i = 0; i < d; i++)
        for (int64_t t = 0; t < kLanes; t++)
          tail[i * kLanes + t] = t < rest ? signals[i * length + whole * kLanes + t] : 0.0;
      add(tail, kLanes, 1);
    }
    const V* at = products;
    for (int i = 0; i < tiles * R; i += R)
      for (int j = 0; j <= i; j += R, at += R * R)
        for (int r = 0; r < R && i + r < d; r++)
          for (int s = 0; s < R && j + s < d; s++)
            second[(i + r) * d + j + s] = second[(j + s) * d + i + r] = sum(at[r * R + s]) / double(length);
    for (int i = 0; i < d; i++) mean[i] = sum(sums[i]) / double(length);
  }
}

}  // namespace

void fill_moments(Kernels& k) {
  define<layout, moments>(k.moments);
}

}  // namespace knnpress::KNNPRESS_TARGET
