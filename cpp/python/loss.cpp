// The loss in Python.
#include "binding.hpp"

namespace knnpress {
namespace {

nb::tuple soft_neighbor_loss(In<double, 2> D, In<bool, 2> same, double sharpness, double floor, double smoothing,
                             std::optional<In<double, 1>> weight, std::optional<In<double, 1>> reach) {
  const size_t n = D.shape(0), m = D.shape(1);
  if (!has_shape(same, {n, m}) || m < 1) throw std::invalid_argument("D and same must be (n, m)");
  if ((weight && weight->shape(0) != n) || (reach && reach->shape(0) != n))
    throw std::invalid_argument("weight and reach must have one number per row of D");
  auto gradient = make_array<double>({n, m});
  double loss = 0;
  LossJob job;
  job.D = data_of(D);
  job.same = reinterpret_cast<const uint8_t*>(same.data());
  job.n = int64_t(n), job.m = int64_t(m);
  job.sharpness = sharpness, job.floor = floor, job.smoothing = smoothing;
  job.weight = data_of(weight), job.reach = data_of(reach);
  job.loss = &loss, job.gradient = gradient.data();
  run(kernels().loss, job);
  return nb::make_tuple(loss, gradient);
}

}  // namespace

void bind_loss(nb::module_& module) {
  module.def("soft_neighbor_loss", &soft_neighbor_loss, "D"_a, "same"_a, "sharpness"_a, "floor"_a, "smoothing"_a,
             "weight"_a.none() = nb::none(), "reach"_a.none() = nb::none());
}

}  // namespace knnpress
