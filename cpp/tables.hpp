// What kernels read, made of plain arrays: packed matrices, and the tables of a ground cost.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>
#include <vector>

#include "kernels.hpp"

namespace knnpress {

// ---- memory ---------------------------------------------------------------------------------------------------

struct Free {
  void operator()(double* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<double[], Free>;

inline size_t product(std::initializer_list<size_t> sizes) {
  size_t total = 1;
  for (size_t s : sizes)
    if (__builtin_mul_overflow(total, s, &total)) throw std::bad_alloc();
  return total;
}

// Aligned to 64 bytes.
inline Buffer allocate(size_t doubles) {
  const size_t bytes = (product({doubles, sizeof(double)}) + 127) / 64 * 64;
  auto* p = static_cast<double*>(std::aligned_alloc(64, bytes));
  if (!p) throw std::bad_alloc();
  return Buffer(p);
}

// Runs a kernel in scratch memory of its own.
template <class Job>
void run_in_scratch(const Kernel<Job>& kernel, const Job& job) {
  const int64_t bytes = kernel.scratch(job);
  const Buffer scratch = allocate(size_t(bytes) / sizeof(double));
  kernel.run(job, {reinterpret_cast<char*>(scratch.get()), bytes});
}

// ---- packed matrices ------------------------------------------------------------------------------------------

// Writes the lower triangles of a group of (d, d) matrices into packed panels, side by side.
template <size_t width>
void pack_group(const double* const* matrices, int d, double* out) {
  for (int j = 0; j < d; j += kPanel) {
    if (size_t(d - j) * width > 4096 && stopped()) return;
    for (int i = j; i < d; i++)
      for (int c = j; c < j + kPanel; c++, out += width) {
        const size_t at = size_t(std::max(i, c)) * d + std::min(i, c);
        for (size_t l = 0; l < width; l++) out[l] = c < d ? matrices[l][at] : 0.0;
      }
  }
}

// All of n matrices, in groups of 1, 2, 4 or 8; the last group is filled up with its last matrix.
inline Buffer pack_matrices(const double* data, int64_t n, int d, size_t width) {
  const size_t size = packed_size(d), groups = (n + width - 1) / width;
  Buffer packed = allocate(product({groups, size, width}));
  std::vector<const double*> group(width);
  auto* pack = width == 1 ? pack_group<1> : width == 2 ? pack_group<2> : width == 4 ? pack_group<4> : pack_group<8>;
  for (size_t g = 0; g < groups && !(g % 64 == 0 && stopped()); g++) {
    for (size_t l = 0; l < width; l++) group[l] = data + std::min<size_t>(g * width + l, n - 1) * d * d;
    pack(group.data(), d, packed.get() + g * size * width);
  }
  return packed;
}

// ---- a ground cost --------------------------------------------------------------------------------------------

// Scalings are at most about exp(1.5 max C): 300 keeps them within 1e200, and 40 within 1e27, for floats.
constexpr double kSafeCost = 300.0, kSafeSingleCost = 40.0;
constexpr double kCoarseCost = 10.0;  // median C from which reg falls in stages: plain iterations converge fast there

struct SinkhornBuffers {
  SinkhornTables tables;
  Buffer kernel, kernel_t, plan_cost, cost, cost_t, singles;

  // m: (d, d) ground costs. Tables of thousands of bins take a second: what was `stopped` is never used.
  SinkhornBuffers(const double* m, int d, double reg, const Kernels& kernels) {
    const int rows = kernels.tile_rows, step = std::max(rows, kernels.lanes);
    const int padded = (d + step - 1) / step * step;
    const size_t size = product({size_t(d), size_t(padded)});
    for (Buffer* b : {&kernel, &kernel_t, &plan_cost, &cost, &cost_t}) {
      *b = allocate(size);
      for (int i = 0; i < d && !stopped(); i++) std::fill_n(b->get() + size_t(i) * padded, padded, 0.0);
    }
    double largest = 0;
    std::vector<double> positive;
    for (int i = 0; i < d; i++) {
      if (stopped()) return;
      for (int j = 0; j < d; j++) {
        const double raw = m[size_t(i) * d + j], c = raw / reg, k = std::exp(-c);
        const size_t at = size_t(i) * padded + j;
        cost[at] = c, cost_t[size_t(j) * padded + i] = c, plan_cost[at] = k * raw;
        kernel[(size_t(i / rows) * d + j) * rows + i % rows] = k;
        kernel_t[(size_t(j / rows) * d + i) * rows + j % rows] = k;
        largest = std::max(largest, c);
        if (c > 0) positive.push_back(c);
      }
    }
    if (largest > kSafeCost) {
      const auto median = positive.begin() + positive.size() / 2;
      std::nth_element(positive.begin(), median, positive.end());
      tables.coarsest = std::min(1.0, kCoarseCost / *median);
    }
    for (int i = d; i < padded; i++)  // bins that fill the last tile repeat bin 0, so that they stay positive
      for (int j = 0; j < d && i / rows == (d - 1) / rows; j++) {
        kernel[(size_t(i / rows) * d + j) * rows + i % rows] = kernel[size_t(j) * rows];
        kernel_t[(size_t(i / rows) * d + j) * rows + i % rows] = kernel_t[size_t(j) * rows];
      }
    singles = allocate(size);
    float *single = reinterpret_cast<float*>(singles.get()), *single_t = single + size;
    for (size_t k = 0; k < size; k++) {
      if (k % 65536 == 0 && stopped()) return;
      single[k] = float(kernel[k]), single_t[k] = float(kernel_t[k]);
    }
    tables.n_bins = d, tables.padded_bins = padded, tables.reg = reg;
    tables.scaling_is_safe = largest <= kSafeCost, tables.single_is_safe = largest <= kSafeSingleCost;
    tables.kernel = kernel.get(), tables.kernel_t = kernel_t.get();
    tables.kernel_single = single, tables.kernel_t_single = single_t;
    tables.plan_cost = plan_cost.get(), tables.cost = cost.get(), tables.cost_t = cost_t.get();
  }
};

}  // namespace knnpress
