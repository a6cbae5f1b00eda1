// The door between Python and the kernels: which instruction set they use, and how they are interrupted.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "binding.hpp"

namespace knnpress {

// ---- interruption ---------------------------------------------------------------------------------------------

namespace {

// What threads that work on one task share: once it is cancelled, their kernels give up.
struct Task {
  std::atomic<bool> cancelled{false};
};

using Clock = std::chrono::steady_clock;
constexpr auto kSignalInterval = std::chrono::milliseconds(50);  // to check them takes the GIL
thread_local Task* task = nullptr;        // of this thread; kept alive by its caller
thread_local bool checks_signals = true;  // a thread that only helps leaves them to others
thread_local bool gave_up = false;
thread_local Clock::time_point next_check;

}  // namespace

bool stopped() {
  if (gave_up) return true;
  if (task && task->cancelled.load(std::memory_order_relaxed)) return gave_up = true;
  if (!checks_signals) return false;
  const auto now = Clock::now();
  if (now < next_check) return false;
  next_check = now + kSignalInterval;
  const PyGILState_STATE held = take_gil([] { return PyGILState_Ensure(); });
  gave_up = PyErr_CheckSignals() != 0;  // runs Python's handlers, in its main thread only
  PyGILState_Release(held);
  return gave_up;
}

void begin_work() {
  gave_up = false;
  next_check = Clock::now() + kSignalInterval;
}

void end_work() {
  if (!gave_up) return;
  gave_up = false;
  if (PyErr_Occurred()) throw nb::python_error();
  throw std::runtime_error("given up, since another thread of this task failed");
}

// ---- instruction sets -----------------------------------------------------------------------------------------

namespace {

struct Target {
  std::string name;
  Kernels kernels;
};

const std::vector<Target>& targets() {  // those this CPU can run, best last
  static const std::vector<Target> list = [] {
    std::vector<Target> found;
    auto add = [&](const char* name, void (*fill)(Kernels&)) {
      found.push_back({name, {}});
      fill(found.back().kernels);
    };
    add("baseline", baseline::fill);
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) add("avx2", avx2::fill);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      add("avx512", avx512::fill);
#endif
    return found;
  }();
  return list;
}

std::atomic<const Target*> chosen{nullptr};  // written when the module loads and by set_target

const Target* find_target(const std::string& name) {
  for (const auto& t : targets())
    if (t.name == name) return &t;
  std::string known;
  for (const auto& t : targets()) known += (known.empty() ? "" : ", ") + t.name;
  throw std::invalid_argument("no instruction set named '" + name + "' on this machine; it has " + known);
}

}  // namespace

const Kernels& kernels() { return chosen.load()->kernels; }

}  // namespace knnpress

NB_MODULE(_core, module) {
  using namespace knnpress;
  const char* forced = std::getenv("KNNPRESS_TARGET");
  chosen = forced && *forced ? find_target(forced) : &targets().back();
  module.def("targets", [] {
    std::vector<std::string> names;
    for (const auto& t : targets()) names.push_back(t.name);
    return names;
  });
  module.def("target", [] { return chosen.load()->name; });
  module.def("set_target", [](const std::string& name) { chosen = find_target(name); }, "name"_a);

  nb::class_<Task>(module, "Task")
      .def(nb::init<>())
      .def("cancel", [](Task& t) { t.cancelled = true; });
  // Kernels of this thread give up when the task is cancelled; `helping`: and leave signals to other threads
  module.def("join_task", [](Task& t, bool helping) { task = &t, checks_signals = !helping; }, "task"_a, "helping"_a);
  // Where daemon threads are still at work when Python ends, what they hold is never let go, which is no fault of ours
  module.def("expect_leaks", [] { nb::set_leak_warnings(false); });
  module.def("leave_task", [] { task = nullptr, checks_signals = true; });

  bind_jbld(module);
  bind_spectral(module);
  bind_sinkhorn(module);
  bind_clouds(module);
  bind_loss(module);
  bind_moments(module);
  bind_boxes(module);
}
