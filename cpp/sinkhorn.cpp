// Entropic optimal transport between many pairs of histograms that share one ground cost C = M / reg.
//
// The plan of a pair is T = a sx K sz b with K = exp(-C); a half-step is s = 1 / (K' (marginal * other s)). In logs,
// s = exp(potential / reg). Two solvers compute the same thing:
//   - by scaling, many pairs at a time, in doubles or, where marginals need not be met closely, in floats; pairs that
//     converge slowly are handed to Newton's method;
//   - by logs and Newton's method, one pair at a time, where exp(-C) would underflow.
#include "sinkhorn.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

template <class Job>
SinkhornScratch layout(Arena& arena, const Job& job) {
  const int64_t padded = job.tables->padded_bins;
  SinkhornScratch s;
  s.lanes = arena.take<V>(kArrays * padded * kVectors);
  for (double*& column : s.column) column = arena.take<double>(padded);
  s.x = arena.take<double>(padded), s.z = arena.take<double>(padded);
  Pair& p = s.pair;
  p.bin_x = arena.take<int32_t>(padded), p.bin_z = arena.take<int32_t>(padded);
  for (double** vector : {&p.a, &p.b, &p.log_a, &p.log_b, &p.x, &p.z, &p.rows, &p.step, &p.change, &p.trial_x,
                          &p.trial_z, &p.pivots, &p.scratch})
    *vector = arena.take<double>(padded);
  for (double** table : {&p.cost, &p.plan, &p.trial, &p.hessian}) *table = arena.take<double>(padded * padded);
  return s;
}

INLINE const SinkhornSolver& solver_of(const SinkhornTables& t, bool single) {
  return single && t.single_is_safe ? kBySingleScaling : t.scaling_is_safe ? kByScaling : kByLogs;
}
void sinkhorn(const SinkhornJob& job, const SinkhornScratch& s) { solver_of(*job.tables, job.single).pairs(job, s); }
void sinkhorn_self(const SinkhornSelfJob& job, const SinkhornScratch& s) { solver_of(*job.tables, false).self(job, s); }
void sinkhorn_pullback(const SinkhornPullbackJob& job, const SinkhornScratch& s) {
  solver_of(*job.tables, job.single).pullback(job, s);
}

}  // namespace

void fill_sinkhorn(Kernels& k) {
  k.tile_rows = kRows;
  define<layout<SinkhornJob>, sinkhorn>(k.sinkhorn);
  define<layout<SinkhornSelfJob>, sinkhorn_self>(k.sinkhorn_self);
  define<layout<SinkhornPullbackJob>, sinkhorn_pullback>(k.sinkhorn_pullback);
}

}  // namespace knnpress::KNNPRESS_TARGET
