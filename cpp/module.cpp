// The door between Python and the kernels: buffers, the choice of instruction set, and the GIL released.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace knnpress {
namespace {

template <class T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T, int N>
using InOut = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T>;

// The first element of an array, of which a double at an odd address is none.
template <class Array>
auto data_of(const Array& array) {
  auto* data = array.data();
  if (reinterpret_cast<uintptr_t>(data) % alignof(double)) throw std::invalid_argument("arrays must be aligned");
  return data;
}

struct Free {
  void operator()(double* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<double[], Free>;

size_t product(std::initializer_list<size_t> sizes) {
  size_t total = 1;
  for (size_t s : sizes)
    if (__builtin_mul_overflow(total, s, &total)) throw std::bad_alloc();
  return total;
}

Buffer allocate(size_t doubles) {
  const size_t bytes = (product({doubles, sizeof(double)}) + 127) / 64 * 64;
  auto* p = static_cast<double*>(std::aligned_alloc(64, bytes));
  if (!p) throw std::bad_alloc();
  return Buffer(p);
}

// A new array owned by Python.
template <class T>
Out<T> make_array(std::initializer_list<size_t> shape) {
  T* data = new T[std::max<size_t>(product(shape), 1)];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Out<T>(data, shape.size(), shape.begin(), owner);
}

// ---- giving up ------------------------------------------------------------------------------------------------

// What threads that work on one task share: once it is cancelled, their kernels give up.
struct Task {
  std::atomic<bool> cancelled{false};
};

using Clock = std::chrono::steady_clock;
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);  // at signals, which takes the GIL
thread_local Task* task = nullptr;     // of this thread; kept alive by its caller
thread_local bool looks = true;        // a thread that only helps leaves signals to others
thread_local bool gave_up = false;
thread_local Clock::time_point next_look;

}  // namespace

bool stopped() {
  if (gave_up) return true;
  if (task && task->cancelled.load(std::memory_order_relaxed)) return gave_up = true;
  if (!looks) return false;
  const auto now = Clock::now();
  if (now < next_look) return false;
  next_look = now + kBetweenLooks;
  nb::gil_scoped_acquire held;
  return gave_up = PyErr_CheckSignals() != 0;  // runs Python's handlers, in its main thread only
}

namespace {

// Runs a kernel without the GIL, and raises what made it give up, if it did.
template <class Kernel>
void run(Kernel kernel) {
  gave_up = false;
  next_look = Clock::now() + kBetweenLooks;
  {
    nb::gil_scoped_release released;
    kernel();
  }
  if (!gave_up) return;
  gave_up = false;
  if (PyErr_Occurred()) throw nb::python_error();
  throw std::runtime_error("given up, since another thread of this task failed");
}

// ---- instruction sets -----------------------------------------------------------------------------------------

struct Target {
  std::string name;
  Kernels kernels;
};

const std::vector<Target>& targets() {  // those this CPU can run, best last
  static const std::vector<Target> list = [] {
    std::vector<Target> found;
    auto add = [&](const char* name, std::initializer_list<void (*)(Kernels&)> fills) {
      Kernels k{};
      for (auto fill : fills) fill(k);
      found.push_back({name, k});
    };
    add("baseline", {baseline::fill_jbld, baseline::fill_sinkhorn, baseline::fill_spectral, baseline::fill_loss, baseline::fill_clouds, baseline::fill_moments});
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      add("avx2", {avx2::fill_jbld, avx2::fill_sinkhorn, avx2::fill_spectral, avx2::fill_loss, avx2::fill_clouds, avx2::fill_moments});
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      add("avx512", {avx512::fill_jbld, avx512::fill_sinkhorn, avx512::fill_spectral, avx512::fill_loss, avx512::fill_clouds, avx512::fill_moments});
#endif
    return found;
  }();
  return list;
}

std::atomic<const Target*> chosen{nullptr};  // written when the module loads and by set_target

const Target* find_target(const std::string& name) {
  for (const auto& t : targets())
    if (t.name == name) return &t;
  std::string known;
  for (const auto& t : targets()) known += (known.empty() ? "" : ", ") + t.name;
  throw std::invalid_argument("no instruction set named '" + name + "' on this machine; it has " + known);
}

// ---- symmetric positive definite matrices ---------------------------------------------------------------------

// Writes the lower triangles of `width` (d, d) matrices into packed panels, side by side.
void pack_matrices(const double* const* matrices, size_t width, int d, double* out) {
  for (int j = 0; j < d; j += kPanel) {
    if (size_t(d - j) * width > 4096 && stopped()) return;
    for (int i = j; i < d; i++)
      for (int c = j; c < j + kPanel; c++, out += width) {
        const size_t at = size_t(std::max(i, c)) * d + std::min(i, c);
        for (size_t l = 0; l < width; l++) out[l] = c < d ? matrices[l][at] : 0.0;
      }
  }
}

// Between these, pivots that are not tiny beside their diagonal entry have inverses and ratios within a float's range.
constexpr double kLeastModerate = 1e-18, kMostModerate = 1e18;

// A batch of matrices with their log-determinants. `lanes`: interleaved for the kernel's vectors (the X of a block);
// otherwise one after the other (the Z).
struct SpdBatch {
  const Kernels* kernels;
  int64_t n;
  int d;
  bool lanes;
  bool moderate = true;  // all diagonal entries
  Buffer matrices, logdet, margin;

