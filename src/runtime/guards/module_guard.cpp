#include "runtime/guards/module_guard.h"

#include "base/error.h"
#include "libtorch/private_members.h"

#include <torch/nn/module.h>

#include <algorithm>

namespace tandem::libtorch {
namespace {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using Children = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

// The public accessors copy the registries, names and all.
struct Parameters {
  using Member = Tensors torch::nn::Module::*;
  friend constexpr Member member_of(Parameters);
};
struct Buffers {
  using Member = Tensors torch::nn::Module::*;
  friend constexpr Member member_of(Buffers);
};
struct SubModules {
  using Member = Children torch::nn::Module::*;
  friend constexpr Member member_of(SubModules);
};
template struct Expose<Parameters, &torch::nn::Module::parameters_>;
template struct Expose<Buffers, &torch::nn::Module::buffers_>;
template struct Expose<SubModules, &torch::nn::Module::children_>;

}  // namespace
}  // namespace tandem::libtorch

namespace tandem::runtime {
namespace {

using libtorch::Buffers;
using libtorch::Parameters;
using libtorch::SubModules;

template <class Registry>
const auto& registered(const torch::nn::Module& module) {
  return module.*member_of(Registry{});
}

using Watched = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

Watched watch(const at::Tensor& tensor) { return Watched(tensor.getIntrusivePtr()); }
const torch::nn::Module* watch(const std::shared_ptr<torch::nn::Module>& m) { return m.get(); }

bool is_same(const at::Tensor& tensor, const Watched& then) {
  return tensor.unsafeGetTensorImpl() == then._unsafe_get_target();
}
bool is_same(const std::shared_ptr<torch::nn::Module>& module, const torch::nn::Module* then) {
  return module.get() == then;
}

template <class Dict>
auto identities(const Dict& objects) {
  std::vector<decltype(watch(objects.begin()->value()))> result;
  for (const auto& item : objects) result.push_back(watch(item.value()));
  return result;
}

template <class Dict, class Identity>
bool same_objects(const Dict& now, const std::vector<Identity>& then) {
  return now.size() == then.size() && std::equal(now.begin(), now.end(), then.begin(),
                                                 [](const auto& item, const Identity& expected) {
                                                   return is_same(item.value(), expected);
                                                 });
}

struct Owner {
  std::shared_ptr<torch::nn::Module> module;
  void operator()(const torch::nn::Module*) const {}
};

bool is_only_ours(const std::shared_ptr<torch::nn::Module>& owner) {
  return owner.use_count() == 1;
}

std::string label(const std::string& path) {
  return path.empty() ? "the module" : "module \"" + path + "\"";
}

template <class Dict, class Identity>
std::optional<std::string> replaced(const char* kind, const std::string& path, const Dict& now,
                                    const std::vector<Identity>& then) {
  if (now.size() != then.size()) {
    return base::str(label(path), " has ", now.size(), " ", kind, "s, compiled with ", then.size());
  }
  size_t i = 0;
  for (const auto& item : now) {
    if (!is_same(item.value(), then[i++])) {
      return base::str(kind, " \"", path.empty() ? "" : path + ".", item.key(),
                       "\" is another than at the trace");
    }
  }
  return std::nullopt;
}

}  // namespace

std::shared_ptr<torch::nn::Module> hold_for_tandem(std::shared_ptr<torch::nn::Module> module) {
  if (module.use_count() == 0) return module;
  torch::nn::Module* const plain = module.get();
  return {plain, Owner{std::move(module)}};
}

void ModuleGuard::add(std::shared_ptr<torch::nn::Module> module, std::string path) {
  const auto* held = std::get_deleter<Owner>(module);
  const std::shared_ptr<torch::nn::Module>* owner =
      held != nullptr && !is_only_ours(held->module) ? &held->module : nullptr;
  const torch::nn::Module& plain = *module;
  modules_.push_back({std::move(module), std::move(path), owner, plain.is_training(),
                      identities(registered<Parameters>(plain)),
                      identities(registered<Buffers>(plain)),
                      identities(registered<SubModules>(plain))});
}

ModuleGuard::ModuleGuard(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  for (size_t i = 0; i < modules.size(); ++i) {
    // Several modules may use one path; their position keeps the names apart.
    const std::string root = modules.size() > 1 ? std::to_string(i) : "";
    add(modules[i], root);
    // Itself not: a module on the stack has no shared_ptr.
    for (const auto& item : modules[i]->named_modules(root, /*include_self=*/false))
      add(item.value(), item.key());
  }
}

ModuleGuard::ModuleGuard(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                         const std::vector<ModuleRow>& rows)
    : ModuleGuard(modules) {
  TANDEM_REQUIRE(modules_.size() == rows.size(), "bind", "the entry was compiled with ",
                 rows.size(), " modules, sub-modules included, got ", modules_.size(),
                 "\n  remedy: pass the modules that Options::modules named, in that order");
  const std::vector<ModuleRow> found = this->rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    TANDEM_REQUIRE(found[i].path == rows[i].path && found[i].parameters == rows[i].parameters &&
                       found[i].buffers == rows[i].buffers && found[i].children == rows[i].children,
                   "bind", label(found[i].path), " has ", found[i].parameters, " parameters, ",
                   found[i].buffers, " buffers and ", found[i].children,
                   " sub-modules; the entry was compiled with ", label(rows[i].path), " of ",
                   rows[i].parameters, ", ", rows[i].buffers, " and ", rows[i].children,
                   "\n  remedy: pass modules that are built as those were");
    modules_[i].training = rows[i].training;
  }
}

