// A library to preload (LD_PRELOAD): counts the bytes that live in malloc, of any program. Both
// sides of a comparison of peak memory run under it; README.md has the method.
//
// glibc's own names of the functions are called, so nothing has to be looked up and nothing can
// recurse. What is not taken from malloc (code of kernels, thread stacks) is not counted on any
// side.
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};

void* count(void* block) {
  if (block == nullptr) return block;
  const auto bytes = static_cast<int64_t>(malloc_usable_size(block));
  const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return block;
}

void discount(void* block) {
  if (block != nullptr)
    live.fetch_sub(static_cast<int64_t>(malloc_usable_size(block)), std::memory_order_relaxed);
}

}  // namespace

extern "C" {

#define COUNTED __attribute__((visibility("default")))

/// Forgets the peak; returns what lives now.
COUNTED int64_t malloc_meter_restart() {
  const int64_t now = live.load();
  peak.store(now);
  return now;
}
/// The most that lived at one time since the last restart.
COUNTED int64_t malloc_meter_peak() { return peak.load(); }

COUNTED void* malloc(size_t bytes) noexcept { return count(__libc_malloc(bytes)); }
COUNTED void* calloc(size_t number, size_t bytes) noexcept {
  return count(__libc_calloc(number, bytes));
}
COUNTED void* realloc(void* block, size_t bytes) noexcept {
  const auto before = block ? static_cast<int64_t>(malloc_usable_size(block)) : 0;
  void* moved = __libc_realloc(block, bytes);
  if (moved == nullptr && bytes != 0) return nullptr;  // the old block lives on
  live.fetch_sub(before, std::memory_order_relaxed);
  return count(moved);
}
COUNTED void free(void* block) noexcept {
  discount(block);
  __libc_free(block);
}
COUNTED void* memalign(size_t alignment, size_t bytes) noexcept {
  return count(__libc_memalign(alignment, bytes));
}
COUNTED void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return count(__libc_memalign(alignment, bytes));
}
COUNTED int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
    return EINVAL;
  void* made = count(__libc_memalign(alignment, bytes));
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}
}