  SpdBatch(In<double, 3> X, bool lanes_) : kernels(&chosen.load()->kernels), lanes(lanes_) {
    if (X.shape(1) != X.shape(2)) throw std::invalid_argument("matrices must be square");
    if (X.shape(1) < 1 || X.shape(1) > 20000) throw std::invalid_argument("matrices must be 1 to 20000 wide");
    n = int64_t(X.shape(0)), d = int(X.shape(1));
    const double* data = data_of(X);
    run([&] { pack(data); });
  }
  void pack(const double* data) {
    for (size_t i = 0; i < size_t(n) * d; i++) {
      const double entry = data[i / d * d * d + i % d * (d + 1)];
      moderate &= entry >= kLeastModerate && entry <= kMostModerate;
    }
    const size_t size = packed_size(d), width = kernels->lanes, groups = (n + width - 1) / width;
    Buffer packed = allocate(product({groups, size, width}));
    std::vector<const double*> group(width);
    for (size_t g = 0; g < groups; g++) {
      if (g % 64 == 0 && stopped()) return;
      // the last group is filled up with its last matrix
      for (size_t l = 0; l < width; l++) group[l] = data + std::min<size_t>(g * width + l, n - 1) * d * d;
      pack_matrices(group.data(), width, d, packed.get() + g * size * width);
    }
    logdet = allocate(groups * width), margin = allocate(groups * width);
    Buffer work = allocate(kernels->jbld_work(d));
    kernels->logdet(packed.get(), groups, d, work.get(), logdet.get(), margin.get());
    if (!lanes) {
      packed = allocate(product({size_t(n), size}));
      for (int64_t i = 0; i < n; i++) {
        const double* matrix = data + size_t(i) * d * d;
        pack_matrices(&matrix, 1, d, packed.get() + i * size);
      }
    }
    matrices = std::move(packed);
  }
  int64_t groups() const { return (n + kernels->lanes - 1) / kernels->lanes; }
  Out<double> inverse() const {
    if (!lanes) throw std::invalid_argument("only matrices packed in lanes can be inverted");
    auto out = make_array<double>({size_t(n), size_t(d), size_t(d)});
    double* result = out.data();
    run([&] {
      Buffer work = allocate(kernels->jbld_work(d));
      kernels->inverse(matrices.get(), n, d, work.get(), result);
    });
    return out;
  }
  Out<double> copy(const Buffer& b) const {
    auto out = make_array<double>({size_t(n)});
    std::copy_n(b.get(), n, out.data());
    return out;
  }
};

// Whether all matrices are finite, exactly symmetric, with variances from `least` to `most` and pivots above `margin` of
// their diagonal entries. If not, what is wrong is for others to find out.
bool all_positive_definite(In<double, 3> X, double least, double most, double margin) {
  const double* x = data_of(X);
  const size_t n = X.shape(0), d = X.shape(1);
  if (X.shape(2) != d) throw std::invalid_argument("matrices must be square");
  bool sound = true;
  run([&] {
    for (size_t i = 0; i < n && sound && !(i % 64 == 63 && stopped()); i++, x += d * d)
      for (size_t r = 0; r < d; r++) {
        sound &= x[r * d + r] >= least && x[r * d + r] <= most;
        for (size_t c = 0; c < r; c++) sound &= x[r * d + c] - x[c * d + r] == 0;  // which infinities are not
      }
  });
  if (!sound) return false;
  const SpdBatch batch(X, true);
  return std::all_of(batch.margin.get(), batch.margin.get() + n, [&](double m) { return m > margin; });
}

void check_pair(const SpdBatch& x, const SpdBatch& z) {
  if (!x.lanes || z.lanes) throw std::invalid_argument("x must be packed in lanes and z in rows");
  if (x.d != z.d) throw std::invalid_argument("x and z differ in size");
}

Out<double> jbld_pairwise(const SpdBatch& x, const SpdBatch& z, std::optional<InOut<double, 2>> lower,
                          std::optional<In<double, 1>> limit) {
  check_pair(x, z);
  if (lower && (int64_t(lower->shape(0)) != x.groups() || int64_t(lower->shape(1)) != z.n))
    throw std::invalid_argument("lower must have one row per group of x and one column per z");
  if (limit && (!lower || int64_t(limit->shape(0)) != x.n))
    throw std::invalid_argument("limit must have one number per x, and be given with lower");
  double* bound = lower ? data_of(*lower) : nullptr;
  const double* far = limit ? data_of(*limit) : nullptr;
  auto out = make_array<double>({size_t(x.n), size_t(z.n)});
  double* data = out.data();
  run([&] {
    Buffer work = allocate(x.kernels->jbld_work(x.d));
    x.kernels->jbld_pairwise(x.matrices.get(), x.logdet.get(), x.n, z.matrices.get(), z.logdet.get(), z.n, x.d, far,
                             bound, work.get(), data);
  });
  return out;
}

Out<double> jbld_pullback(const SpdBatch& x, const SpdBatch& z, In<double, 2> weight, double tolerance,
                          bool single) {
  check_pair(x, z);
  if (int64_t(weight.shape(0)) != x.n || int64_t(weight.shape(1)) != z.n)
    throw std::invalid_argument("weight must have one row per x and one column per z");
  auto out = make_array<double>({size_t(z.n), size_t(x.d), size_t(x.d)});
  double* data = out.data();
  const double* w = data_of(weight);
  run([&] {
    Buffer work = allocate(x.kernels->jbld_work(x.d));
    x.kernels->jbld_pullback(x.matrices.get(), x.n, z.matrices.get(), z.n, x.d, w, tolerance,
                             single && x.moderate && z.moderate, work.get(), data);
  });
  return out;
}

Out<double> box_gaps(In<double, 2> low, In<double, 2> high, In<double, 2> X) {
  const size_t p = low.shape(0), boxes = low.shape(1), n = X.shape(0);
  if (high.shape(0) != p || high.shape(1) != boxes || X.shape(1) != p)
    throw std::invalid_argument("low and high must be (p, boxes) and X (n, p)");
  auto out = make_array<double>({n, boxes});
  double* data = out.data();
  const double *l = data_of(low), *h = data_of(high), *x = data_of(X);
  run([&] { chosen.load()->kernels.box_gaps(l, h, int64_t(boxes), x, int64_t(n), int(p), data); });
  return out;
}

// ---- entropic transport ---------------------------------------------------------------------------------------

// Scalings are at most about exp(1.5 max C): 300 keeps them within 1e200, and 40 within 1e27, for floats.
constexpr double kSafeCost = 300.0, kSafeSingleCost = 40.0;
constexpr double kCoarseCost = 10.0;  // median C from which reg falls in stages: plain iterations converge fast there

struct SinkhornCost {
  const Kernels* kernels;
  SinkhornTables tables{};
  Buffer kernel, kernel_t, plan_cost, cost, cost_t, singles;

