// The native core's interface: plain arrays in, plain arrays out, no checks, no allocation, no threads.
//
// jbld.cpp, sinkhorn.cpp, clouds.cpp, spectral.cpp, loss.cpp and moments.cpp are compiled once per instruction set;
// each fills its part of one `Kernels` table, and module.cpp
// picks a table at run time. Kernel files use no library code with external linkage, so that the linker can never
// hand an AVX function to a machine without AVX.
#pragma once
#include <cstdint>

namespace knnpress {

// One ground cost, in every layout the Sinkhorn kernel reads. All tables are 64-byte aligned.
struct SinkhornTables {
  int n_bins;
  int padded_bins;          // n_bins rounded up to the kernel's tile and vector width
  bool scaling_is_safe;     // exp(-cost) and every scaling stay far from overflow: use the shared kernel
  bool single_is_safe;      // also in single precision
  double reg;
  double coarsest;          // reg over that from which it may fall to reg in stages
  const double* kernel;     // exp(-C), rows tiled for the x half-step
  const double* kernel_t;   // exp(-C)', rows tiled for the z half-step
  const float* kernel_single;    // the same in single precision
  const float* kernel_t_single;
  const double* plan_cost;  // exp(-C) * M, row-major (n_bins, padded_bins)
  const double* cost;       // C = M / reg, row-major (n_bins, padded_bins)
  const double* cost_t;     // C', row-major (n_bins, padded_bins)
};

struct SinkhornJob {
  const double* x;          // (n, n_bins) histograms
  const double* z;          // (m, n_bins)
  int64_t n, m;
  double tol;               // on the L1 error of a marginal, the other being exact
  int max_iter;
  bool transport;           // value = <T, M>, of T rounded to its marginals, instead of the dual value
  bool single;              // scale in single precision, where that is safe: for a tol above about 1e-5
  double* potential_x;      // (n, m, n_bins) start and result, or null: start at zero and keep nothing
  double* relaxation;       // (n, m) over-relaxation to start with and learnt, or null, with potential_x
  const double* limit;      // (n, m) or null; a pair whose dual value must exceed it is left out: value infinity. -inf:
                            // left out at once
  const double* tols;       // (n, m) or null: a tol for each pair, instead of `tol`
  double* value;            // (n, m)
  int32_t* iterations;      // (n, m)
  double* error;            // (n, m) last L1 marginal error
};

// Distances of n points to m prototypes, and what the soft nearest-neighbour loss makes of them.
struct LossJob {
  const double* D;          // (n, m); infinity: left out
  const uint8_t* same;      // (n, m): whether they share their label; in every row at least one does, at a finite distance
  int64_t n, m;
  double sharpness;         // gamma^2
  double floor, smoothing;
  const double* weight;     // (n,) or null: 1
  const double* reach;      // (n,) or null: 1; how much a point counts in the smoothing
};

// Clouds X and Z by one table of costs: row index[p] and column z_index[c] are the points p of X and c of Z.
struct CloudTable {
  const double* cost;         // (rows, width) ground costs over reg
  int64_t width;
  int64_t columns;            // points of all of Z
  const int64_t* z_index;     // column of each point of Z; null: c itself
  const int64_t* index;       // row of each point of X
  const int64_t* x_offsets;   // (n + 1,) where each cloud of X begins
  const double* x_weights;    // of each point; positive, one in sum per cloud
  int64_t n;
  const int64_t* z_offsets;   // (m + 1,) where each cloud of Z begins, in columns
  const double* z_weights;    // (columns,)
  int64_t m;
  int64_t most_rows, most_columns;  // points of the largest cloud of X and of Z
};

struct CloudJob {
  double tol;                 // on the L1 error of the marginal of z
  int max_iter;
  bool warm;                  // whether potentials are a start
  double* potential;          // (n, columns) of Z over reg: result, or null
  const double* limit;        // (n, m) over reg, or null: a pair is given up, its value infinite, once it is shown to be
                              // above this; at -infinity it is not begun
  double* value;              // (n, m) dual values over reg
  int32_t* iterations;        // (n, m)
  double* error;              // (n, m)
};

enum class SpectralMap { log, exp, sqrt, inverse_sqrt };

// Asked every few milliseconds by every loop that may last (Ctrl-C, a failure elsewhere); true: give up, the result is
// thrown away. Defined in module.cpp.
bool stopped();

struct Kernels {
  int lanes;                // doubles in a vector
  int tile_rows;            // row tile of the Sinkhorn kernel tables

