#include "backends/llvm_cpu/parallel.h"

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <exception>

namespace tandem::backends::llvm_cpu {
namespace {

/// What code compiled for OpenMP calls; every runtime for Linux has these names.
struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags) = nullptr;
  int (*thread_number)() = nullptr;
  int (*thread_count)() = nullptr;

  bool complete() const { return parallel && thread_number && thread_count; }
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

OpenMp find_in(void* library) {
  OpenMp found;
  find(library, "GOMP_parallel", found.parallel);
  find(library, "omp_get_thread_num", found.thread_number);
  find(library, "omp_get_num_threads", found.thread_count);
  return found;
}

/// The runtime among the libraries that libtorch itself was linked with.
OpenMp of_libtorch() {
  Dl_info libtorch{};
  if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &libtorch) != 0) {
    if (void* library = dlopen(libtorch.dli_fname, RTLD_NOW | RTLD_NOLOAD)) {
      const OpenMp found = find_in(library);
      if (found.complete()) return found;
    }
  }
  return find_in(RTLD_DEFAULT);
}

struct Work {
  const OpenMp& runtime;
  int64_t count, grain;
  c10::function_ref<void(int64_t, int64_t)> piece;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr error{};
};

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

void take_part(void* data) {
  Work& work = *static_cast<Work*>(data);
  const int64_t threads = std::min<int64_t>(
      work.runtime.thread_count(), divided_up(work.count, std::max<int64_t>(1, work.grain)));
  const int64_t number = work.runtime.thread_number();
  const int64_t size = divided_up(work.count, threads);
  const int64_t begin = number * size;
  if (begin >= work.count) return;
  try {
    const at::internal::ThreadIdGuard thread(static_cast<int>(number));
    const c10::ParallelGuard inside(true);
    work.piece(begin, std::min(work.count, begin + size));
  } catch (...) {
    if (!work.failed.test_and_set()) work.error = std::current_exception();
  }
}

}  // namespace

void in_parallel(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> piece) {
  static const OpenMp runtime = of_libtorch();
  at::internal::lazy_init_num_threads();
  if (count <= grain || count <= 1 || !runtime.complete() || at::in_parallel_region() ||
      at::get_num_threads() == 1) {
    // With libtorch's own pool in place of OpenMP this is parallel, too.
    if (count > 0) at::parallel_for(0, count, grain, piece);
    return;
  }
  Work work{.runtime = runtime, .count = count, .grain = grain, .piece = piece};
  runtime.parallel(take_part, &work, 0, 0);
  if (work.error) std::rethrow_exception(work.error);
}

}  // namespace tandem::backends::llvm_cpu
