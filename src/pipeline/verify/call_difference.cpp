#include "pipeline/verify/call_difference.h"

#include "base/error.h"
#include "tandem/ir/type.h"

#include <algorithm>
#include <limits>
#include <string>

namespace tandem::pipeline {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();
constexpr const char* kOrReset = "; reset() compiles anew";

std::string type_text(const at::Tensor& tensor) {
  ir::TensorType type;
  type.dtype = tensor.scalar_type();
  type.device = tensor.device();
  type.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  type.strides.assign(tensor.strides().begin(), tensor.strides().end());
  return ir::to_string(type);
}

std::string counted(size_t calls) { return base::str(calls, calls == 1 ? " op" : " ops"); }

/// `p` of `p=0.5`
std::string name_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }
std::string value_of(const std::string& setting) { return setting.substr(setting.find('=') + 1); }

bool equal(const runtime::CallRow& compiled, const tracing::UserCall& now) {
  return compiled.op == now.op_name() && compiled.settings == now.setting_texts();
}

size_t first_other_call(const Calls& calls) {
  const size_t both = std::min(calls.compiled.size(), calls.now.size());
  for (size_t i = 0; i < both; ++i) {
    if (!equal(calls.compiled[i], calls.now[i])) return i;
  }
  return calls.compiled.size() == calls.now.size() ? kNowhere : both;
}

size_t first_other_tensor(const Calls& calls) {
  const size_t both = std::min(calls.lifted.size(), calls.lifted_now.size());
  for (size_t i = 0; i < both; ++i) {
    if (!are_one(calls.lifted[i], calls.lifted_now[i])) return i;
  }
  return calls.lifted.size() == calls.lifted_now.size() ? kNowhere : both;
}

/// Where a tensor from outside is met first.
struct Place {
  size_t call = kNowhere;
  int32_t argument = 0;
};

Place place_of(const at::Tensor& tensor, const std::vector<tracing::UserCall>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    for (const auto& [argument, read] : calls[i].outside) {
      if (read == tensor.unsafeGetTensorImpl()) return {i, argument};
    }
  }
  return {};
}

/// Which setting says whether a module is in training mode; -1: none does.
ptrdiff_t mode_at(const std::vector<std::string>& settings) {
  const auto it = std::ranges::find_if(
      settings, [](const std::string& setting) { return tracing::is_mode(name_of(setting)); });
  return it == settings.end() ? -1 : it - settings.begin();
}

Difference other_mode(const tracing::UserCall& call, const std::string& then,
                      const std::string& now) {
  return {.what = base::str(call.op_name(), " ", then, ", now ", value_of(now)),
          .line = call.line,
          .cause = base::str("a module was switched by ",
                             value_of(now) == "true" ? "train()" : "eval()"),
          .remedy = base::str("name it: compile(net, fn), which guards its mode", kOrReset)};
}

/// Of the calls that tell of a mode, in their order: what else a mode changes (a module in eval
/// mode counts no batches) comes of it.
std::optional<Difference> mode_difference(const Calls& calls) {
  size_t i = 0;
  for (const tracing::UserCall& call : calls.now) {
    const std::vector<std::string> settings = call.setting_texts();
    const ptrdiff_t mode = mode_at(settings);
    if (mode < 0) continue;
    while (i < calls.compiled.size() && mode_at(calls.compiled[i].settings) < 0) ++i;
    if (i == calls.compiled.size() || calls.compiled[i].op != call.op_name()) return std::nullopt;
    const std::vector<std::string>& compiled = calls.compiled[i++].settings;
    const std::string& then = compiled[static_cast<size_t>(mode_at(compiled))];
    const std::string& now = settings[static_cast<size_t>(mode)];
    if (then != now) return other_mode(call, then, now);
  }
  return std::nullopt;
}

Difference other_setting(const tracing::UserCall& call, const std::string& then,
                         const std::string& now) {
  const bool is_length = name_of(now).ends_with(".size()");
  return {.what = base::str(call.op_name(), " ", then, ", now ", value_of(now)),
          .line = call.line,
          .cause = is_length ? "a list that host code keeps has another length"
                             : "what host code gives it has changed: a captured number, an option "
                               "of a module",
          .remedy = base::str("pass it as an argument, or guard it (Options::guard_on)", kOrReset)};
}

/// `mul(other=2)`
std::string call_text(const std::string& op, const std::vector<std::string>& settings) {
  std::string text = op + "(";
  for (const std::string& setting : settings) text += (text.back() == '(' ? "" : ", ") + setting;
  return text + ")";
}

