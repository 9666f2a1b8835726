#pragma once

#include "loops/ir/loop_ir.h"
#include "loops/target/target.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::loops {

/// A kernel that runs. May be called from several threads at once.
class CompiledKernel {
 public:
  virtual ~CompiledKernel() = default;
  /// Puts the kernel behind the work of the stream. One pointer per buffer of the kernel, null for
  /// scratch. False: a CheckIndex failed, and what the kernel wrote is undefined. A device that is
  /// not done when the call returns has its own way to say so.
  virtual bool launch(std::span<void* const> buffers, const c10::Stream& stream) const = 0;
  /// What the generator made of it, for dumps: file ending (`ll`, `s`) and text.
  struct Listing {
    std::string ending;
    std::string text;
  };
  virtual std::vector<Listing> listings() const { return {}; }
  /// What KernelCompiler::load makes it of again; empty: it is compiled anew from its loops.
  virtual std::string save() const { return {}; }
  /// The shortest of the runs that were timed (some of them are), in seconds; 0: none yet.
  virtual double best_seconds() const { return 0; }
};

/// What a kernel is asked for: the sizes that it has, or other kernels of the same form, too.
enum class Sizes : uint8_t { Fixed, Vary };

/// Kernels as one engine makes them run: the reference interpreter, or code for a machine.
class KernelCompiler {
 public:
  struct Result {
    std::shared_ptr<const CompiledKernel> kernel;  // null: it cannot be generated
    std::string reason{};                          // why not
    int generated = 0;                             // codes that were made for it, not found
  };

  virtual ~KernelCompiler() = default;
  /// The device that it makes kernels for. Stays as long as the process.
  virtual const Target& target() const = 0;
  /// Whether it can make any kernel on this machine.
  virtual bool can_compile() const { return true; }
  /// One result per kernel. All kernels of a graph come at once, so that they can be compiled in
  /// parallel; no two of them have the same structural key. Where sizes vary, kernels that differ
  /// in sizes only should share what takes long to make.
  virtual std::vector<Result> compile(std::span<const Kernel* const> kernels, Sizes sizes) = 0;
  std::vector<Result> compile(std::span<const Kernel* const> kernels) {
    return compile(kernels, Sizes::Fixed);
  }
  /// What a kernel of this kind has saved, in another process too; no kernel if it does not run on
  /// this machine. `stored` is trusted.
  virtual Result load(const Kernel& /*kernel*/, std::string_view /*stored*/) { return {}; }
  /// Bytes read and written per second by a plain copy of memory on this device; 0: not known.
  virtual double copy_bytes_per_second() { return 0; }
};

/// Runs the loop IR line by line: slow, obviously right, the judge of every generator. It stands in
/// for the compiler of another target whose memory this process can read.
std::shared_ptr<KernelCompiler> make_reference_compiler();
std::shared_ptr<KernelCompiler> make_reference_compiler(const Target& target);

}  // namespace tandem::loops
