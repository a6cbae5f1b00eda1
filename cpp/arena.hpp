// Scratch memory that is measured and carved by one function, so that what is allocated is what is used.
//
// A kernel has a layout, which takes pieces from an arena, one after the other. An arena without memory only counts.
// Built with KNNPRESS_SANITIZE, a layout that takes more than it counted stops the process, and AddressSanitizer also
// sees a step over the end of a piece.
#pragma once
#include "lanes.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KNNPRESS_POISON 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(KNNPRESS_POISON)
#undef KNNPRESS_POISON
#define KNNPRESS_POISON 1
#include <sanitizer/asan_interface.h>
#else
#define KNNPRESS_POISON 0
#endif

namespace knnpress::KNNPRESS_TARGET {

class Arena {
 public:
  Arena() = default;  // only counts
  explicit Arena(Memory memory) : memory_(memory) {
#if KNNPRESS_POISON
    __asan_unpoison_memory_region(memory_.begin, size_t(memory_.bytes));
#endif
  }

  // Room for `count` of T, not initialised.
  template <class T>
  T* take(int64_t count) {
    char* piece = memory_.begin ? memory_.begin + used_ : nullptr;
    const int64_t bytes = count * int64_t(sizeof(T)), rounded = (bytes + kAlign - 1) / kAlign * kAlign + kGap;
    used_ += rounded;
#if defined(KNNPRESS_CHECKED)
    if (piece && used_ > memory_.bytes) __builtin_trap();
#endif
#if KNNPRESS_POISON
    if (piece) __asan_poison_memory_region(piece + bytes, size_t(rounded - bytes));
#endif
    return reinterpret_cast<T*>(piece);
  }
  int64_t used() const { return used_; }

 private:
  static constexpr int64_t kAlign = 64, kGap = KNNPRESS_POISON ? 64 : 0;
  Memory memory_{nullptr, 0};
  int64_t used_ = 0;
};

// What kernels without scratch memory take.
struct Nothing {};
template <class Job>
Nothing take_nothing(Arena&, const Job&) {
  return {};
}

// Makes a kernel of its layout, which returns the pieces it has taken, and of what is done in them.
template <auto layout, auto body, class Job>
void define(Kernel<Job>& kernel) {
  kernel.scratch = [](const Job& job) {
    Arena counting;
    layout(counting, job);
    return counting.used();
  };
  kernel.run = [](const Job& job, Memory memory) {
    Arena arena(memory);
    body(job, layout(arena, job));
  };
}

}  // namespace knnpress::KNNPRESS_TARGET
