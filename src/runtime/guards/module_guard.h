#pragma once

#include "runtime/guards/guard_rows.h"

#include <ATen/core/Tensor.h>
#include <c10/core/UndefinedTensorImpl.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tandem::runtime {

/// One handle on behalf of all of Tandem, so that a guard can see whether anybody else holds the
/// module. A module that the handle does not own (it is on the stack, or behind a plain pointer)
/// stays so.
std::shared_ptr<torch::nn::Module> hold_for_tandem(std::shared_ptr<torch::nn::Module> module);

/// Training flags, registered tensors and sub-modules of the modules that the user named, all the
/// way down; and whether the program still has the named ones.
class ModuleGuard {
 public:
  ModuleGuard() = default;
  explicit ModuleGuard(const std::vector<std::shared_ptr<torch::nn::Module>>& modules);
  /// Modules of another process in the place of those that the rows were made of. A UserError if
  /// they are not built in the same way.
  ModuleGuard(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
              const std::vector<ModuleRow>& rows);
  std::vector<ModuleRow> rows() const;

  /// Nobody has switched train()/eval() or replaced a registered tensor or sub-module
  /// since.
  bool holds() const;
  /// It never holds again: the program has let go of a module that it held when this was made. What
  /// the function uses must be another by now.
  bool is_stale() const;
  /// What somebody has done; nothing if it holds.
  std::optional<std::string> difference() const;
  std::vector<std::string> texts() const;
  /// Whether the two were made of the same modules in the same state.
  bool alike(const ModuleGuard& other) const;

 private:
  void add(std::shared_ptr<torch::nn::Module> module, std::string path);

  struct One {
    std::shared_ptr<torch::nn::Module> module;
    std::string path;
    /// Of a named module that Tandem owns with others: its control block.
    const std::shared_ptr<torch::nn::Module>* owner;
    bool training;
    // Weak: a tensor that the function did not use is not kept, and an address that is watched is
    // not used again.
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> parameters,
        buffers;
    std::vector<const torch::nn::Module*> children;  // kept by rows of their own
  };
  std::vector<One> modules_;
};

}  // namespace tandem::runtime
