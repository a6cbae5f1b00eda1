// The native core's interface: plain arrays in, plain arrays out, no checks, no allocation, no threads.
//
// A job says all that a kernel must know; a kernel is two functions of its job. The files of kernels are compiled once
// per instruction set; each fills its part of one `Kernels` table, and python/module.cpp picks a table at run time. They
// use no library code with external linkage, so that the linker can never hand an AVX function to a machine without AVX.
#pragma once
#include <cstdint>

namespace knnpress {

// Scratch memory, allocated by the caller and aligned to 64 bytes.
struct Memory {
  char* begin;
  int64_t bytes;
};

template <class Job>
struct Kernel {
  int64_t (*scratch)(const Job&);     // bytes that it needs
  void (*run)(const Job&, Memory);
};

// Whether to give up, since the task was cancelled or a signal such as Ctrl-C has come; the result is thrown away. Every
// loop that may last asks, by `Patience` of lanes.hpp. Signals are looked for every 50 ms at most. Defined in
// python/module.cpp.
bool stopped();

// ---- symmetric positive definite matrices: jbld.cpp -----------------------------------------------------------

// Packed symmetric matrices: panels of two columns, each panel holding its rows from the diagonal down. In lanes, as
// many matrices as a vector has doubles lie side by side and make a group; the last fills what is missing.
constexpr int kPanel = 2;
static inline int64_t packed_size(int d) {
  int64_t size = 0;
  for (int j = 0; j < d; j += kPanel) size += int64_t(d - j) * kPanel;
  return size;
}

// Log-determinants of groups of matrices; margin = min over pivots of pivot / diagonal entry.
struct LogdetJob {
  const double* x = nullptr;          // in lanes
  int64_t groups = 0;
  int d = 0;
  double *logdet = nullptr, *margin = nullptr;  // a number per lane
};

// out[i] = x_i^-1
struct InverseJob {
  const double* x = nullptr;          // in lanes
  int64_t n = 0;
  int d = 0;
  double* out = nullptr;              // (n, d, d)
};

// out[i, j] = JBLD(x_i, z_j), or infinity where it is left out
struct JbldJob {
  const double *x = nullptr, *logdet_x = nullptr;  // in lanes
  const double *z = nullptr, *logdet_z = nullptr;  // one after the other
  int64_t n = 0, m = 0;
  int d = 0;
  const uint8_t* mask = nullptr;      // (groups, m) or null: groups of x to compute
  double* lower = nullptr;            // (groups, m) or null: no distance of a group to z_j is below; updated with each
  const double* limit = nullptr;      // (n,) or null, with lower: a group beyond the limits of all its rows is left out
  double* out = nullptr;              // (n, m)
};

// out[j] = sum_i weight[i, j] (x_i + z_j)^-1
struct JbldPullbackJob {
  const double *x = nullptr, *z = nullptr;  // in lanes; one after the other
  int64_t n = 0, m = 0;
  int d = 0;
  const double* weight = nullptr;     // (n, m)
  double tolerance = 0;               // pairs with |weight| up to this are skipped
  bool single = false;                // in floats: twice as fast and good to about five digits, except where pivots get
                                      // too small for it; diagonal entries must be so moderate that no float overflows
  double* out = nullptr;              // (m, d, d)
};

// ---- spectra of symmetric matrices: spectral.cpp, airm.cpp ----------------------------------------------------

// Lower triangles are read. NaN where a matrix is not finite.
struct EigenJob {
  const double* x = nullptr;          // (n, d, d)
  int64_t n = 0;
  int d = 0;
  double* values = nullptr;           // (n, d), ascending
  double* vectors = nullptr;          // (n, d, d), in columns, or null
};

enum class SpectralMap { log, exp, sqrt, inverse_sqrt };

// out[i] = U f(s) U' for x_i = U s U', or m x_i m' = U s U'; exactly symmetric. Eigenvalues count as positive where f
// needs it.
struct SpectralMapJob {
  const double* x = nullptr;          // (n, d, d)
  const double* m = nullptr;          // (d, d) or null
  int64_t n = 0;
  int d = 0;
  SpectralMap map = SpectralMap::log;
  double* out = nullptr;              // (n, d, d)
};

// out[i, j] = affine-invariant distance of L_i L_i' and Z_j. Lower triangles are read.
struct AirmJob {
  const double* factors = nullptr;    // (n, d, d): L_i
  const double* whiteners = nullptr;  // (m, d, d): inverses of Cholesky factors of Z_j
  int64_t n = 0, m = 0;
  int d = 0;
  double* out = nullptr;              // (n, m)
};

// ---- histograms that share a ground cost: sinkhorn.cpp --------------------------------------------------------

// One ground cost, in every layout the Sinkhorn kernels read. All tables are 64-byte aligned.
struct SinkhornTables {
  int n_bins = 0;
  int padded_bins = 0;                // n_bins rounded up to the kernel's tile and vector width
  bool scaling_is_safe = false;       // exp(-cost) and every scaling stay far from overflow
  bool single_is_safe = false;        // also in single precision
  double reg = 0;
  double coarsest = 1;                // reg over that from which it may fall to reg in stages
  const double* kernel = nullptr;     // exp(-C), rows tiled for the x half-step
  const double* kernel_t = nullptr;   // exp(-C)', rows tiled for the z half-step
  const float* kernel_single = nullptr;    // the same in single precision
  const float* kernel_t_single = nullptr;
  const double* plan_cost = nullptr;  // exp(-C) * M, row-major (n_bins, padded_bins)
  const double* cost = nullptr;       // C = M / reg, row-major (n_bins, padded_bins)
  const double* cost_t = nullptr;     // C', row-major (n_bins, padded_bins)
};

struct SinkhornJob {
  const SinkhornTables* tables = nullptr;
  const double* x = nullptr;          // (n, n_bins) histograms
  const double* z = nullptr;          // (m, n_bins)
  int64_t n = 0, m = 0;
  double tol = 0;                     // on the L1 error of a marginal, the other being exact
  int max_iter = 1;
  bool transport = false;             // value = <T, M>, of T rounded to its marginals, instead of the dual value
  bool single = false;                // scale in single precision, where that is safe: for a tol above about 1e-5
  double* potential_x = nullptr;      // (n, m, n_bins) start and result, or null: start at zero and keep nothing
  double* relaxation = nullptr;       // (n, m) over-relaxation to start with and learnt, or null, with potential_x
  const double* limit = nullptr;      // (n, m) or null; a pair whose dual value must exceed it is left out: value
                                      // infinity. -inf: left out at once
  const double* tols = nullptr;       // (n, m) or null: a tol for each pair, instead of `tol`
  double* value = nullptr;            // (n, m)
  int32_t* iterations = nullptr;      // (n, m)
  double* error = nullptr;            // (n, m) last L1 marginal error
};

// value[i] = OT(x_i, x_i), by the symmetric iteration
struct SinkhornSelfJob {
  const SinkhornTables* tables = nullptr;
  const double* x = nullptr;          // (n, n_bins)
  int64_t n = 0;
  double tol = 0;
  int max_iter = 1;
  double* value = nullptr;            // (n,)
  double* potential = nullptr;        // (n, n_bins)
  int32_t* iterations = nullptr;      // (n,)
  double* error = nullptr;            // (n,)
};

// out[j] = sum_i weight[i, j] potential_z[i, j], recovered from potential_x by one half-step
struct SinkhornPullbackJob {
  const SinkhornTables* tables = nullptr;
  const double* x = nullptr;          // (n, n_bins)
  int64_t n = 0, m = 0;
  const double* potential_x = nullptr;  // (n, m, n_bins)
  const double* weight = nullptr;     // (n, m)
  double tolerance = 0;               // pairs with |weight| up to this are skipped
  bool single = false;
  double* out = nullptr;              // (m, n_bins)
};

// ---- clouds: clouds.cpp ---------------------------------------------------------------------------------------

// Clouds X and Z by one table of costs: row index[p] and column z_index[c] are the points p of X and c of Z.
struct CloudTable {
  const double* cost = nullptr;       // (rows, width) ground costs over reg
  int64_t width = 0;
  int64_t columns = 0;                // points of all of Z
  const int64_t* z_index = nullptr;   // column of each point of Z; null: c itself
  const int64_t* index = nullptr;     // row of each point of X
  const int64_t* x_offsets = nullptr; // (n + 1,) where each cloud of X begins
  const double* x_weights = nullptr;  // of each point; positive, one in sum per cloud
  int64_t n = 0;
  const int64_t* z_offsets = nullptr; // (m + 1,) where each cloud of Z begins, in columns
  const double* z_weights = nullptr;  // (columns,)
  int64_t m = 0;
  int64_t most_rows = 0, most_columns = 0;  // points of the largest cloud of X and of Z
};

struct CloudJob {
  CloudTable table;
  double tol = 0;                     // on the L1 error of the marginal of z
  int max_iter = 1;
  bool warm = false;                  // whether potentials are a start
  double* potential = nullptr;        // (n, columns) of Z over reg: result, or null
  const double* limit = nullptr;      // (n, m) over reg, or null: a pair is given up, its value infinite, once it is
                                      // shown to be above this; at -infinity it is not begun
  double* value = nullptr;            // (n, m) dual values over reg
  int32_t* iterations = nullptr;      // (n, m)
  double* error = nullptr;            // (n, m)
};

// Sums of what each pair does to the table and to the potentials of Z
struct CloudPullbackJob {
  CloudTable table;
  const double* potential = nullptr;  // (n, columns)
  const double* weight = nullptr;     // (n, m)
  double tolerance = 0;               // pairs with |weight| up to this are skipped
  double* plan = nullptr;             // (rows, columns) += weight[i, j] T_ij at its rows and columns
  double* gradient = nullptr;         // (columns,) += weight[i, j] times the potential
};

// OT(a, a) over reg of one cloud, and its potential, by the symmetric iteration
struct CloudSelfJob {
  const double* cost = nullptr;       // (n, n) over reg
  const double* a = nullptr;          // (n,) weights
  int64_t n = 0;
  double tol = 0;
  int max_iter = 1;
  double* potential = nullptr;        // (n,)
  double *value = nullptr, *error = nullptr;
  int32_t* iterations = nullptr;
};

// ---- the rest: loss.cpp, moments.cpp, boxes.cpp ---------------------------------------------------------------

// Distances of n points to m prototypes, and what the soft nearest-neighbour loss makes of them.
struct LossJob {
  const double* D = nullptr;          // (n, m); infinity: left out
  const uint8_t* same = nullptr;      // (n, m): whether they share their label; in every row at least one does, at a
                                      // finite distance
  int64_t n = 0, m = 0;
  double sharpness = 0;               // gamma^2
  double floor = 0, smoothing = 0;
  const double* weight = nullptr;     // (n,) or null: 1
  const double* reach = nullptr;      // (n,) or null: 1; how much a point counts in the smoothing
  double* loss = nullptr;             // the weighted sum
  double* gradient = nullptr;         // (n, m), its derivative in D
};

// Means over time of signals and of products of every two of their channels.
struct MomentsJob {
  const double* signals = nullptr;    // (n, d, length)
  int64_t n = 0, length = 0;
  int d = 0;
  double* second = nullptr;           // (n, d, d)
  double* mean = nullptr;             // (n, d)
};

// out[i, g] = max over k of max(low[k, g] - x[i, k], x[i, k] - high[k, g]): how far x_i is from a box, in the maximum
// norm
struct BoxGapsJob {
  const double *low = nullptr, *high = nullptr;  // (p, boxes)
  const double* x = nullptr;          // (n, p)
  int64_t boxes = 0, n = 0;
  int p = 0;
  double* out = nullptr;              // (n, boxes)
};

// ---- the table ------------------------------------------------------------------------------------------------

struct Kernels {
  int lanes;                          // doubles in a vector
  int tile_rows;                      // row tile of the Sinkhorn kernel tables
  Kernel<LogdetJob> logdet;
  Kernel<InverseJob> inverse;
  Kernel<JbldJob> jbld;
  Kernel<JbldPullbackJob> jbld_pullback;
  Kernel<EigenJob> eigen;
  Kernel<SpectralMapJob> spectral_map;
  Kernel<AirmJob> airm;
  Kernel<SinkhornJob> sinkhorn;
  Kernel<SinkhornSelfJob> sinkhorn_self;
  Kernel<SinkhornPullbackJob> sinkhorn_pullback;
  Kernel<CloudJob> clouds;
  Kernel<CloudPullbackJob> clouds_pullback;
  Kernel<CloudSelfJob> cloud_self;
  Kernel<LossJob> loss;
  Kernel<MomentsJob> moments;
  Kernel<BoxGapsJob> box_gaps;
};

#define KNNPRESS_FILLS(target)                                                                                       \
  namespace target {                                                                                                 \
  void fill_jbld(Kernels&), fill_boxes(Kernels&), fill_spectral(Kernels&), fill_airm(Kernels&);                      \
  void fill_sinkhorn(Kernels&), fill_clouds(Kernels&), fill_loss(Kernels&), fill_moments(Kernels&);                  \
  inline void fill(Kernels& k) {                                                                                     \
    fill_jbld(k), fill_boxes(k), fill_spectral(k), fill_airm(k);                                                     \
    fill_sinkhorn(k), fill_clouds(k), fill_loss(k), fill_moments(k);                                                 \
  }                                                                                                                  \
  }
KNNPRESS_FILLS(baseline)
KNNPRESS_FILLS(avx2)
KNNPRESS_FILLS(avx512)
#undef KNNPRESS_FILLS

}  // namespace knnpress
