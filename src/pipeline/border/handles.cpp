/// What the templates of compile.h, compiled.h and flatten.h need from the library: texts and
/// printing.
#include "base/build_info.h"
#include "base/error.h"
#include "tandem/compile.h"
#include "tandem/compiled.h"
#include "tandem/flatten.h"

#include <torch/nn/module.h>

#include <ostream>
#include <string>
#include <string_view>

namespace tandem {

std::string version() { return base::kVersion; }

Compiled<std::vector<at::Tensor>(std::vector<at::Tensor>)> compile_boxed(Boxed fn, Options options,
                                                                         detail::CallSite site) {
  return compile(std::move(fn), std::move(options), site);
}

}  // namespace tandem

namespace tandem::detail {

void Reader::malformed() const {
  base::throw_internal("call", "flat values match their type", __FILE__, __LINE__,
                       base::str("a flat list does not have the structure of its type: read ",
                                 next_tensor_, " of ", flat_.tensors.size(), " tensors and ",
                                 next_constant_, " of ", flat_.constants.size(), " constants"));
}

std::vector<std::string> FlatFunction::tensor_names(const Flat& arguments) const {
  if (names_) return names_(arguments);
  std::vector<std::string> names;
  for (size_t i = 0; i < arguments.tensors.size(); ++i) names.push_back(base::str("argument ", i));
  return names;
}

std::string element_name(size_t index) { return base::str("[", index, "]"); }

std::string element_name(const std::string& key) { return "[\"" + key + "\"]"; }

std::string argument_name(size_t index) { return base::str("argument ", index); }

namespace {

/// `Linear` of `torch::nn::LinearImpl`: the name of the holder, which is what programs write.
std::string class_of(const torch::nn::Module& module) {
  std::string name = module.name();
  // A template keeps what is in its brackets.
  const size_t colons = name.rfind("::", name.find('<'));
  if (colons != std::string::npos) name.erase(0, colons + 2);
  constexpr std::string_view kImpl = "Impl";
  if (name.size() > kImpl.size() && name.ends_with(kImpl)) name.resize(name.size() - kImpl.size());
  return name;
}

}  // namespace

Options with_name(Options options, CallSite site) {
  if (!options.name.empty()) return options;
  for (const auto& module : options.modules) {
    if (module == nullptr) continue;  // refused later, in words
    options.name += (options.name.empty() ? "" : "+") + class_of(*module);
  }
  if (!options.name.empty()) return options;
  const std::string_view file(site.file);
  options.name = base::str(file.substr(file.rfind('/') + 1), ":", site.line);
  return options;
}

void throw_empty_handle() {
  throw UserError(
      "call",
      "this Compiled handle is empty\n  remedy: assign it the result of tandem::compile(...)");
}

void throw_empty_function(const char* kind) {
  throw UserError("compile", base::str("there is nothing to compile: expected a function, got ",
                                       kind, "\n  remedy: assign a function to it first"));
}

void require_module(const torch::nn::Module* module, size_t index, size_t count) {
  if (module != nullptr) return;
  const std::string which = count == 1 ? "the module" : base::str("module ", index, " of ", count);
  throw UserError("compile", base::str(which, " is empty: expected a module, got a null pointer",
                                       "\n  remedy: construct it before compiling"));
}

std::ostream& print_handle(std::ostream& out, const CompiledFunction* function) {
  if (function == nullptr) return out << "Compiled(empty)";
  const Stats stats = function->stats();
  return out << "Compiled(" << stats.entries << (stats.entries == 1 ? " entry, " : " entries, ")
             << stats.calls << (stats.calls == 1 ? " call)" : " calls)");
}

}  // namespace tandem::detail
