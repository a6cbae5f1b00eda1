// The kernels without Python, for processors that have none here: reads cases, writes what the kernels give.
//
// A case is the number of a kernel, four sizes and four settings, then arrays of doubles, each after its length; the
// answer is one array after its length. tests/core/test_cross.py writes the cases and knows the answers.
#include <cstdio>
#include <vector>

#include "../../../cpp/tables.hpp"

namespace knnpress {
bool stopped() { return false; }
}  // namespace knnpress

using namespace knnpress;

static Kernels kernels{};

static bool read(void* to, size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

struct Batch {
  Buffer lanes, sequence, logdet, margin;
  Batch(const double* x, int64_t n, int d)
      : lanes(pack_matrices(x, n, d, kernels.lanes)), sequence(pack_matrices(x, n, d, 1)) {
    LogdetJob job;
    job.x = lanes.get(), job.groups = (n + kernels.lanes - 1) / kernels.lanes, job.d = d;
    logdet = allocate(job.groups * kernels.lanes), margin = allocate(job.groups * kernels.lanes);
    job.logdet = logdet.get(), job.margin = margin.get();
    run_in_scratch(kernels.logdet, job);
  }
};

int main() {
  baseline::fill(kernels);
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
        out.assign(x.logdet.get(), x.logdet.get() + n);
        break;
      }
      case 1: {  // inverses
        Batch x(in[0].data(), n, d);
        out.resize(size_t(n) * d * d);
        InverseJob job;
        job.x = x.lanes.get(), job.n = n, job.d = d, job.out = out.data();
        run_in_scratch(kernels.inverse, job);
        break;
      }
      case 2: {  // JBLD
        Batch x(in[0].data(), n, d), z(in[1].data(), m, d);
        out.resize(size_t(n) * m);
        JbldJob job;
        job.x = x.lanes.get(), job.logdet_x = x.logdet.get(), job.n = n;
        job.z = z.sequence.get(), job.logdet_z = z.logdet.get(), job.m = m;
        job.d = d, job.out = out.data();
        run_in_scratch(kernels.jbld, job);
        break;
      }
      case 3: {  // its derivative; option: in single precision
        Batch x(in[0].data(), n, d), z(in[1].data(), m, d);
        out.resize(size_t(m) * d * d);
        JbldPullbackJob job;
        job.x = x.lanes.get(), job.z = z.sequence.get(), job.n = n, job.m = m, job.d = d;
        job.weight = in[2].data(), job.single = option != 0, job.out = out.data();
        run_in_scratch(kernels.jbld_pullback, job);
        break;
      }
      case 4: {  // boxes
        out.resize(size_t(n) * m);
        BoxGapsJob job;
        job.low = in[0].data(), job.high = in[1].data(), job.x = in[2].data();
        job.boxes = m, job.n = n, job.p = d, job.out = out.data();
        run_in_scratch(kernels.box_gaps, job);
        break;
      }
      case 5: {  // eigenvalues, then eigenvectors
        out.resize(size_t(n) * d * (d + 1));
        EigenJob job;
        job.x = in[0].data(), job.n = n, job.d = d;
        job.values = out.data(), job.vectors = out.data() + n * d;
        run_in_scratch(kernels.eigen, job);
        break;
      }
      case 6: {  // functions of matrices; option: which
        out.resize(size_t(n) * d * d);
        SpectralMapJob job;
        job.x = in[0].data(), job.m = in.size() > 1 ? in[1].data() : nullptr, job.n = n, job.d = d;
        job.map = SpectralMap(option), job.out = out.data();
        run_in_scratch(kernels.spectral_map, job);
        break;
      }
      case 7: {  // AIRM
        out.resize(size_t(n) * m);
        AirmJob job;
        job.factors = in[0].data(), job.whiteners = in[1].data(), job.n = n, job.m = m, job.d = d;
        job.out = out.data();
        run_in_scratch(kernels.airm, job);
        break;
      }
      case 8: {  // Sinkhorn: dual values, or transport (option)
        SinkhornBuffers cost(in[2].data(), d, set[0], kernels);
        std::vector<double> error(size_t(n) * m);
        std::vector<int32_t> iterations(size_t(n) * m);
        out.resize(size_t(n) * m);
        SinkhornJob job;
        job.tables = &cost.tables;
        job.x = in[0].data(), job.z = in[1].data(), job.n = n, job.m = m;
        job.tol = set[1], job.max_iter = 10000, job.transport = option != 0;
        job.value = out.data(), job.iterations = iterations.data(), job.error = error.data();
        run_in_scratch(kernels.sinkhorn, job);
        break;
      }
      case 9: {  // of histograms with themselves
        SinkhornBuffers cost(in[1].data(), d, set[0], kernels);
        std::vector<double> error(n), potential(size_t(n) * d);
        std::vector<int32_t> iterations(n);
        out.resize(size_t(n));
        SinkhornSelfJob job;
        job.tables = &cost.tables;
        job.x = in[0].data(), job.n = n, job.tol = set[1], job.max_iter = 10000;
        job.value = out.data(), job.potential = potential.data();
        job.iterations = iterations.data(), job.error = error.data();
        run_in_scratch(kernels.sinkhorn_self, job);
        break;
      }
      case 10: {  // the loss, then its derivative
        std::vector<uint8_t> same(in[1].begin(), in[1].end());
        out.resize(size_t(n) * m + 1);
        LossJob job;
        job.D = in[0].data(), job.same = same.data(), job.n = n, job.m = m;
        job.sharpness = set[0], job.floor = set[1], job.smoothing = set[2];
        job.loss = out.data(), job.gradient = out.data() + 1;
        run_in_scratch(kernels.loss, job);
        break;
      }
      case 11: {  // a cloud with itself
        std::vector<double> potential(n);
        int32_t iterations;
        double error;
        out.resize(1);
        CloudSelfJob job;
        job.cost = in[0].data(), job.a = in[1].data(), job.n = n, job.tol = set[0], job.max_iter = 10000;
        job.potential = potential.data(), job.value = out.data(), job.error = &error, job.iterations = &iterations;
        run_in_scratch(kernels.cloud_self, job);
        break;
      }
      case 12: {  // two clouds, of n and m points
        std::vector<int64_t> index(n), x_offsets{0, n}, z_offsets{0, m};
        for (int64_t i = 0; i < n; i++) index[i] = i;
        int32_t iterations;
        double error;
        out.resize(1);
        CloudJob job;
        CloudTable& table = job.table;
        table.cost = in[0].data(), table.width = table.columns = m, table.index = index.data();
        table.x_offsets = x_offsets.data(), table.x_weights = in[1].data(), table.n = 1;
        table.z_offsets = z_offsets.data(), table.z_weights = in[2].data(), table.m = 1;
        table.most_rows = n, table.most_columns = m;
        job.tol = set[0], job.max_iter = 10000;
        job.value = out.data(), job.iterations = &iterations, job.error = &error;
        run_in_scratch(kernels.clouds, job);
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
