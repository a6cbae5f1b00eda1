// What the bindings share: arrays of Python, and kernels run without the GIL.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "../tables.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace knnpress {

template <class T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T, int N>
using InOut = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T>;

// The first element of an array, of which a double at an odd address is none.
template <class Array>
auto data_of(const Array& array) {
  auto* data = array.data();
  if (reinterpret_cast<uintptr_t>(data) % alignof(double)) throw std::invalid_argument("arrays must be aligned");
  return data;
}
template <class Array>
auto data_of(const std::optional<Array>& array) {
  return array ? data_of(*array) : nullptr;
}

template <class Array>
bool has_shape(const Array& array, std::initializer_list<size_t> shape) {
  size_t axis = 0;
  for (size_t length : shape)
    if (array.shape(axis++) != length) return false;
  return true;
}

// A new array owned by Python.
template <class T>
Out<T> make_array(std::initializer_list<size_t> shape) {
  T* data = new T[std::max<size_t>(product(shape), 1)];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Out<T>(data, shape.size(), shape.begin(), owner);
}

// The kernels of the instruction set in use; those of one target stay as they are.
const Kernels& kernels();

// Between these two, `stopped` says whether to give up; the second raises what made it.
void begin_work();
void end_work();

// Takes the GIL by `take`. Once the interpreter has ended, Python ends a daemon thread that asks for it, by unwinding its
// stack; through C++ that would be std::terminate. Such a thread waits here for the process to end, as in Python 3.14.
template <class Take>
auto take_gil(Take take) noexcept {
  try {
    return take();
  } catch (...) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

struct WithoutGil {
  PyThreadState* state = PyEval_SaveThread();
  ~WithoutGil() {
    take_gil([&] { PyEval_RestoreThread(state); });
  }
};

// Runs a function without the GIL.
template <class Function>
void run(Function function) {
  begin_work();
  {
    WithoutGil released;
    function();
  }
  end_work();
}
template <class Job>
void run(const Kernel<Job>& kernel, const Job& job) {
  run([&] { run_in_scratch(kernel, job); });
}

void bind_jbld(nb::module_&);
void bind_spectral(nb::module_&);
void bind_sinkhorn(nb::module_&);
void bind_clouds(nb::module_&);
void bind_loss(nb::module_&);
void bind_moments(nb::module_&);
void bind_boxes(nb::module_&);

}  // namespace knnpress