  // log-determinants of `groups` packed groups of matrices; margin = min over pivots of pivot / diagonal entry
  void (*logdet)(const double* x, int64_t groups, int d, double* work, double* logdet, double* margin);
  // out[i] = x_i^-1, (n, d, d)
  void (*inverse)(const double* x, int64_t n, int d, double* work, double* out);
  // out[i, j] = JBLD(x_i, z_j). `lower`, (groups, m), or null: what no distance of a group to z_j is below; it is
  // brought up to date where they are computed. With `limit`, (n,), groups beyond the limits of all their rows are
  // left out: infinity.
  void (*jbld_pairwise)(const double* x, const double* logdet_x, int64_t n, const double* z, const double* logdet_z,
                        int64_t m, int d, const double* limit, double* lower, double* work, double* out);
  // out[j] = sum_i weight[i, j] (x_i + z_j)^-1, (m, d, d); pairs with |weight| <= tolerance are skipped. `single`: in
  // floats, twice as fast and good to about five digits, except where pivots get too small for it; diagonal entries
  // must be moderate, so that no float can overflow.
  void (*jbld_pullback)(const double* x, int64_t n, const double* z, int64_t m, int d, const double* weight,
                        double tolerance, bool single, double* work, double* out);
  // out[i, g] = max over k of max(low[k, g] - x[i, k], x[i, k] - high[k, g]): how far x_i is from a box, in the maximum norm
  void (*box_gaps)(const double* low, const double* high, int64_t boxes, const double* x, int64_t n, int p, double* out);
  int64_t (*jbld_work)(int d);           // doubles of scratch the four above need

  void (*sinkhorn)(const SinkhornTables&, const SinkhornJob&, double* work);
  // value[i] = OT(x_i, x_i), potential (n, n_bins) by the symmetric iteration
  void (*sinkhorn_self)(const SinkhornTables&, const double* x, int64_t n, double tol, int max_iter, double* work,
                        double* value, double* potential, int32_t* iterations, double* error);
  // out[j] = sum_i weight[i, j] potential_z[i, j], recovered from potential_x by one half-step
  void (*sinkhorn_pullback)(const SinkhornTables&, const double* x, int64_t n, int64_t m, const double* potential_x,
                            const double* weight, double tolerance, bool single, double* work, double* out);
  int64_t (*sinkhorn_work)(const SinkhornTables&);  // doubles of scratch the three above need

  void (*clouds)(const CloudTable&, const CloudJob&, double* work);
  // plan, (rows, columns), += sum of weight[i, j] T_ij at its rows and columns, and gradient, (columns,), += that of
  // potentials; pairs with |weight| <= tolerance are skipped
  void (*clouds_pullback)(const CloudTable&, const double* potential, const double* weight, double tolerance,
                          double* work, double* plan, double* gradient);
  int64_t (*clouds_work)(int64_t rows, int64_t columns);  // doubles of scratch the two above need
  // OT(a, a) over reg of one cloud, and its potential, by the symmetric iteration; cost (n, n) over reg
  void (*cloud_self)(const double* cost, const double* a, int64_t n, double tol, int max_iter, double* work,
                     double* value, double* potential, int32_t* iterations, double* error);
  int64_t (*cloud_self_work)(int64_t n);

  // values (n, d), ascending, and vectors (n, d, d), in columns, or null, of symmetric matrices whose lower triangles
  // are read; NaN where a matrix is not finite
  void (*eigen)(const double* x, int64_t n, int d, double* work, double* values, double* vectors);
  // out[i] = U f(s) U' for x_i = U s U', or m x_i m' = U s U' if m, (d, d), is not null; exactly symmetric. Eigenvalues
  // count as positive where f needs it
  void (*spectral_map)(const double* x, const double* m, int64_t n, int d, SpectralMap map, double* work, double* out);
  // out[i, j] = affine-invariant distance of L_i L_i' and Z_j, from L_i, (n, d, d), and inverses of Cholesky factors of
  // Z_j, (m, d, d), of both of which lower triangles are read
  void (*airm)(const double* factors, int64_t n, const double* whiteners, int64_t m, int d, double* work, double* out);
  int64_t (*spectral_work)(int d);       // doubles of scratch the three above need

  // the weighted sum of losses; gradient (n, m), its derivative in D
  double (*soft_neighbor_loss)(const LossJob&, double* work, double* gradient);
  int64_t (*loss_work)(int64_t m);       // doubles of scratch it needs

  // of signals (n, d, length): means over time (n, d), and second (n, d, d), means of products of every two channels
  void (*moments)(const double* signals, int64_t n, int d, int64_t length, double* work, double* second, double* mean);
  int64_t (*moments_work)(int d);        // doubles of scratch it needs
};

// Packed symmetric matrices: panels of two columns, each panel holding its rows from the diagonal down.
constexpr int kPanel = 2;
inline int64_t packed_size(int d) {
  int64_t size = 0;
  for (int j = 0; j < d; j += kPanel) size += int64_t(d - j) * kPanel;
  return size;
}

namespace baseline {
void fill_jbld(Kernels&); void fill_sinkhorn(Kernels&); void fill_spectral(Kernels&); void fill_clouds(Kernels&);
void fill_loss(Kernels&); void fill_moments(Kernels&);
}
namespace avx2 {
void fill_jbld(Kernels&); void fill_sinkhorn(Kernels&); void fill_spectral(Kernels&); void fill_clouds(Kernels&);
void fill_loss(Kernels&); void fill_moments(Kernels&);
}
namespace avx512 {
void fill_jbld(Kernels&); void fill_sinkhorn(Kernels&); void fill_spectral(Kernels&); void fill_clouds(Kernels&);
void fill_loss(Kernels&); void fill_moments(Kernels&);
}

}  // namespace knnpress
