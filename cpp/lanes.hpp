// Vectors of doubles, one matrix or histogram per lane, in plain GCC/Clang vector extensions (x86 and ARM alike).
#pragma once
#include <cstdint>
#include <utility>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels.hpp"

#if defined(__AVX512F__)
#define KNNPRESS_LANES 8
#elif defined(__AVX__)
#define KNNPRESS_LANES 4
#else
#define KNNPRESS_LANES 2
#endif
#ifndef KNNPRESS_TARGET
#define KNNPRESS_TARGET baseline
#endif
#define INLINE static inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))

namespace knnpress::KNNPRESS_TARGET {

constexpr int kLanes = KNNPRESS_LANES;
typedef double V __attribute__((vector_size(kLanes * 8)));
// for unaligned loads and stores
typedef double Unaligned __attribute__((vector_size(kLanes * 8), aligned(8), may_alias));
typedef uint64_t Bits __attribute__((vector_size(kLanes * 8)));

// Single precision, twice as many lanes: for what is refined later, or need not be exact.
typedef float F __attribute__((vector_size(kLanes * 8)));
typedef uint32_t FloatBits __attribute__((vector_size(kLanes * 8)));
template <class T>
struct Vector;
template <>
struct Vector<double> {
  typedef V type;
  static constexpr int lanes = kLanes;
};
template <>
struct Vector<float> {
  typedef F type;
  static constexpr int lanes = 2 * kLanes;
};

// Accumulators of a register tile: 12 of 16 registers, or 24 of 32.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kAccumulators = 24;
#else
constexpr int kAccumulators = 12;
#endif

// Calls `stopped` once in about a million multiplications (a millisecond or less), and says what it said. `work`: the
// multiplications since the last call.
struct Patience {
  int64_t left = 1000000;
  bool exhausted(int64_t work) {
    if ((left -= work) > 0) return false;
    if (stopped()) return true;  // and again, whenever it is asked again
    left = 1000000;
    return false;
  }
};

template <int N>
struct Int {
  static constexpr int value = N;
};

// Calls body(Int<R>, Int<is_first>, first_row) for row tiles of nearly equal size, at most kRows, that cover
// [begin, end).
template <int R, int kFirst, class Body>
INLINE void call_tile(int rows, int i, Body& body) {
  if constexpr (R > 0) {
    if (rows == R) return body(Int<R>{}, Int<kFirst>{}, i);
    call_tile<R - 1, kFirst>(rows, i, body);
  }
}
template <int kRows, class Body>
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

INLINE V splat(double x) { return x - V{}; }
INLINE F splat(float x) { return x - F{}; }
INLINE V load(const double* p) { return *reinterpret_cast<const Unaligned*>(p); }
INLINE V load(const float* p) {  // kLanes floats, widened
  typedef float Half __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Half*>(p), V);
}
INLINE void store(double* p, V x) { *reinterpret_cast<Unaligned*>(p) = x; }
template <class X>
INLINE X max(X a, X b) { return a > b ? a : b; }
template <class X>
INLINE X min(X a, X b) { return a < b ? a : b; }
INLINE V abs(V x) { return (V)((Bits)x & 0x7fffffffffffffffULL); }
INLINE F abs(F x) { return (F)((FloatBits)x & 0x7fffffffU); }
// Vector extensions know no square root.
INLINE V square_root(V x) {
#if defined(__AVX512F__)
  return (V)_mm512_sqrt_pd((__m512d)x);
#elif defined(__AVX__)
  return (V)_mm256_sqrt_pd((__m256d)x);
#elif defined(__SSE2__)
  return (V)_mm_sqrt_pd((__m128d)x);
#elif defined(__aarch64__)
  return (V)vsqrtq_f64((float64x2_t)x);
#else
  for (int l = 0; l < kLanes; l++) x[l] = __builtin_sqrt(x[l]);
  return x;
#endif
}
// 1 / sqrt(x) for x from 1e-290 to 1e290, right to about an ulp: two of Newton's steps take a third of the time that a
// root and a division of eight lanes do.
INLINE V inverse_square_root(V x) {
#if defined(__AVX512F__)
  const V half = 0.5 * x;
  V y = (V)_mm512_rsqrt14_pd((__m512d)x);
  y += y * (0.5 - half * y * y);
  return y + y * (0.5 - half * y * y);
#else
  return 1.0 / square_root(x);
#endif
}
INLINE double sum(V x) {
  double s = 0;
  for (int l = 0; l < kLanes; l++) s += x[l];
  return s;
}
INLINE double sum(const F& x) {  // in double precision
  const float* p = reinterpret_cast<const float*>(&x);
  return sum(load(p) + load(p + kLanes));
}

