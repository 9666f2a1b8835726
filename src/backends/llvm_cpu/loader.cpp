#include "backends/llvm_cpu/loader.h"

#include "backends/llvm_cpu/runtime_functions.h"
#include "base/error.h"

#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBuffer.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <utility>

namespace tandem::backends::llvm_cpu {
namespace {

void require(llvm::Error error, const char* what) {
  if (!error) return;
  TANDEM_CHECK(false, "lower", what, ": ", llvm::toString(std::move(error)));
}

template <class T>
T require(llvm::Expected<T> value, const char* what) {
  if (!value) require(value.takeError(), what);
  return std::move(*value);
}

/// The process's JIT. Never destroyed: kernels may live until the last static object is gone.
struct Jit {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  pid_t owner = 0;

  Jit() : owner(getpid()) {
    llvm::orc::LLJITBuilder builder;
    auto machine = llvm::orc::JITTargetMachineBuilder(llvm::Triple("x86_64-unknown-linux-gnu"));
    builder.setJITTargetMachineBuilder(std::move(machine));
    // The default one adds a module with constructors and atexit, which kernels do not need.
    builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
    // Names are found in our own list only, never in the process.
    builder.setLinkProcessSymbolsByDefault(false);
    jit = require(builder.create(), "LLVM's JIT cannot be started");
    llvm::orc::SymbolMap symbols;
    for (const RuntimeFunction& function : runtime_functions()) {
      symbols[jit->mangleAndIntern(function.name)] = {
          llvm::orc::ExecutorAddr::fromPtr(function.address),
          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    }
    require(jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))),
            "LLVM's JIT cannot be started");
  }
};

/// A child after fork gets its own: another thread may have held a lock of the parent's.
Jit& process_jit() {
  static auto* lock = new std::mutex;
  static Jit* current = nullptr;
  static pid_t lock_owner = getpid();
  if (lock_owner != getpid()) {
    lock = new std::mutex;
    lock_owner = getpid();
  }
  const std::lock_guard guard(*lock);
  if (!current || current->owner != getpid()) current = new Jit;
  return *current;
}

class OrcKernel final : public LoadedKernel {
 public:
  explicit OrcKernel(const ObjectCode& object) : jit_(process_jit()) {
    llvm::orc::LLJIT& jit = *jit_.jit;
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(
        llvm::StringRef(object.bytes.data(), object.bytes.size()), object.symbol);
    tracker_ = jit.getMainJITDylib().createResourceTracker();
    require(jit.addObjectFile(tracker_, std::move(buffer)), "a kernel cannot be loaded");
    function_ =
        require(jit.lookup(object.symbol), "a kernel cannot be loaded").toPtr<KernelFunction>();
  }

  ~OrcKernel() override {
    // In a child the parent's JIT is left alone.
    if (jit_.owner == getpid()) llvm::consumeError(tracker_->remove());
  }

 private:
  Jit& jit_;
  llvm::orc::ResourceTrackerSP tracker_;
};

}  // namespace

std::unique_ptr<LoadedKernel> load(const ObjectCode& object) {
  return std::make_unique<OrcKernel>(object);
}

}  // namespace tandem::backends::llvm_cpu
