#include "backends/llvm_cpu/code/loader.h"

#include "backends/llvm_cpu/code/runtime_functions.h"
#include "base/error.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace tandem::backends::llvm_cpu {
namespace {

/// Kernels see this list, never the symbols of the process.
void* address_of(std::string_view function) {
  const auto known = runtime_functions();
  const auto found =
      std::ranges::find_if(known, [&](const RuntimeFunction& one) { return one.name == function; });
  TANDEM_CHECK(found != known.end(), "lower", "a kernel calls ", function,
               ", which kernels may not call");
  return found->address;
}

bool is_within(int64_t begin, size_t bytes, size_t size) {
  return begin >= 0 && static_cast<size_t>(begin) <= size &&
         bytes <= size - static_cast<size_t>(begin);
}

}  // namespace

LoadedKernel::LoadedKernel(CodeImage image)
    : size_(image.bytes.size()), entry_(image.entry), imports_(std::move(image.imports)) {
  TANDEM_CHECK(is_within(entry_, 1, size_), "lower", "a code image of ", size_,
               " bytes begins at byte ", entry_);
  for (const CodeImage::Import& import : imports_) {
    TANDEM_CHECK(is_within(import.slot, sizeof(void*), size_), "lower", "a code image of ", size_,
                 " bytes has a slot at byte ", import.slot);
    void* const address = address_of(import.function);
    std::memcpy(image.bytes.data() + import.slot, &address, sizeof address);
  }
  void* const memory =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TANDEM_CHECK(memory != MAP_FAILED, "lower", "no memory for a kernel: ", std::strerror(errno));
  memory_ = static_cast<char*>(memory);
  std::memcpy(memory_, image.bytes.data(), size_);
  if (mprotect(memory_, size_, PROT_READ | PROT_EXEC) != 0) {
    const int reason = errno;
    munmap(memory_, size_);
    TANDEM_CHECK(false, "lower", "memory cannot be made executable: ", std::strerror(reason));
  }
  function_ = reinterpret_cast<KernelFunction>(memory_ + entry_);
}

LoadedKernel::~LoadedKernel() { munmap(memory_, size_); }

CodeImage LoadedKernel::image() const {
  CodeImage image{.bytes = std::string(memory_, size_), .entry = entry_, .imports = imports_};
  // Addresses of this process say nothing in another one.
  for (const CodeImage::Import& import : imports_)
    std::memset(image.bytes.data() + import.slot, 0, sizeof(void*));
  return image;
}

}  // namespace tandem::backends::llvm_cpu
