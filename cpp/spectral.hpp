// What eigenvalues and singular values share.
#pragma once
#include "arena.hpp"

namespace knnpress::KNNPRESS_TARGET {

constexpr int kUpdated = kAccumulators / 6;  // rows of a tile that is updated and multiplied in one pass: 6 vectors each
constexpr double kEps2 = 4.93e-32;           // eps squared
constexpr double kNegligible = 1e-280;       // squares of entries this small, next to 1, are not worth a rotation

INLINE int stride(int d) { return d | 1; }  // odd, so that a column does not fall on one set of the cache
INLINE V copysign(V size, V sign) { return (V)(((Bits)size & ~kSignBit) | ((Bits)sign & kSignBit)); }
INLINE int64_t work_of(int d) { return 10LL * kLanes * d * d * d; }  // multiplications of a pair of groups, roughly

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

// The power of two below x, from 2^-1022 to 2^1022, so that its inverse is a normal number too.
INLINE V power_of_two(V x) {
  return min(max((V)((Bits)x & ~kMantissa), splat(kSmallestNormal)), splat(0x1p1022));
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

}  // namespace knnpress::KNNPRESS_TARGET
