// Histograms whose exp(-C) would underflow: potentials instead of scalings, one pair at a time.
#include "sinkhorn.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

INLINE void start_potential(const SinkhornTables& t, const double* potential, double* x) {
  for (int k = 0; k < t.padded_bins; k++) x[k] = potential && k < t.n_bins ? potential[k] / t.reg : 0.0;
}

void solve_pairs(const SinkhornJob& job, const SinkhornScratch& s) {
  const SinkhornTables& t = *job.tables;
  for (int64_t p = 0; p < job.n * job.m && !stopped(); p++) {
    if (job.limit && job.limit[p] == -__builtin_inf()) {
      leave_out(job, p);
      continue;
    }
    start_potential(t, job.potential_x ? job.potential_x + p * t.n_bins : nullptr, s.x);
    finish_by_newton(job, p, t.coarsest, 0, s);
  }
}

// The potentials of (a, a) are equal, so averaging a half-step with its input converges in a few steps.
void solve_self(const SinkhornSelfJob& job, const SinkhornScratch& s) {
  const SinkhornTables& t = *job.tables;
  const int d = t.n_bins;
  Patience patience;
  for (int64_t i = 0; i < job.n; i++) {
    const double* a = job.x + i * d;
    start_potential(t, nullptr, s.x);
    int steps = 0;
    double gap = 1.0;
    while (steps++ < job.max_iter && !(gap < job.tol) && !patience.exhausted(20 * int64_t(d) * d)) {
      log_step(t.cost, t, a, s.x, s.z);
      gap = job.value[i] = 0;
      for (int k = 0; k < d; k++) job.value[i] += a[k] * (s.x[k] + s.z[k]) * t.reg;
      for (int k = 0; k < t.padded_bins; k += kLanes) {
        const V difference = max(min(load(s.x + k) - load(s.z + k), splat(50.0)), splat(-50.0));
        const V moved = abs(exp(difference) - 1.0);
        for (int l = 0; l < kLanes && k + l < d; l++) gap += a[k + l] * moved[l];
        store(s.x + k, load(s.x + k) - 0.5 * difference);
      }
    }
    for (int k = 0; k < d; k++) job.potential[i * d + k] = s.z[k] * t.reg;
    job.iterations[i] = steps - 1, job.error[i] = gap;
  }
}

void pull_back(const SinkhornPullbackJob& job, const SinkhornScratch& s) {
  const SinkhornTables& t = *job.tables;
  const int d = t.n_bins;
  Patience patience;
  for (int64_t j = 0; j < job.m; j++) {
    double* gradient = job.out + j * d;
    for (int k = 0; k < d; k++) gradient[k] = 0.0;
    for (int64_t i = 0; i < job.n; i++) {
      const double w = job.weight[i * job.m + j];
      if (!(w > job.tolerance || w < -job.tolerance)) continue;
      if (patience.exhausted(20 * int64_t(d) * d)) return;
      start_potential(t, job.potential_x + (i * job.m + j) * d, s.x);
      log_step(t.cost, t, job.x + i * d, s.x, s.z);
      for (int k = 0; k < d; k++) gradient[k] += w * t.reg * s.z[k];
    }
  }
}

}  // namespace

const SinkhornSolver kByLogs{solve_pairs, solve_self, pull_back};

}  // namespace knnpress::KNNPRESS_TARGET
