// Distances from boxes in Python.
#include "binding.hpp"

namespace knnpress {
namespace {

Out<double> box_gaps(In<double, 2> low, In<double, 2> high, In<double, 2> X) {
  const size_t p = low.shape(0), boxes = low.shape(1), n = X.shape(0);
  if (!has_shape(high, {p, boxes}) || X.shape(1) != p)
    throw std::invalid_argument("low and high must be (p, boxes) and X (n, p)");
  auto out = make_array<double>({n, boxes});
  BoxGapsJob job;
  job.low = data_of(low), job.high = data_of(high), job.x = data_of(X);
  job.boxes = int64_t(boxes), job.n = int64_t(n), job.p = int(p);
  job.out = out.data();
  run(kernels().box_gaps, job);
  return out;
}

}  // namespace

void bind_boxes(nb::module_& module) { module.def("box_gaps", &box_gaps, "low"_a, "high"_a, "X"_a); }

}  // namespace knnpress