std::vector<ModuleRow> ModuleGuard::rows() const {
  std::vector<ModuleRow> rows;
  for (const One& one : modules_) {
    rows.push_back({.path = one.path,
                    .training = one.training,
                    .parameters = static_cast<int64_t>(one.parameters.size()),
                    .buffers = static_cast<int64_t>(one.buffers.size()),
                    .children = static_cast<int64_t>(one.children.size())});
  }
  return rows;
}

bool ModuleGuard::holds() const {
  for (const One& one : modules_) {
    if (one.owner != nullptr && is_only_ours(*one.owner)) return false;
    if (one.module->is_training() != one.training) return false;
    if (!same_objects(registered<Parameters>(*one.module), one.parameters)) return false;
    if (!same_objects(registered<Buffers>(*one.module), one.buffers)) return false;
    if (!same_objects(registered<SubModules>(*one.module), one.children)) return false;
  }
  return true;
}

bool ModuleGuard::is_stale() const {
  return std::ranges::any_of(
      modules_, [](const One& one) { return one.owner != nullptr && is_only_ours(*one.owner); });
}

std::optional<std::string> ModuleGuard::difference() const {
  for (const One& one : modules_) {
    if (one.owner != nullptr && is_only_ours(*one.owner)) {
      return base::str(label(one.path),
                       " that compile() named is no longer held by the program, so the function "
                       "may use another; name that one: compile(net, fn)");
    }
    if (one.module->is_training() != one.training) {
      return base::str(label(one.path), " is in ", one.training ? "eval" : "training",
                       " mode, compiled in ", one.training ? "training" : "eval", " mode");
    }
    if (auto text =
            replaced("parameter", one.path, registered<Parameters>(*one.module), one.parameters)) {
      return text;
    }
    if (auto text = replaced("buffer", one.path, registered<Buffers>(*one.module), one.buffers)) {
      return text;
    }
    if (auto text =
            replaced("sub-module", one.path, registered<SubModules>(*one.module), one.children)) {
      return text;
    }
  }
  return std::nullopt;
}

bool ModuleGuard::alike(const ModuleGuard& other) const {
  const auto same = [](const One& a, const One& b) {
    const auto same_targets = [](const auto& x, const auto& y) {
      return std::ranges::equal(x, y, [](const auto& one, const auto& two) {
        return one._unsafe_get_target() == two._unsafe_get_target();
      });
    };
    return a.module == b.module && a.training == b.training && a.children == b.children &&
           same_targets(a.parameters, b.parameters) && same_targets(a.buffers, b.buffers);
  };
  return std::ranges::equal(modules_, other.modules_, same);
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