// kLanes vectors become their transpose: halves of pairs H apart change places, then halves of halves.
template <int H, std::size_t... k>
INLINE void exchange(V& a, V& b, std::index_sequence<k...>) {
  const V upper = __builtin_shufflevector(a, b, (k & H ? kLanes + k - H : k)...);
  b = __builtin_shufflevector(a, b, (k & H ? kLanes + k : k + H)...);
  a = upper;
}
template <int H = kLanes / 2>
INLINE void transpose(V (&x)[kLanes]) {
  for (int i = 0; i < kLanes; i++)
    if (!(i & H)) exchange<H>(x[i], x[i + H], std::make_index_sequence<kLanes>{});
  if constexpr (H > 1) transpose<H / 2>(x);
}

constexpr uint64_t kSignBit = 1ULL << 63, kMantissa = 0x000fffffffffffffULL, kOne = 0x3ff0000000000000ULL;
constexpr double kLn2 = 0.69314718055994530942;
// Adding 1.5 * 2^52 to a small integer puts it into the low bits of a double, and back.
constexpr double kShifter = 6755399441055744.0;
constexpr uint64_t kShifterBits = 0x4338000000000000ULL;
constexpr double kSmallestNormal = 2.2250738585072014e-308;

INLINE Bits exponent(V x) { return (Bits)x >> 52; }  // biased; x positive and normal
INLINE V mantissa(V x) { return (V)(((Bits)x & kMantissa) | kOne); }
INLINE V to_double(Bits small) { return (V)(small + kShifterBits) - kShifter; }

// log(mantissa * 2^(biased_exponents - bias)) for mantissa in [1, 2): atanh series on [sqrt(1/2), sqrt(2)].
INLINE V log_scaled(V mantissa, Bits biased_exponents, double bias) {
  Bits high = (Bits)(mantissa > 1.4142135623730951);  // true is -1
  V m = mantissa > 1.4142135623730951 ? 0.5 * mantissa : mantissa;
  V s = (m - 1.0) / (m + 1.0), t = s * s, p = splat(2.0 / 21);
  for (int k = 19; k > 0; k -= 2) p = p * t + 2.0 / k;
  return p * s + (to_double(biased_exponents - high) - bias) * kLn2;
}
INLINE V log(V x) { return log_scaled(mantissa(x), exponent(x), 1023.0); }

// exp(x) for x in [-700, 700]; below, zero (a Taylor series on [-ln2/2, ln2/2])
INLINE V exp(V x) {
  V y = max(x, splat(-700.0));
  V shifted = y * (1.0 / kLn2) + kShifter, k = shifted - kShifter;
  V r = y - k * 0.693147180369123816490, p = splat(1.0 / 6227020800.0);
  r = r - k * 1.90821492927058770002e-10;  // ln 2 in two parts
  constexpr double inverse_factorial[] = {1.0,         1.0,          1.0 / 2,       1.0 / 6,       1.0 / 24,
                                          1.0 / 120,   1.0 / 720,    1.0 / 5040,    1.0 / 40320,   1.0 / 362880,
                                          1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
  for (int i = 12; i >= 0; i--) p = p * r + inverse_factorial[i];
  V scale = (V)(((Bits)shifted - kShifterBits + 1023) << 52);
  return x < -700.0 ? V{} : p * scale;
}

}  // namespace knnpress::KNNPRESS_TARGET
