// Means and second moments of signals in Python.
#include "binding.hpp"

namespace knnpress {
namespace {

nb::tuple moments(In<double, 3> signals) {
  const size_t n = signals.shape(0), d = signals.shape(1), length = signals.shape(2);
  if (d < 1 || d > 20000 || length < 1)
    throw std::invalid_argument("signals must be (n, channels, times), with 1 to 20000 channels");
  auto second = make_array<double>({n, d, d}), mean = make_array<double>({n, d});
  MomentsJob job;
  job.signals = data_of(signals);
  job.n = int64_t(n), job.d = int(d), job.length = int64_t(length);
  job.second = second.data(), job.mean = mean.data();
  run(kernels().moments, job);
  return nb::make_tuple(second, mean);
}

}  // namespace

void bind_moments(nb::module_& module) { module.def("moments", &moments, "signals"_a); }

}  // namespace knnpress
