#include "runtime/module_guard.h"

#include "base/error.h"

#include <torch/nn/module.h>

namespace tandem::runtime {
namespace {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;

/// The registry itself: the public accessor builds a copy, too slow for every parameter of every
/// call.
struct Registry : torch::nn::Module {
  static const Tensors& parameters(const torch::nn::Module& module) {
    return module.*(&Registry::parameters_);
  }
};

std::vector<const c10::TensorImpl*> identities(const Tensors& tensors) {
  std::vector<const c10::TensorImpl*> result;
  for (const auto& item : tensors) result.push_back(item.value().unsafeGetTensorImpl());
  return result;
}

std::string label(const std::string& path) {
  return path.empty() ? "the module" : "module \"" + path + "\"";
}

std::optional<std::string> replaced(const char* kind, const std::string& path, const Tensors& now,
                                    const std::vector<const c10::TensorImpl*>& then) {
  if (now.size() != then.size()) {
    return base::str(label(path), " has ", now.size(), " ", kind, "s, compiled with ", then.size());
  }
  size_t i = 0;
  for (const auto& item : now) {
    if (item.value().unsafeGetTensorImpl() != then[i++]) {
      return base::str(kind, " \"", path.empty() ? "" : path + ".", item.key(),
                       "\" is another tensor than at the trace");
    }
  }
  return std::nullopt;
}

}  // namespace

ModuleGuard::ModuleGuard(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  for (size_t i = 0; i < modules.size(); ++i) {
    // Several modules may use one path; their position keeps the names apart.
    const std::string root = modules.size() > 1 ? std::to_string(i) : "";
    for (const auto& item : modules[i]->named_modules(root)) {
      const auto& module = item.value();
      modules_.push_back({module, item.key(), module->is_training(),
                          identities(Registry::parameters(*module)),
                          identities(module->named_buffers(/*recurse=*/false))});
    }
  }
}

std::optional<std::string> ModuleGuard::difference() const {
  for (const One& one : modules_) {
    if (one.module->is_training() != one.training) {
      return base::str(label(one.path), " is in ", one.training ? "eval" : "training",
                       " mode, compiled in ", one.training ? "training" : "eval", " mode");
    }
    if (auto text =
            replaced("parameter", one.path, Registry::parameters(*one.module), one.parameters)) {
      return text;
    }
    if (one.buffers.empty()) continue;
    if (auto text = replaced("buffer", one.path, one.module->named_buffers(/*recurse=*/false),
                             one.buffers)) {
      return text;
    }
  }
  return std::nullopt;
}

std::vector<std::string> ModuleGuard::texts() const {
  std::vector<std::string> texts;
  for (const One& one : modules_) {
    texts.push_back(base::str(label(one.path), ": ", one.training ? "training" : "eval", " mode, ",
                              one.parameters.size(), " parameters and ", one.buffers.size(),
                              " buffers are the same tensors"));
  }
  return texts;
}

}  // namespace tandem::runtime
