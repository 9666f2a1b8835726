#include "ops/effect_marks.h"

#include "base/error.h"
#include "ir/text/op_names.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <atomic>
#include <shared_mutex>
#include <unordered_set>
#include <vector>

namespace tandem::ops {
namespace {

struct Marks {
  std::shared_mutex mutex;
  std::unordered_set<c10::OperatorName> names;
  std::atomic<uint64_t> count{0};
};

Marks& marks() {
  static auto* const kept = new Marks;
  return *kept;
}

/// The ops that `name` means: one overload if it says which, otherwise all.
std::vector<c10::OperatorHandle> overloads(const std::string& name) {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorHandle> found;
  for (const c10::OperatorName& known : dispatcher.getAllOpNames()) {
    if (known.name != name && known.name + "." + known.overload_name != name) continue;
    // A name may be there without a schema: kernels came before the definition.
    if (auto op = dispatcher.findSchema(known)) found.push_back(*op);
  }
  return found;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

/// Ops of libtorch that a trace never records as they are: made of others, or writing arguments.
bool is_rewritten(const c10::OperatorHandle& op) {
  if (!op.operator_name().name.starts_with("aten::")) return false;
  return op.schema().is_mutable() ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

std::string in_graph_text(std::string name) {
  if (size_t colons = name.find("::"); colons != std::string::npos) name.replace(colons, 2, ".");
  return name;
}

}  // namespace

void mark_effectful(const std::string& name) {
  std::vector<c10::OperatorHandle> ops = overloads(name);
  if (ops.empty()) {
    const std::string near = ir::near_ops(in_graph_text(name));
    TANDEM_REQUIRE(
        false, "options", "mark_effectful: no op is called \"", name, "\"",
        near.empty() ? "" : "\n  near:   " + near,
        "\n  remedy: load the library that registers the op first, and write its name as there: "
        "\"mylib::log\", or \"mylib::log.overload\" for one overload");
  }
  for (const c10::OperatorHandle& op : ops) {
    TANDEM_REQUIRE(!returns_view(op.schema()), "options", "mark_effectful: ", ir::op_text(op),
                   " returns a view of its argument, and views are made again where they are "
                   "needed\n  schema: ",
                   op.schema(), "\n  remedy: give the effect to an op that returns new tensors");
  }
  std::erase_if(ops, is_rewritten);
  TANDEM_REQUIRE(!ops.empty(), "options", "mark_effectful: ", name,
                 " is an op of libtorch that is recorded as other ops",
                 "\n  remedy: put the effect into an op of your own");
  Marks& known = marks();
  std::unique_lock lock(known.mutex);
  for (const c10::OperatorHandle& op : ops) {
    if (known.names.insert(op.operator_name()).second)
      known.count.fetch_add(1, std::memory_order_release);
  }
}

bool is_marked_effectful(const c10::OperatorName& name) {
  Marks& known = marks();
  if (known.count.load(std::memory_order_acquire) == 0) return false;
  std::shared_lock lock(known.mutex);
  return known.names.contains(name);
}

std::vector<std::string> marked_effectful() {
  Marks& known = marks();
  std::vector<std::string> names;
  {
    const std::shared_lock lock(known.mutex);
    for (const c10::OperatorName& name : known.names)
      names.push_back(name.overload_name.empty() ? name.name
                                                 : name.name + "." + name.overload_name);
  }
  std::ranges::sort(names);
  return names;
}

uint64_t effect_marks() { return marks().count.load(std::memory_order_acquire); }

}  // namespace tandem::ops
