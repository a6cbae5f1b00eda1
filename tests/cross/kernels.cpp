// The kernels without Python, for processors that have none here: reads cases, writes what the kernels give.
//
// A case is the number of a kernel, four sizes and four settings, then arrays of doubles, each after its length; the
// answer is one array after its length. tests/test_cross.py writes the cases and knows the answers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../../cpp/kernels.hpp"

namespace knnpress {
bool stopped() { return false; }
}  // namespace knnpress

using namespace knnpress;

struct Aligned {  // 64 bytes, as the kernels want
  double* data;
  explicit Aligned(size_t n) : data(static_cast<double*>(std::aligned_alloc(64, (n * 8 + 127) / 64 * 64))) {
    if (!data) std::abort();
    std::fill_n(data, n, 0.0);
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  operator double*() { return data; }
};

static Kernels kernels{};

static bool read(void* to, size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

// Lower triangles of matrices in panels, `width` of them side by side; the last fills what is missing.
static void pack(const double* x, int64_t n, int d, size_t width, double* out) {
  for (int64_t first = 0; first < n; first += int64_t(width))
    for (int j = 0; j < d; j += kPanel)
      for (int i = j; i < d; i++)
        for (int c = j; c < j + kPanel; c++)
          for (size_t l = 0; l < width; l++) {
            const double* matrix = x + size_t(std::min<int64_t>(first + int64_t(l), n - 1)) * d * d;
            *out++ = c < d ? matrix[std::max(i, c) * d + std::min(i, c)] : 0.0;
          }
}

struct Batch {
  int64_t groups;
  Aligned matrices, rows, logdet, margin;
  Batch(const double* x, int64_t n, int d)
      : groups((n + kernels.lanes - 1) / kernels.lanes), matrices(groups * kernels.lanes * packed_size(d)),
        rows(n * packed_size(d)), logdet(groups * kernels.lanes), margin(groups * kernels.lanes) {
    pack(x, n, d, kernels.lanes, matrices);
    pack(x, n, d, 1, rows);
    Aligned work(kernels.jbld_work(d));
    kernels.logdet(matrices, groups, d, work, logdet, margin);
  }
};

// As `SinkhornCost` of module.cpp.
struct Cost {
  int d, rows, padded;
  Aligned kernel, kernel_t, plan_cost, cost, cost_t;
  SinkhornTables tables{};
  Cost(const double* m, int d_, double reg)
      : d(d_), rows(kernels.tile_rows), padded(round_up(d_)), kernel(d * padded), kernel_t(d * padded),
        plan_cost(d * padded), cost(d * padded), cost_t(d * padded) {
    double largest = 0;
    for (int i = 0; i < d; i++)
      for (int j = 0; j < d; j++) {
        const double raw = m[i * d + j], c = raw / reg, k = std::exp(-c);
        cost[i * padded + j] = c, cost_t[j * padded + i] = c, plan_cost[i * padded + j] = k * raw;
        kernel[(i / rows * d + j) * rows + i % rows] = k;
        kernel_t[(j / rows * d + i) * rows + j % rows] = k;
        largest = std::max(largest, c);
      }
    for (int i = d; i < padded; i++)
      for (int j = 0; j < d && i / rows == (d - 1) / rows; j++) {
        kernel[(i / rows * d + j) * rows + i % rows] = kernel[j * rows];
        kernel_t[(i / rows * d + j) * rows + i % rows] = kernel_t[j * rows];
      }
    tables = {d, padded, largest <= 300.0, false, reg, 1.0, kernel, kernel_t, nullptr, nullptr, plan_cost, cost, cost_t};
  }
  static int round_up(int d) {
    const int step = std::max(kernels.tile_rows, kernels.lanes);
    return (d + step - 1) / step * step;
  }
};

int main() {
  baseline::fill_jbld(kernels);
  baseline::fill_sinkhorn(kernels);
  baseline::fill_spectral(kernels);
  baseline::fill_clouds(kernels);
  baseline::fill_loss(kernels);
  baseline::fill_moments(kernels);
  int64_t head[5], count;
  double set[4];
  while (read(head, sizeof head) && read(set, sizeof set) && read(&count, sizeof count)) {
    std::vector<std::vector<double>> in(count);
    for (auto& array : in) {
      int64_t size;
      if (!read(&size, sizeof size)) return 2;
      array.resize(size_t(size));
      if (!read(array.data(), 8 * array.size())) return 2;
    }
    const int64_t n = head[1], m = head[2];
    const int d = int(head[3]), option = int(head[4]);
    std::vector<double> out;
    switch (head[0]) {
      case 0: {  // log-determinants
        Batch x(in[0].data(), n, d);
        out.assign(x.logdet.data, x.logdet.data + n);
        break;
      }
      case 1: {  // inverses
        Batch x(in[0].data(), n, d);
        Aligned work(kernels.jbld_work(d));
        out.resize(size_t(n) * d * d);
        kernels.inverse(x.matrices, n, d, work, out.data());
        break;
      }
      case 2: {  // JBLD
        Batch x(in[0].data(), n, d), z(in[1].data(), m, d);
        Aligned work(kernels.jbld_work(d));
        out.resize(size_t(n) * m);
        kernels.jbld_pairwise(x.matrices, x.logdet, n, z.rows, z.logdet, m, d, nullptr, nullptr, work, out.data());
        break;
      }
      case 3: {  // its derivative; option: in single precision
        Batch x(in[0].data(), n, d), z(in[1].data(), m, d);
        Aligned work(kernels.jbld_work(d));
        out.resize(size_t(m) * d * d);
        kernels.jbld_pullback(x.matrices, n, z.rows, m, d, in[2].data(), 0.0, option != 0, work, out.data());
        break;
      }
      case 4: {  // boxes
        out.resize(size_t(n) * m);
        kernels.box_gaps(in[0].data(), in[1].data(), m, in[2].data(), n, d, out.data());
        break;
      }
      case 5: {  // eigenvalues, then eigenvectors
        Aligned work(kernels.spectral_work(d));
        out.resize(size_t(n) * d * (d + 1));
        kernels.eigen(in[0].data(), n, d, work, out.data(), out.data() + n * d);
        break;
      }
      case 6: {  // functions of matrices; option: which
        Aligned work(kernels.spectral_work(d));
        out.resize(size_t(n) * d * d);
        kernels.spectral_map(in[0].data(), in.size() > 1 ? in[1].data() : nullptr, n, d, SpectralMap(option), work,
                             out.data());
        break;
      }
      case 7: {  // AIRM
        Aligned work(kernels.spectral_work(d));
        out.resize(size_t(n) * m);
        kernels.airm(in[0].data(), n, in[1].data(), m, d, work, out.data());
        break;
      }
      case 8: {  // Sinkhorn: dual values, or transport (option)
        Cost cost(in[2].data(), d, set[0]);
        Aligned work(kernels.sinkhorn_work(cost.tables));
        std::vector<double> error(size_t(n) * m);
        std::vector<int32_t> iterations(size_t(n) * m);
        out.resize(size_t(n) * m);
        SinkhornJob job{in[0].data(), in[1].data(), n, m, set[1], 10000, option != 0, false, nullptr, nullptr,
                        nullptr, nullptr, out.data(), iterations.data(), error.data()};
        kernels.sinkhorn(cost.tables, job, work);
        break;
      }
      case 9: {  // of histograms with themselves
        Cost cost(in[1].data(), d, set[0]);
        Aligned work(kernels.sinkhorn_work(cost.tables));
        std::vector<double> error(n), potential(size_t(n) * d);
        std::vector<int32_t> iterations(n);
        out.resize(size_t(n));
        kernels.sinkhorn_self(cost.tables, in[0].data(), n, set[1], 10000, work, out.data(), potential.data(),
                              iterations.data(), error.data());
        break;
      }
      case 10: {  // the loss, then its derivative
        std::vector<uint8_t> same(in[1].begin(), in[1].end());
        LossJob job{in[0].data(), same.data(), n, m, set[0], set[1], set[2], nullptr, nullptr};
        Aligned work(kernels.loss_work(m));
        out.resize(size_t(n) * m + 1);
        out[0] = kernels.soft_neighbor_loss(job, work, out.data() + 1);
        break;
      }
      case 11: {  // a cloud with itself
        Aligned work(kernels.cloud_self_work(n));
        std::vector<double> potential(n);
        int32_t iterations;
        double error;
        out.resize(1);
        kernels.cloud_self(in[0].data(), in[1].data(), n, set[0], 10000, work, out.data(), potential.data(), &iterations,
                           &error);
        break;
      }
      case 12: {  // two clouds, of n and m points
        std::vector<int64_t> index(n), x_offsets{0, n}, z_offsets{0, m};
        for (int64_t i = 0; i < n; i++) index[i] = i;
        CloudTable table{in[0].data(), m, m, nullptr, index.data(), x_offsets.data(), in[1].data(), 1,
                         z_offsets.data(), in[2].data(), 1, n, m};
        int32_t iterations;
        double error;
        out.resize(1);
        CloudJob job{set[0], 10000, false, nullptr, nullptr, out.data(), &iterations, &error};
        Aligned work(kernels.clouds_work(n, m));
        kernels.clouds(table, job, work);
        break;
      }
      default:
        return 3;
    }
    count = int64_t(out.size());
    std::fwrite(&count, sizeof count, 1, stdout);
    std::fwrite(out.data(), 8, out.size(), stdout);
  }
  return 0;
}
