// Eigenvalues and functions of symmetric matrices in Python.
#include "binding.hpp"

namespace knnpress {
namespace {

constexpr size_t kWidestSpectral = 256;  // beyond, LAPACK is faster, and lanes take too much memory

int check_symmetric(const In<double, 3>& X) {
  if (X.shape(1) != X.shape(2)) throw std::invalid_argument("matrices must be square");
  if (X.shape(1) < 1 || X.shape(1) > kWidestSpectral) throw std::invalid_argument("matrices must be 1 to 256 wide");
  return int(X.shape(1));
}
void check_result(const In<double, 3>& X, const InOut<double, 3>& out) {
  if (!has_shape(out, {X.shape(0), X.shape(1), X.shape(2)}))
    throw std::invalid_argument("the result must have the shape of X");
}

void eigen(In<double, 3> X, InOut<double, 2> values, std::optional<InOut<double, 3>> vectors) {
  EigenJob job;
  job.d = check_symmetric(X), job.n = int64_t(X.shape(0));
  if (!has_shape(values, {X.shape(0), X.shape(1)})) throw std::invalid_argument("values must be (n, d)");
  if (vectors) check_result(X, *vectors);
  job.x = data_of(X), job.values = data_of(values), job.vectors = data_of(vectors);
  run(kernels().eigen, job);
}

void spectral_map(In<double, 3> X, SpectralMap map, InOut<double, 3> out, std::optional<In<double, 2>> congruence) {
  SpectralMapJob job;
  job.d = check_symmetric(X), job.n = int64_t(X.shape(0)), job.map = map;
  if (congruence && !has_shape(*congruence, {X.shape(1), X.shape(1)}))
    throw std::invalid_argument("the congruence must be (d, d)");
  check_result(X, out);
  job.x = data_of(X), job.m = data_of(congruence), job.out = data_of(out);
  run(kernels().spectral_map, job);
}

Out<double> airm_pairwise(In<double, 3> factors, In<double, 3> whiteners) {
  AirmJob job;
  job.d = check_symmetric(factors);
  if (check_symmetric(whiteners) != job.d) throw std::invalid_argument("factors and whiteners differ in size");
  job.n = int64_t(factors.shape(0)), job.m = int64_t(whiteners.shape(0));
  auto out = make_array<double>({factors.shape(0), whiteners.shape(0)});
  job.factors = data_of(factors), job.whiteners = data_of(whiteners), job.out = out.data();
  run(kernels().airm, job);
  return out;
}

}  // namespace

void bind_spectral(nb::module_& module) {
  nb::enum_<SpectralMap>(module, "SpectralMap")
      .value("log", SpectralMap::log)
      .value("exp", SpectralMap::exp)
      .value("sqrt", SpectralMap::sqrt)
      .value("inverse_sqrt", SpectralMap::inverse_sqrt);
  module.def("eigen", &eigen, "X"_a, "values"_a, "vectors"_a.none());
  module.def("spectral_map", &spectral_map, "X"_a, "map"_a, "out"_a, "congruence"_a.none() = nb::none());
  module.def("airm_pairwise", &airm_pairwise, "factors"_a, "whiteners"_a);
}

}  // namespace knnpress
