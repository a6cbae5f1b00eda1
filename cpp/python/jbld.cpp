// Batches of symmetric positive definite matrices in Python, and what is computed of two of them.
#include "binding.hpp"

namespace knnpress {
namespace {

// Between these, pivots that are not tiny beside their diagonal entry have inverses and ratios within a float's range.
constexpr double kLeastModerate = 1e-18, kMostModerate = 1e18;

// Packed matrices with their log-determinants.
struct SpdBatch {
  const Kernels* kernels = &knnpress::kernels();
  int64_t n = 0;
  int d = 0;
  bool moderate = true;  // all diagonal entries
  Buffer matrices, logdet, margin;

  int64_t groups() const { return (n + kernels->lanes - 1) / kernels->lanes; }
  Out<double> copy(const Buffer& b) const {
    auto out = make_array<double>({size_t(n)});
    std::copy_n(b.get(), n, out.data());
    return out;
  }

 protected:
  // Packs matrices in lanes, for log-determinants in any case.
  void pack(const double* data) {
    for (size_t i = 0; i < size_t(n) * d; i++) {
      const double entry = data[i / d * d * d + i % d * (d + 1)];
      moderate &= entry >= kLeastModerate && entry <= kMostModerate;
    }
    const size_t lanes = kernels->lanes;
    matrices = pack_matrices(data, n, d, lanes);
    if (stopped()) return;
    logdet = allocate(groups() * lanes), margin = allocate(groups() * lanes);
    LogdetJob job;
    job.x = matrices.get(), job.groups = groups(), job.d = d;
    job.logdet = logdet.get(), job.margin = margin.get();
    run_in_scratch(kernels->logdet, job);
  }
  void take_sizes(const In<double, 3>& X) {
    if (X.shape(1) != X.shape(2)) throw std::invalid_argument("matrices must be square");
    if (X.shape(1) < 1 || X.shape(1) > 20000) throw std::invalid_argument("matrices must be 1 to 20000 wide");
    n = int64_t(X.shape(0)), d = int(X.shape(1));
  }
};

// Interleaved for the kernel's vectors: the X of a block.
struct SpdLanes : SpdBatch {
  explicit SpdLanes(In<double, 3> X) {
    take_sizes(X);
    const double* data = data_of(X);
    run([&] { pack(data); });
  }
  Out<double> inverse() const {
    auto out = make_array<double>({size_t(n), size_t(d), size_t(d)});
    InverseJob job;
    job.x = matrices.get(), job.n = n, job.d = d, job.out = out.data();
    run(kernels->inverse, job);
    return out;
  }
};

// One after the other: the Z.
struct SpdSequence : SpdBatch {
  explicit SpdSequence(In<double, 3> X) {
    take_sizes(X);
    const double* data = data_of(X);
    run([&] {
      pack(data);
      matrices = pack_matrices(data, n, d, 1);
    });
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
  const SpdLanes batch(X);
  return std::all_of(batch.margin.get(), batch.margin.get() + n, [&](double m) { return m > margin; });
}

void check_sizes(const SpdLanes& x, const SpdSequence& z) {
  if (x.d != z.d) throw std::invalid_argument("x and z differ in size");
}

Out<double> jbld_pairwise(const SpdLanes& x, const SpdSequence& z, std::optional<InOut<double, 2>> lower,
                          std::optional<In<double, 1>> limit, std::optional<In<bool, 2>> mask) {
  check_sizes(x, z);
  const size_t groups = size_t(x.groups()), m = size_t(z.n);
  if ((lower && !has_shape(*lower, {groups, m})) || (mask && !has_shape(*mask, {groups, m})))
    throw std::invalid_argument("lower and mask must have one row per group of x and one column per z");
  if (limit && (!lower || int64_t(limit->shape(0)) != x.n))
    throw std::invalid_argument("limit must have one number per x, and be given with lower");
  auto out = make_array<double>({size_t(x.n), m});
  JbldJob job;
  job.x = x.matrices.get(), job.logdet_x = x.logdet.get(), job.n = x.n;
  job.z = z.matrices.get(), job.logdet_z = z.logdet.get(), job.m = z.n;
  job.d = x.d;
  job.mask = mask ? reinterpret_cast<const uint8_t*>(mask->data()) : nullptr;
  job.lower = data_of(lower), job.limit = data_of(limit);
  job.out = out.data();
  run(x.kernels->jbld, job);
  return out;
}

Out<double> jbld_pullback(const SpdLanes& x, const SpdSequence& z, In<double, 2> weight, double tolerance,
                          bool single) {
  check_sizes(x, z);
  if (!has_shape(weight, {size_t(x.n), size_t(z.n)}))
    throw std::invalid_argument("weight must have one row per x and one column per z");
  auto out = make_array<double>({size_t(z.n), size_t(x.d), size_t(x.d)});
  JbldPullbackJob job;
  job.x = x.matrices.get(), job.n = x.n;
  job.z = z.matrices.get(), job.m = z.n;
  job.d = x.d;
  job.weight = data_of(weight), job.tolerance = tolerance;
  job.single = single && x.moderate && z.moderate;
  job.out = out.data();
  run(x.kernels->jbld_pullback, job);
  return out;
}

}  // namespace

void bind_jbld(nb::module_& module) {
  nb::class_<SpdLanes>(module, "SpdLanes")
      .def(nb::init<In<double, 3>>(), "X"_a)
      .def("inverse", &SpdLanes::inverse)
      .def_prop_ro("groups", [](const SpdLanes& b) { return b.groups(); })
      .def_prop_ro("lanes", [](const SpdLanes& b) { return b.kernels->lanes; })
      .def_prop_ro("logdet", [](const SpdLanes& b) { return b.copy(b.logdet); }, nb::rv_policy::move)
      .def_prop_ro("margin", [](const SpdLanes& b) { return b.copy(b.margin); }, nb::rv_policy::move);
  nb::class_<SpdSequence>(module, "SpdSequence")
      .def(nb::init<In<double, 3>>(), "X"_a)
      .def_prop_ro("logdet", [](const SpdSequence& b) { return b.copy(b.logdet); }, nb::rv_policy::move)
      .def_prop_ro("margin", [](const SpdSequence& b) { return b.copy(b.margin); }, nb::rv_policy::move);
  module.def("all_positive_definite", &all_positive_definite, "X"_a, "least"_a, "most"_a, "margin"_a);
  module.def("jbld_pairwise", &jbld_pairwise, "x"_a, "z"_a, "lower"_a.none() = nb::none(),
             "limit"_a.none() = nb::none(), "mask"_a.none() = nb::none());
  module.def("jbld_pullback", &jbld_pullback, "x"_a, "z"_a, "weight"_a, "tolerance"_a, "single"_a = false);
}

}  // namespace knnpress
