/// What the templates of compile.h, compiled.h and flatten.h need from the library: texts and
/// printing.
#include "base/build_info.h"
#include "base/error.h"
#include "tandem/compile.h"
#include "tandem/compiled.h"
#include "tandem/flatten.h"

#include <ostream>
#include <string>

namespace tandem {

std::string version() { return base::kVersion; }

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