  SinkhornCost(In<double, 2> M, double reg) : kernels(&chosen.load()->kernels) {
    if (M.shape(0) != M.shape(1) || M.shape(0) < 1 || M.shape(0) > 100000)
      throw std::invalid_argument("the ground cost must be square");
    const int d = int(M.shape(0)), rows = kernels->tile_rows, step = std::max(rows, kernels->lanes);
    const int padded = (d + step - 1) / step * step;
    const double* m = data_of(M);
    nb::gil_scoped_release released;
    const size_t size = product({size_t(d), size_t(padded)});
    for (Buffer* b : {&kernel, &kernel_t, &plan_cost, &cost, &cost_t}) {
      *b = allocate(size);
      std::fill_n(b->get(), size, 0.0);
    }
    double largest = 0;
    std::vector<double> positive;
    for (int i = 0; i < d; i++)
      for (int j = 0; j < d; j++) {
        const double raw = m[size_t(i) * d + j], c = raw / reg, k = std::exp(-c);
        const size_t at = size_t(i) * padded + j;
        cost[at] = c, cost_t[size_t(j) * padded + i] = c, plan_cost[at] = k * raw;
        kernel[(size_t(i / rows) * d + j) * rows + i % rows] = k;
        kernel_t[(size_t(j / rows) * d + i) * rows + j % rows] = k;
        largest = std::max(largest, c);
        if (c > 0) positive.push_back(c);
      }
    double coarsest = 1.0;
    if (largest > kSafeCost) {
      const auto median = positive.begin() + positive.size() / 2;
      std::nth_element(positive.begin(), median, positive.end());
      coarsest = std::min(1.0, kCoarseCost / *median);
    }
    for (int i = d; i < padded; i++)  // bins that fill the last tile repeat bin 0, so that they stay positive
      for (int j = 0; j < d && i / rows == (d - 1) / rows; j++) {
        kernel[(size_t(i / rows) * d + j) * rows + i % rows] = kernel[size_t(j) * rows];
        kernel_t[(size_t(i / rows) * d + j) * rows + i % rows] = kernel_t[size_t(j) * rows];
      }
    singles = allocate(size);
    float *single = reinterpret_cast<float*>(singles.get()), *single_t = single + size;
    for (size_t k = 0; k < size; k++) single[k] = float(kernel[k]), single_t[k] = float(kernel_t[k]);
    tables = {d, padded, largest <= kSafeCost, largest <= kSafeSingleCost, reg, coarsest, kernel.get(), kernel_t.get(),
              single, single_t, plan_cost.get(), cost.get(), cost_t.get()};
  }
};

void check_bins(const SinkhornCost& cost, size_t bins) {
  if (bins != size_t(cost.tables.n_bins)) throw std::invalid_argument("histograms and ground cost differ in size");
}

nb::tuple sinkhorn(const SinkhornCost& cost, In<double, 2> X, In<double, 2> Z,
                   std::optional<InOut<double, 3>> potential, std::optional<InOut<double, 2>> relaxation, double tol,
                   int max_iter, bool transport, std::optional<In<double, 2>> limit,
                   std::optional<In<double, 2>> tols, bool single) {
  check_bins(cost, X.shape(1));
  check_bins(cost, Z.shape(1));
  const size_t n = X.shape(0), m = Z.shape(0);
  if (potential && (potential->shape(0) != n || potential->shape(1) != m || potential->shape(2) != X.shape(1)))
    throw std::invalid_argument("potential must be (n, m, d)");
  if (bool(potential) != bool(relaxation) || (relaxation && (relaxation->shape(0) != n || relaxation->shape(1) != m)))
    throw std::invalid_argument("relaxation must be (n, m), and given with potential");
  if (limit && (transport || limit->shape(0) != n || limit->shape(1) != m))
    throw std::invalid_argument("limit must be (n, m), and of dual values");
  if (tols && (tols->shape(0) != n || tols->shape(1) != m)) throw std::invalid_argument("tols must be (n, m)");
  auto value = make_array<double>({n, m}), error = make_array<double>({n, m});
  auto iterations = make_array<int32_t>({n, m});
  SinkhornJob job{data_of(X),
                  data_of(Z),
                  int64_t(n),
                  int64_t(m),
                  tol,
                  std::max(max_iter, 1),
                  transport,
                  single,
                  potential ? data_of(*potential) : nullptr,
                  relaxation ? data_of(*relaxation) : nullptr,
                  limit ? data_of(*limit) : nullptr,
                  tols ? data_of(*tols) : nullptr,
                  value.data(),
                  iterations.data(),
                  error.data()};
  run([&] {
    Buffer work = allocate(cost.kernels->sinkhorn_work(cost.tables));
    cost.kernels->sinkhorn(cost.tables, job, work.get());
  });
  return nb::make_tuple(value, iterations, error);
}

nb::tuple sinkhorn_self(const SinkhornCost& cost, In<double, 2> X, double tol, int max_iter) {
  check_bins(cost, X.shape(1));
  const size_t n = X.shape(0);
  auto value = make_array<double>({n}), error = make_array<double>({n});
  auto potential = make_array<double>({n, X.shape(1)});
  auto iterations = make_array<int32_t>({n});
  double *v = value.data(), *p = potential.data(), *e = error.data();
  int32_t* it = iterations.data();
  const double* x = data_of(X);
  run([&] {
    Buffer work = allocate(cost.kernels->sinkhorn_work(cost.tables));
    cost.kernels->sinkhorn_self(cost.tables, x, int64_t(n), tol, std::max(max_iter, 1), work.get(), v, p, it, e);
  });
  return nb::make_tuple(value, potential, iterations, error);
}

Out<double> sinkhorn_pullback(const SinkhornCost& cost, In<double, 2> X, In<double, 3> potential,
                              In<double, 2> weight, double tolerance, bool single) {
  check_bins(cost, X.shape(1));
  const size_t n = X.shape(0), m = weight.shape(1);
  if (weight.shape(0) != n || potential.shape(0) != n || potential.shape(1) != m || potential.shape(2) != X.shape(1))
    throw std::invalid_argument("potential must be (n, m, d) and weight (n, m)");
  auto out = make_array<double>({m, X.shape(1)});
  double* data = out.data();
  const double *x = data_of(X), *p = data_of(potential), *w = data_of(weight);
  run([&] {
    Buffer work = allocate(cost.kernels->sinkhorn_work(cost.tables));
    cost.kernels->sinkhorn_pullback(cost.tables, x, int64_t(n), int64_t(m), p, w, tolerance, single, work.get(), data);
  });
  return out;
}

// ---- clouds ---------------------------------------------------------------------------------------------------

int64_t largest_cloud(const In<int64_t, 1>& offsets, size_t total) {
  const int64_t* o = offsets.data();
  if (offsets.shape(0) < 1 || o[0] != 0 || size_t(o[offsets.shape(0) - 1]) != total)
    throw std::invalid_argument("offsets must go from 0 to the number of points");
  int64_t most = 1;
  for (size_t k = 1; k < offsets.shape(0); k++) {
    if (o[k] <= o[k - 1]) throw std::invalid_argument("offsets must ascend");
    most = std::max(most, o[k] - o[k - 1]);
  }
  return most;
}

CloudTable cloud_table(const In<double, 2>& cost, const In<int64_t, 1>& index, const In<int64_t, 1>& x_offsets,
                       const In<double, 1>& x_weights, const In<int64_t, 1>& z_offsets,
                       const In<double, 1>& z_weights, const int64_t* z_index = nullptr) {
  if (x_weights.shape(0) != index.shape(0) || (!z_index && z_weights.shape(0) != cost.shape(1)))
    throw std::invalid_argument("each point needs a weight");
  for (size_t c = 0; z_index && c < z_weights.shape(0); c++)
    if (z_index[c] < 0 || size_t(z_index[c]) >= cost.shape(1))
      throw std::invalid_argument("z_index must name columns of cost");
  for (size_t p = 0; p < index.shape(0); p++)
    if (index.data()[p] < 0 || size_t(index.data()[p]) >= cost.shape(0))
      throw std::invalid_argument("index must name rows of cost");
  const int64_t rows = largest_cloud(x_offsets, index.shape(0));
  const int64_t columns = largest_cloud(z_offsets, z_weights.shape(0));
  return {data_of(cost),      int64_t(cost.shape(1)),          int64_t(z_weights.shape(0)), z_index,
          data_of(index),     data_of(x_offsets),              data_of(x_weights),          int64_t(x_offsets.shape(0)) - 1,
          data_of(z_offsets), data_of(z_weights),              int64_t(z_offsets.shape(0)) - 1, rows, columns};
}

nb::tuple clouds(In<double, 2> cost, In<int64_t, 1> index, In<int64_t, 1> x_offsets, In<double, 1> x_weights,
                 In<int64_t, 1> z_offsets, In<double, 1> z_weights, std::optional<InOut<double, 2>> potential, bool warm,
                 double tol, int max_iter, std::optional<In<int64_t, 1>> z_index,
                 std::optional<In<double, 2>> limit) {
  if (z_index && z_index->shape(0) != z_weights.shape(0)) throw std::invalid_argument("each point needs a column");
  const CloudTable table =
      cloud_table(cost, index, x_offsets, x_weights, z_offsets, z_weights, z_index ? data_of(*z_index) : nullptr);
  const size_t n = size_t(table.n), m = size_t(table.m);
  if (potential && (potential->shape(0) != n || potential->shape(1) != size_t(table.columns)))
    throw std::invalid_argument("potential must be (n, columns)");
  if (limit && (limit->shape(0) != n || limit->shape(1) != m)) throw std::invalid_argument("limit must be (n, m)");
  auto value = make_array<double>({n, m}), error = make_array<double>({n, m});
  auto iterations = make_array<int32_t>({n, m});
  const CloudJob job{tol,
                     std::max(max_iter, 1),
                     warm && potential,
                     potential ? data_of(*potential) : nullptr,
                     limit ? data_of(*limit) : nullptr,
                     value.data(),
                     iterations.data(),
                     error.data()};
  run([&] {
    const Kernels& kernels = chosen.load()->kernels;
    Buffer work = allocate(kernels.clouds_work(table.most_rows, table.most_columns));
    kernels.clouds(table, job, work.get());
  });
  return nb::make_tuple(value, iterations, error);
}

void clouds_pullback(In<double, 2> cost, In<int64_t, 1> index, In<int64_t, 1> x_offsets, In<double, 1> x_weights,
                     In<int64_t, 1> z_offsets, In<double, 1> z_weights, In<double, 2> potential, In<double, 2> weight,
                     double tolerance, InOut<double, 2> plan, InOut<double, 1> gradient) {
  const CloudTable table = cloud_table(cost, index, x_offsets, x_weights, z_offsets, z_weights);
  if (potential.shape(0) != size_t(table.n) || potential.shape(1) != cost.shape(1) ||
      weight.shape(0) != size_t(table.n) || weight.shape(1) != size_t(table.m))
    throw std::invalid_argument("potential must be (n, columns) and weight (n, m)");
  if (plan.shape(0) != cost.shape(0) || plan.shape(1) != cost.shape(1) || gradient.shape(0) != cost.shape(1))
    throw std::invalid_argument("plan must have the shape of cost, and gradient a number per column");
  const double *p = data_of(potential), *w = data_of(weight);
  double *to = data_of(plan), *g = data_of(gradient);
  run([&] {
    const Kernels& kernels = chosen.load()->kernels;
    Buffer work = allocate(kernels.clouds_work(table.most_rows, table.most_columns));
    kernels.clouds_pullback(table, p, w, tolerance, work.get(), to, g);
  });
}

nb::tuple cloud_self(In<double, 2> cost, In<double, 1> weights, double tol, int max_iter) {
  const size_t n = weights.shape(0);
  if (n < 1 || cost.shape(0) != n || cost.shape(1) != n) throw std::invalid_argument("cost must be (n, n)");
  auto potential = make_array<double>({n});
  double value = 0, error = 0, *p = potential.data();
  int32_t iterations = 0;
  const double *c = data_of(cost), *a = data_of(weights);
  run([&] {
    const Kernels& kernels = chosen.load()->kernels;
    Buffer work = allocate(kernels.cloud_self_work(int64_t(n)));
    kernels.cloud_self(c, a, int64_t(n), tol, std::max(max_iter, 1), work.get(), &value, p, &iterations, &error);
  });
  return nb::make_tuple(value, potential, iterations, error);
}

// ---- eigenvalues and functions of symmetric matrices ----------------------------------------------------------

constexpr size_t kWidestSpectral = 256;  // beyond, LAPACK is faster, and lanes take too much memory

int check_symmetric(const In<double, 3>& X) {
  if (X.shape(1) != X.shape(2)) throw std::invalid_argument("matrices must be square");
  if (X.shape(1) < 1 || X.shape(1) > kWidestSpectral) throw std::invalid_argument("matrices must be 1 to 256 wide");
  return int(X.shape(1));
}
template <class Array>
double* square_result(const In<double, 3>& X, const Array& out) {
  for (int axis = 0; axis < 3; axis++)
    if (out.shape(axis) != X.shape(axis)) throw std::invalid_argument("the result must have the shape of X");
  return data_of(out);
}

void eigen(In<double, 3> X, InOut<double, 2> values, std::optional<InOut<double, 3>> vectors) {
  const int d = check_symmetric(X);
  const int64_t n = int64_t(X.shape(0));
  if (values.shape(0) != X.shape(0) || values.shape(1) != X.shape(1))
    throw std::invalid_argument("values must be (n, d)");
  double *v = data_of(values), *u = vectors ? square_result(X, *vectors) : nullptr;
  const double* x = data_of(X);
  const Kernels& kernels = chosen.load()->kernels;
  Buffer work = allocate(kernels.spectral_work(d));
  run([&] { kernels.eigen(x, n, d, work.get(), v, u); });
}

void spectral_map(In<double, 3> X, SpectralMap map, InOut<double, 3> out, std::optional<In<double, 2>> congruence) {
  const int d = check_symmetric(X);
  if (congruence && (congruence->shape(0) != X.shape(1) || congruence->shape(1) != X.shape(1)))
    throw std::invalid_argument("the congruence must be (d, d)");
  double* result = square_result(X, out);
  const double *x = data_of(X), *m = congruence ? data_of(*congruence) : nullptr;
  const Kernels& kernels = chosen.load()->kernels;
  Buffer work = allocate(kernels.spectral_work(d));
  run([&] { kernels.spectral_map(x, m, int64_t(X.shape(0)), d, map, work.get(), result); });
}

Out<double> airm_pairwise(In<double, 3> factors, In<double, 3> whiteners) {
  const int d = check_symmetric(factors);
  if (check_symmetric(whiteners) != d) throw std::invalid_argument("factors and whiteners differ in size");
  const size_t n = factors.shape(0), m = whiteners.shape(0);
  auto out = make_array<double>({n, m});
  double* result = out.data();
  const double *x = data_of(factors), *z = data_of(whiteners);
  const Kernels& kernels = chosen.load()->kernels;
  Buffer work = allocate(kernels.spectral_work(d));
  run([&] { kernels.airm(x, int64_t(n), z, int64_t(m), d, work.get(), result); });
  return out;
}

// ---- signals --------------------------------------------------------------------------------------------------

nb::tuple moments(In<double, 3> signals) {
  const size_t n = signals.shape(0), d = signals.shape(1), length = signals.shape(2);
  if (d < 1 || d > 20000 || length < 1)
    throw std::invalid_argument("signals must be (n, channels, times), with 1 to 20000 channels");
  auto second = make_array<double>({n, d, d}), mean = make_array<double>({n, d});
  const double* x = data_of(signals);
  double *products = second.data(), *sums = mean.data();
  const Kernels& kernels = chosen.load()->kernels;
  Buffer work = allocate(kernels.moments_work(int(d)));
  run([&] { kernels.moments(x, int64_t(n), int(d), int64_t(length), work.get(), products, sums); });
  return nb::make_tuple(second, mean);
}

// ---- the loss -------------------------------------------------------------------------------------------------

nb::tuple soft_neighbor_loss(In<double, 2> D, In<bool, 2> same, double sharpness, double floor, double smoothing,
                             std::optional<In<double, 1>> weight, std::optional<In<double, 1>> reach) {
  const size_t n = D.shape(0), m = D.shape(1);
  if (same.shape(0) != n || same.shape(1) != m || m < 1) throw std::invalid_argument("D and same must be (n, m)");
  if ((weight && weight->shape(0) != n) || (reach && reach->shape(0) != n))
    throw std::invalid_argument("weight and reach must have one number per row of D");
  auto gradient = make_array<double>({n, m});
  const LossJob job{data_of(D),
                    reinterpret_cast<const uint8_t*>(same.data()),
                    int64_t(n),
                    int64_t(m),
                    sharpness,
                    floor,
                    smoothing,
                    weight ? data_of(*weight) : nullptr,
                    reach ? data_of(*reach) : nullptr};
  double loss = 0, *result = gradient.data();
  run([&] {
    const Kernels& kernels = chosen.load()->kernels;
    Buffer work = allocate(kernels.loss_work(job.m));
    loss = kernels.soft_neighbor_loss(job, work.get(), result);
  });
  return nb::make_tuple(loss, gradient);
}

}  // namespace
}  // namespace knnpress

