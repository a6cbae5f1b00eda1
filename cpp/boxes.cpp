// How far points are from boxes, in the maximum norm: bounds for the search of neighbours.
#include "arena.hpp"

namespace knnpress::KNNPRESS_TARGET {
namespace {

// Chunks of boxes stay in registers while the coordinates go by.
void box_gaps(const BoxGapsJob& job, Nothing) {
  const double *low = job.low, *high = job.high;
  const int64_t boxes = job.boxes;
  const int p = job.p;
  double* out = job.out;
  constexpr int kChunk = 4;
  Patience patience;
  for (int64_t i = 0; i < job.n && !patience.exhausted(boxes * p); i++) {
    const double* xi = job.x + i * p;
    int64_t g = 0;
    for (; g + kChunk * kLanes <= boxes; g += kChunk * kLanes) {
      V far[kChunk];
      for (int c = 0; c < kChunk; c++) far[c] = splat(-1.7e308);
      for (int k = 0; k < p; k++)
        for (int c = 0; c < kChunk; c++) {
          const int64_t at = k * boxes + g + c * kLanes;
          far[c] = max(far[c], max(load(low + at) - xi[k], xi[k] - load(high + at)));
        }
      for (int c = 0; c < kChunk; c++) store(out + i * boxes + g + c * kLanes, far[c]);
    }
    for (; g < boxes; g++) {
      double far = -1.7e308;
      for (int k = 0; k < p; k++) {
        const double below = low[k * boxes + g] - xi[k], above = xi[k] - high[k * boxes + g];
        far = below > far ? below : far, far = above > far ? above : far;
      }
      out[i * boxes + g] = far;
    }
  }
}

}  // namespace

void fill_boxes(Kernels& k) { define<take_nothing<BoxGapsJob>, box_gaps>(k.box_gaps); }

}  // namespace knnpress::KNNPRESS_TARGET