Difference other_call(const Calls& calls, size_t i) {
  Difference difference{
      .cause =
          "host code decides something else: by a flag, a counter, a random number, a state "
          "that was not there before",
      .remedy = base::str("pass what it depends on as an argument, or guard it (Options::guard_on)",
                          kOrReset)};
  if (i == calls.compiled.size()) {
    difference.what = base::str("it calls ", calls.now[i].op_name(), " after what was compiled (",
                                counted(i), ")");
    difference.line = calls.now[i].line;
  } else if (i == calls.now.size()) {
    difference.what = base::str("it ends after ", counted(i), ", before ", calls.compiled[i].op);
    if (i > 0) difference.line = calls.now[i - 1].line;
  } else {
    const runtime::CallRow& then = calls.compiled[i];
    const tracing::UserCall& now = calls.now[i];
    // Overloads have one name; what tells them apart is in what they are told.
    difference.what = then.op != now.op_name()
                          ? base::str("it called ", then.op, ", now ", now.op_name())
                          : base::str("it called ", call_text(then.op, then.settings), ", now ",
                                      call_text(now.op_name(), now.setting_texts()));
    difference.line = now.line;
  }
  return difference;
}

Difference call_difference_at(const Calls& calls, size_t i) {
  if (i >= calls.compiled.size() || i >= calls.now.size()) return other_call(calls, i);
  const runtime::CallRow& then = calls.compiled[i];
  const tracing::UserCall& call = calls.now[i];
  const std::vector<std::string> settings = call.setting_texts();
  // An argument that was no tensor, or is none now, has no row.
  if (then.op != call.op_name() || then.settings.size() != settings.size())
    return other_call(calls, i);
  size_t at = 0;
  while (then.settings[at] == settings[at]) ++at;
  if (name_of(then.settings[at]) != name_of(settings[at])) return other_call(calls, i);
  return other_setting(call, then.settings[at], settings[at]);
}

Difference other_tensor(const Calls& calls, size_t i, const Place& place) {
  const at::Tensor& now = calls.lifted_now[i];
  const bool is_new = i >= calls.lifted.size();
  Difference difference{
      .cause = is_new ? "host code closes over a tensor that it did not use before"
                      : "a tensor variable or a member of a module was assigned again, or a batch "
                        "is captured",
      .remedy = base::str("pass the tensor as an argument, write it in place (copy_), or name its "
                          "variable (Options::closes_over)",
                          kOrReset)};
  std::string reader = "the function";
  std::string as;
  if (place.call != kNowhere) {
    const tracing::UserCall& call = calls.now[place.call];
    reader = call.op_name();
    as = " as " + call.op.schema().arguments()[static_cast<size_t>(place.argument)].name();
    difference.line = call.line;
  }
  const std::string type_now = type_text(now);
  if (is_new) {
    difference.what = base::str(reader, " reads one more tensor", as, " (", type_now, ")");
    return difference;
  }
  const std::string type = type_text(calls.lifted[i]);
  const std::string types = "(" + type + (type == type_now ? "" : ", now " + type_now) + ")";
  if (const std::string& name = calls.lifted_names[i]; name.empty()) {
    difference.what = base::str(reader, " reads another tensor", as, " ", types);
  } else {
    difference.what = base::str(reader, " reads another tensor in place of ", name, " ", types);
  }
  return difference;
}

}  // namespace

bool are_one(const at::Tensor& compiled, const at::Tensor& now) {
  if (compiled.is_same(now)) return true;
  return !compiled.requires_grad() && !now.requires_grad() && compiled.dtype() == now.dtype() &&
         compiled.sizes() == now.sizes() && compiled.strides() == now.strides() &&
         compiled.storage_offset() == now.storage_offset() && compiled.has_storage() &&
         now.has_storage() && compiled.storage().is_alias_of(now.storage());
}

std::optional<Difference> call_difference(const Calls& calls) {
  if (auto difference = mode_difference(calls)) return difference;
  const size_t call = first_other_call(calls);
  const size_t tensor = first_other_tensor(calls);
  if (tensor < calls.lifted_now.size()) {
    const Place place = place_of(calls.lifted_now[tensor], calls.now);
    // Of a list that has grown the length says more than what is new in it.
    const bool is_new = tensor >= calls.lifted.size();
    if (call == kNowhere || place.call < call || (place.call == call && !is_new))
      return other_tensor(calls, tensor, place);
  }
  if (call != kNowhere) return call_difference_at(calls, call);
  if (tensor == kNowhere) return std::nullopt;
  return Difference{.what = base::str("a closed-over tensor is not read any more (",
                                      type_text(calls.lifted[tensor]), ")"),
                    .cause = "host code uses another tensor in its place, or none",
                    .remedy = base::str("pass the tensor as an argument, or guard what decides "
                                        "(Options::guard_on)",
                                        kOrReset)};
}

}  // namespace tandem::pipeline