NB_MODULE(_core, module) {
  using namespace knnpress;
  const char* forced = std::getenv("KNNPRESS_TARGET");
  chosen = forced && *forced ? find_target(forced) : &targets().back();
  module.def("targets", [] {
    std::vector<std::string> names;
    for (const auto& t : targets()) names.push_back(t.name);
    return names;
  });
  module.def("target", [] { return chosen.load()->name; });
  module.def("set_target", [](const std::string& name) { chosen = find_target(name); }, "name"_a);

  nb::class_<Task>(module, "Task")
      .def(nb::init<>())
      .def("cancel", [](Task& t) { t.cancelled = true; });
  // Kernels of this thread give up when the task is cancelled; `helping`: and leave signals to other threads
  module.def("join_task", [](Task& t, bool helping) { task = &t, looks = !helping; }, "task"_a, "helping"_a);
  module.def("leave_task", [] { task = nullptr, looks = true; });

  nb::class_<SpdBatch>(module, "SpdBatch")
      .def(nb::init<In<double, 3>, bool>(), "X"_a, "lanes"_a)
      .def("inverse", &SpdBatch::inverse)
      .def_prop_ro("groups", &SpdBatch::groups)
      .def_prop_ro("lanes", [](const SpdBatch& b) { return b.kernels->lanes; })
      .def_prop_ro("logdet", [](const SpdBatch& b) { return b.copy(b.logdet); }, nb::rv_policy::move)
      .def_prop_ro("margin", [](const SpdBatch& b) { return b.copy(b.margin); }, nb::rv_policy::move);
  module.def("all_positive_definite", &all_positive_definite, "X"_a, "least"_a, "most"_a, "margin"_a);
  module.def("jbld_pairwise", &jbld_pairwise, "x"_a, "z"_a, "lower"_a.none() = nb::none(),
             "limit"_a.none() = nb::none());
  module.def("jbld_pullback", &jbld_pullback, "x"_a, "z"_a, "weight"_a, "tolerance"_a, "single"_a = false);

  module.def("box_gaps", &box_gaps, "low"_a, "high"_a, "X"_a);

  nb::class_<SinkhornCost>(module, "SinkhornCost")
      .def(nb::init<In<double, 2>, double>(), "M"_a, "reg"_a)
      .def_prop_ro("stabilised", [](const SinkhornCost& c) { return !c.tables.scaling_is_safe; });
  module.def("sinkhorn", &sinkhorn, "cost"_a, "X"_a, "Z"_a, "potential"_a.none(), "relaxation"_a.none(), "tol"_a,
             "max_iter"_a, "transport"_a, "limit"_a.none() = nb::none(), "tols"_a.none() = nb::none(),
             "single"_a = false);
  module.def("sinkhorn_self", &sinkhorn_self, "cost"_a, "X"_a, "tol"_a, "max_iter"_a);
  module.def("sinkhorn_pullback", &sinkhorn_pullback, "cost"_a, "X"_a, "potential"_a, "weight"_a, "tolerance"_a,
             "single"_a = false);

  module.def("clouds", &clouds, "cost"_a, "index"_a, "x_offsets"_a, "x_weights"_a, "z_offsets"_a, "z_weights"_a,
             "potential"_a.none(), "warm"_a, "tol"_a, "max_iter"_a, "z_index"_a.none() = nb::none(),
             "limit"_a.none() = nb::none());
  module.def("clouds_pullback", &clouds_pullback, "cost"_a, "index"_a, "x_offsets"_a, "x_weights"_a, "z_offsets"_a,
             "z_weights"_a, "potential"_a, "weight"_a, "tolerance"_a, "plan"_a, "gradient"_a);
  module.def("cloud_self", &cloud_self, "cost"_a, "weights"_a, "tol"_a, "max_iter"_a);

  nb::enum_<SpectralMap>(module, "SpectralMap")
      .value("log", SpectralMap::log)
      .value("exp", SpectralMap::exp)
      .value("sqrt", SpectralMap::sqrt)
      .value("inverse_sqrt", SpectralMap::inverse_sqrt);
  module.def("eigen", &eigen, "X"_a, "values"_a, "vectors"_a.none());
  module.def("spectral_map", &spectral_map, "X"_a, "map"_a, "out"_a,
             "congruence"_a.none() = nb::none());
  module.def("moments", &moments, "signals"_a);
  module.def("soft_neighbor_loss", &soft_neighbor_loss, "D"_a, "same"_a, "sharpness"_a, "floor"_a, "smoothing"_a,
             "weight"_a.none() = nb::none(), "reach"_a.none() = nb::none());
  module.def("airm_pairwise", &airm_pairwise, "factors"_a, "whiteners"_a);
}
