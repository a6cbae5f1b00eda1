// Entropic transport between clouds in Python.
#include "binding.hpp"

namespace knnpress {
namespace {

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
  CloudTable table;
  table.most_rows = largest_cloud(x_offsets, index.shape(0));
  table.most_columns = largest_cloud(z_offsets, z_weights.shape(0));
  table.cost = data_of(cost), table.width = int64_t(cost.shape(1));
  table.index = data_of(index), table.x_offsets = data_of(x_offsets), table.x_weights = data_of(x_weights);
  table.n = int64_t(x_offsets.shape(0)) - 1;
  table.z_index = z_index, table.columns = int64_t(z_weights.shape(0));
  table.z_offsets = data_of(z_offsets), table.z_weights = data_of(z_weights);
  table.m = int64_t(z_offsets.shape(0)) - 1;
  return table;
}

nb::tuple clouds(In<double, 2> cost, In<int64_t, 1> index, In<int64_t, 1> x_offsets, In<double, 1> x_weights,
                 In<int64_t, 1> z_offsets, In<double, 1> z_weights, std::optional<InOut<double, 2>> potential, bool warm,
                 double tol, int max_iter, std::optional<In<int64_t, 1>> z_index,
                 std::optional<In<double, 2>> limit) {
  if (z_index && z_index->shape(0) != z_weights.shape(0)) throw std::invalid_argument("each point needs a column");
  CloudJob job;
  job.table = cloud_table(cost, index, x_offsets, x_weights, z_offsets, z_weights, data_of(z_index));
  const size_t n = size_t(job.table.n), m = size_t(job.table.m);
  if (potential && !has_shape(*potential, {n, size_t(job.table.columns)}))
    throw std::invalid_argument("potential must be (n, columns)");
  if (limit && !has_shape(*limit, {n, m})) throw std::invalid_argument("limit must be (n, m)");
  auto value = make_array<double>({n, m}), error = make_array<double>({n, m});
  auto iterations = make_array<int32_t>({n, m});
  job.tol = tol, job.max_iter = std::max(max_iter, 1);
  job.warm = warm && potential, job.potential = data_of(potential);
  job.limit = data_of(limit);
  job.value = value.data(), job.iterations = iterations.data(), job.error = error.data();
  run(kernels().clouds, job);
  return nb::make_tuple(value, iterations, error);
}

void clouds_pullback(In<double, 2> cost, In<int64_t, 1> index, In<int64_t, 1> x_offsets, In<double, 1> x_weights,
                     In<int64_t, 1> z_offsets, In<double, 1> z_weights, In<double, 2> potential, In<double, 2> weight,
                     double tolerance, InOut<double, 2> plan, InOut<double, 1> gradient) {
  CloudPullbackJob job;
  job.table = cloud_table(cost, index, x_offsets, x_weights, z_offsets, z_weights);
  const size_t n = size_t(job.table.n), m = size_t(job.table.m), columns = cost.shape(1);
  if (!has_shape(potential, {n, columns}) || !has_shape(weight, {n, m}))
    throw std::invalid_argument("potential must be (n, columns) and weight (n, m)");
  if (!has_shape(plan, {cost.shape(0), columns}) || gradient.shape(0) != columns)
    throw std::invalid_argument("plan must have the shape of cost, and gradient a number per column");
  job.potential = data_of(potential), job.weight = data_of(weight), job.tolerance = tolerance;
  job.plan = data_of(plan), job.gradient = data_of(gradient);
  run(kernels().clouds_pullback, job);
}

nb::tuple cloud_self(In<double, 2> cost, In<double, 1> weights, double tol, int max_iter) {
  const size_t n = weights.shape(0);
  if (n < 1 || !has_shape(cost, {n, n})) throw std::invalid_argument("cost must be (n, n)");
  auto potential = make_array<double>({n});
  double value = 0, error = 0;
  int32_t iterations = 0;
  CloudSelfJob job;
  job.cost = data_of(cost), job.a = data_of(weights), job.n = int64_t(n);
  job.tol = tol, job.max_iter = std::max(max_iter, 1);
  job.potential = potential.data(), job.value = &value, job.error = &error, job.iterations = &iterations;
  run(kernels().cloud_self, job);
  return nb::make_tuple(value, potential, iterations, error);
}

}  // namespace

void bind_clouds(nb::module_& module) {
  module.def("clouds", &clouds, "cost"_a, "index"_a, "x_offsets"_a, "x_weights"_a, "z_offsets"_a, "z_weights"_a,
             "potential"_a.none(), "warm"_a, "tol"_a, "max_iter"_a, "z_index"_a.none() = nb::none(),
             "limit"_a.none() = nb::none());
  module.def("clouds_pullback", &clouds_pullback, "cost"_a, "index"_a, "x_offsets"_a, "x_weights"_a, "z_offsets"_a,
             "z_weights"_a, "potential"_a, "weight"_a, "tolerance"_a, "plan"_a, "gradient"_a);
  module.def("cloud_self", &cloud_self, "cost"_a, "weights"_a, "tol"_a, "max_iter"_a);
}

}  // namespace knnpress
