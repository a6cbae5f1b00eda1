// Entropic transport between histograms in Python.
#include "binding.hpp"

namespace knnpress {
namespace {

struct SinkhornCost {
  const Kernels* kernels;
  std::unique_ptr<SinkhornBuffers> buffers;

  SinkhornCost(In<double, 2> M, double reg) : kernels(&knnpress::kernels()) {
    if (M.shape(0) != M.shape(1) || M.shape(0) < 1 || M.shape(0) > 100000)
      throw std::invalid_argument("the ground cost must be square");
    const double* m = data_of(M);
    run([&] { buffers = std::make_unique<SinkhornBuffers>(m, int(M.shape(0)), reg, *kernels); });
  }
  const SinkhornTables& tables() const { return buffers->tables; }
  void check_bins(size_t bins) const {
    if (bins != size_t(tables().n_bins)) throw std::invalid_argument("histograms and ground cost differ in size");
  }
};

nb::tuple sinkhorn(const SinkhornCost& cost, In<double, 2> X, In<double, 2> Z,
                   std::optional<InOut<double, 3>> potential, std::optional<InOut<double, 2>> relaxation, double tol,
                   int max_iter, bool transport, std::optional<In<double, 2>> limit,
                   std::optional<In<double, 2>> tols, bool single) {
  cost.check_bins(X.shape(1));
  cost.check_bins(Z.shape(1));
  const size_t n = X.shape(0), m = Z.shape(0);
  if (potential && !has_shape(*potential, {n, m, X.shape(1)}))
    throw std::invalid_argument("potential must be (n, m, d)");
  if (bool(potential) != bool(relaxation) || (relaxation && !has_shape(*relaxation, {n, m})))
    throw std::invalid_argument("relaxation must be (n, m), and given with potential");
  if (limit && (transport || !has_shape(*limit, {n, m})))
    throw std::invalid_argument("limit must be (n, m), and of dual values");
  if (tols && !has_shape(*tols, {n, m})) throw std::invalid_argument("tols must be (n, m)");
  auto value = make_array<double>({n, m}), error = make_array<double>({n, m});
  auto iterations = make_array<int32_t>({n, m});
  SinkhornJob job;
  job.tables = &cost.tables();
  job.x = data_of(X), job.z = data_of(Z), job.n = int64_t(n), job.m = int64_t(m);
  job.tol = tol, job.max_iter = std::max(max_iter, 1);
  job.transport = transport, job.single = single;
  job.potential_x = data_of(potential), job.relaxation = data_of(relaxation);
  job.limit = data_of(limit), job.tols = data_of(tols);
  job.value = value.data(), job.iterations = iterations.data(), job.error = error.data();
  run(cost.kernels->sinkhorn, job);
  return nb::make_tuple(value, iterations, error);
}

nb::tuple sinkhorn_self(const SinkhornCost& cost, In<double, 2> X, double tol, int max_iter) {
  cost.check_bins(X.shape(1));
  const size_t n = X.shape(0);
  auto value = make_array<double>({n}), error = make_array<double>({n});
  auto potential = make_array<double>({n, X.shape(1)});
  auto iterations = make_array<int32_t>({n});
  SinkhornSelfJob job;
  job.tables = &cost.tables();
  job.x = data_of(X), job.n = int64_t(n);
  job.tol = tol, job.max_iter = std::max(max_iter, 1);
  job.value = value.data(), job.potential = potential.data();
  job.iterations = iterations.data(), job.error = error.data();
  run(cost.kernels->sinkhorn_self, job);
  return nb::make_tuple(value, potential, iterations, error);
}

Out<double> sinkhorn_pullback(const SinkhornCost& cost, In<double, 2> X, In<double, 3> potential,
                              In<double, 2> weight, double tolerance, bool single) {
  cost.check_bins(X.shape(1));
  const size_t n = X.shape(0), m = weight.shape(1);
  if (weight.shape(0) != n || !has_shape(potential, {n, m, X.shape(1)}))
    throw std::invalid_argument("potential must be (n, m, d) and weight (n, m)");
  auto out = make_array<double>({m, X.shape(1)});
  SinkhornPullbackJob job;
  job.tables = &cost.tables();
  job.x = data_of(X), job.n = int64_t(n), job.m = int64_t(m);
  job.potential_x = data_of(potential), job.weight = data_of(weight);
  job.tolerance = tolerance, job.single = single;
  job.out = out.data();
  run(cost.kernels->sinkhorn_pullback, job);
  return out;
}

}  // namespace

void bind_sinkhorn(nb::module_& module) {
  nb::class_<SinkhornCost>(module, "SinkhornCost")
      .def(nb::init<In<double, 2>, double>(), "M"_a, "reg"_a)
      .def_prop_ro("stabilised", [](const SinkhornCost& c) { return !c.tables().scaling_is_safe; });
  module.def("sinkhorn", &sinkhorn, "cost"_a, "X"_a, "Z"_a, "potential"_a.none(), "relaxation"_a.none(), "tol"_a,
             "max_iter"_a, "transport"_a, "limit"_a.none() = nb::none(), "tols"_a.none() = nb::none(),
             "single"_a = false);
  module.def("sinkhorn_self", &sinkhorn_self, "cost"_a, "X"_a, "tol"_a, "max_iter"_a);
  module.def("sinkhorn_pullback", &sinkhorn_pullback, "cost"_a, "X"_a, "potential"_a, "weight"_a, "tolerance"_a,
             "single"_a = false);
}

}  // namespace knnpress
