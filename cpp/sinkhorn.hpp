// What the files of the Sinkhorn kernels share: their scratch memory, and the two solvers as sinkhorn.cpp sees them.
#pragma once
#include "arena.hpp"

namespace knnpress::KNNPRESS_TARGET {

constexpr int kVectors = 3;                      // vectors of pairs in a register tile
constexpr int kRows = kAccumulators / kVectors;  // bins in a register tile
constexpr int kArrays = 8;                       // of marginals and scalings, see sinkhorn_scaling.cpp
constexpr int kColumns = 4;

// A pair for Newton's method, over the bins that hold mass. The side with fewer of them is called x here, whichever it
// is outside. Tables are (m, width): a row per bin of z, so that sums over bins of x run along vectors.
struct Pair {
  bool swapped;
  int n, m, width;          // bins of x, of z, and n padded
  int32_t *bin_x, *bin_z;   // which they are
  double *a, *b, *log_a, *log_b;
  double *x, *z;            // potentials / reg; z is the best for x
  double *rows;             // T 1, which should be a
  double *step, *change;    // of x, times scale: Newton's, and as reg changes
  double *trial_x, *trial_z, *pivots, *scratch;
  double *cost, *plan, *trial, *hessian;
  double scale;             // the final reg over that of now
  double moved;             // how far x, times scale, has moved since the plan was made by logs
};

struct SinkhornScratch {
  V* lanes;                 // kArrays (padded_bins, kVectors)
  double* column[kColumns]; // padded_bins: contiguous copies of one lane
  double *x, *z;            // padded_bins: potentials / reg of all bins
  Pair pair;                // its arrays
};

// A solver of all that the kernels ask for.
struct SinkhornSolver {
  void (*pairs)(const SinkhornJob&, const SinkhornScratch&);
  void (*self)(const SinkhornSelfJob&, const SinkhornScratch&);
  void (*pullback)(const SinkhornPullbackJob&, const SinkhornScratch&);
};
extern const SinkhornSolver kByScaling, kBySingleScaling;  // sinkhorn_scaling.cpp
extern const SinkhornSolver kByLogs;                       // sinkhorn_logs.cpp: where exp(-C) would underflow

// Solves pair p of the job from s.x by Newton's method, where reg falls from `coarsest` times as much if the start is
// zero; `spent` iterations have been made before. sinkhorn_newton.cpp.
void finish_by_newton(const SinkhornJob& job, int64_t p, double coarsest, int spent, const SinkhornScratch& s);

// What is good enough for a pair.
INLINE double tol_of(const SinkhornJob& job, int64_t p) { return job.tols ? job.tols[p] : job.tol; }

// What is written for a pair that is left out.
INLINE void leave_out(const SinkhornJob& job, int64_t p) {
  job.value[p] = __builtin_inf(), job.iterations[p] = 0, job.error[p] = 0.0;
}

// out_j = -log sum_i weight_i exp(potential_i - cost[i, j])
INLINE void log_step(const double* cost, const SinkhornTables& t, const double* weight, const double* potential,
                     double* out) {
  for (int j = 0; j < t.padded_bins; j += kLanes) {
    V top = splat(-1.7e308), total = {};
    for (int i = 0; i < t.n_bins; i++)
      if (weight[i] > 0) top = max(top, potential[i] - load(cost + int64_t(i) * t.padded_bins + j));
    for (int i = 0; i < t.n_bins; i++)
      if (weight[i] > 0) total += weight[i] * exp(potential[i] - load(cost + int64_t(i) * t.padded_bins + j) - top);
    store(out + j, -(top + log(max(total, splat(kSmallestNormal)))));
  }
}

}  // namespace knnpress::KNNPRESS_TARGET
