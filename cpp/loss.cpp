// The soft nearest-neighbour loss of a block of distances and its derivative, one point at a time, a prototype per lane.
// learning/loss.py has the formulas.
#include "arena.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

constexpr double kRare = 1e-200;  // chance of a right label below which its parts may have underflowed

INLINE int64_t padded(int64_t m) { return (m + kLanes - 1) / kLanes * kLanes; }
INLINE V* vectors(double* p) { return reinterpret_cast<V*>(p); }
INLINE double log_of(double x) { return log(splat(x))[0]; }
INLINE double exp_of(double x) { return exp(splat(x))[0]; }

// A number per prototype, padded with zeros to whole vectors.
struct Row {
  double *row, *own_mark, *real_mark, *all, *own;
};
Row layout(Arena& arena, const LossJob& job) {
  const int64_t size = padded(job.m);
  Row r;
  r.row = arena.take<double>(size), r.own_mark = arena.take<double>(size), r.real_mark = arena.take<double>(size);
  r.all = arena.take<double>(size), r.own = arena.take<double>(size);
  return r;
}

void soft_neighbor_loss(const LossJob& job, const Row& pieces) {
  const int64_t m = job.m, groups = padded(m) / kLanes;
  double *row = pieces.row, *own_mark = pieces.own_mark, *real_mark = pieces.real_mark;
  double *all = pieces.all, *own = pieces.own, *gradient = job.gradient;
  for (int64_t j = 0; j < padded(m); j++) real_mark[j] = j < m, row[j] = own_mark[j] = 0;
  Patience patience;
  double sum_of_losses = 0;
  for (int64_t i = 0; i < job.n; i++) {
    if (patience.exhausted(32 * m)) return;
    const double* D = job.D + i * m;
    const uint8_t* same = job.same + i * m;
    double nearest = D[0], nearest_own = __builtin_inf();
    for (int64_t j = 0; j < m; j++) {
      nearest = D[j] < nearest ? D[j] : nearest;
      if (same[j] && D[j] < nearest_own) nearest_own = D[j];
      own_mark[j] = same[j];
    }
    for (int64_t j = 0; j < m; j++) row[j] = D[j] - nearest;  // beyond m it stays 0
    V total = {}, chance = {}, excess = {};
    for (int64_t g = 0; g < groups; g++) {
      const V e = exp(-job.sharpness * vectors(row)[g]) * vectors(real_mark)[g], o = e * vectors(own_mark)[g];
      vectors(all)[g] = e, vectors(own)[g] = o;
      total += e, chance += o, excess += vectors(row)[g];
    }
    const double sum_all = sum(total);
    double sum_own = sum(chance), loss;
    if (sum_own < kRare * sum_all) {
      const double behind = nearest_own - nearest;
      V again = {};
      for (int64_t g = 0; g < groups; g++) {
        const V o = exp(job.sharpness * (behind - vectors(row)[g])) * vectors(own_mark)[g];
        vectors(own)[g] = vectors(own_mark)[g] > 0.0 ? o : V{};  // what is not its own may have overflowed
        again += vectors(own)[g];
      }
      sum_own = sum(again);
      loss = log_of(sum_all) - log_of(sum_own) + job.sharpness * behind;
    } else {
      loss = -log_of(sum_own / sum_all);
    }
    const double weight = job.weight ? job.weight[i] : 1.0;
    const double even = job.smoothing * (job.reach ? job.reach[i] : 1.0);
    double scale = job.sharpness * (1.0 - job.smoothing);
    if (job.floor > 0) {
      const double p = exp_of(-loss), floored = p + job.floor;
      scale *= p / floored;
      loss = log_of(1.0 + job.floor) - log_of(floored);
    }
    loss *= 1.0 - job.smoothing;
    if (even > 0) loss += even * (log_of(sum_all) + job.sharpness * sum(excess) / m);
    sum_of_losses += weight * loss;
    const double to_own = weight * scale / sum_own, to_all = weight * (scale + job.sharpness * even) / sum_all;
    const double to_each = weight * job.sharpness * even / m;
    for (int64_t g = 0; g < groups; g++)
      vectors(row)[g] = to_own * vectors(own)[g] - to_all * vectors(all)[g] + to_each;
    for (int64_t j = 0; j < m; j++) gradient[i * m + j] = row[j];
    for (int64_t j = m; j < padded(m); j++) row[j] = 0;
  }
  *job.loss = sum_of_losses;
}

}  // namespace

void fill_loss(Kernels& k) {
  define<layout, soft_neighbor_loss>(k.loss);
}

}  // namespace knnpress::KNNPRESS_TARGET
