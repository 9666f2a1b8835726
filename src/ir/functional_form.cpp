#include "ir/functional_form.h"

#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>
#include <ATen/ops/clone.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

namespace tandem::ir {
namespace {

constexpr const char* kNamespace = "tandem_functional";
constexpr std::string_view kPrefix = "tandem_functional::";

struct Forms {
  std::shared_mutex mutex;
  std::unordered_map<c10::OperatorName, std::unique_ptr<const FunctionalForm>> by_original;
  std::unordered_map<c10::OperatorName, const FunctionalForm*> by_form;
  std::vector<std::unique_ptr<torch::Library>> libraries;  // as long as the process lives
};

Forms& forms() {
  static auto* const kept = new Forms;
  return *kept;
}

bool is_tensor_or_list(const c10::Type& type) {
  if (const auto* list = type.castRaw<c10::ListType>())
    return list->getElementType()->kind() == c10::TypeKind::TensorType;
  if (const auto* optional = type.castRaw<c10::OptionalType>())
    return optional->getElementType()->kind() == c10::TypeKind::TensorType;
  return type.kind() == c10::TypeKind::TensorType;
}

/// Of an optional tensor the form returns a tensor, undefined if there was none.
c10::TypePtr type_of_written(const c10::TypePtr& type) {
  const auto* optional = type->castRaw<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

bool shares_set(const c10::AliasInfo& a, const c10::AliasInfo& b) {
  return std::ranges::any_of(a.beforeSets(),
                             [&](c10::Symbol set) { return b.beforeSets().contains(set); });
}

/// What the form needs to know of a schema; nullopt if it cannot have one.
struct Plan {
  std::vector<size_t> written;
  std::vector<int64_t> returned;
};
std::optional<Plan> plan_of(const c10::FunctionSchema& schema) {
  Plan plan;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!writes(schema.arguments()[i])) continue;
    if (!is_tensor_or_list(*schema.arguments()[i].type())) return std::nullopt;
    plan.written.push_back(i);
  }
  if (plan.written.empty()) return std::nullopt;
  for (const c10::Argument& result : schema.returns()) {
    if (!result.alias_info()) {
      plan.returned.push_back(-1);
      continue;
    }
    const auto of = std::ranges::find_if(plan.written, [&](size_t i) {
      return shares_set(*schema.arguments()[i].alias_info(), *result.alias_info());
    });
    if (!result.alias_info()->isWrite() || of == plan.written.end()) return std::nullopt;
    plan.returned.push_back(static_cast<int64_t>(*of));
  }
  return plan;
}

c10::OperatorName form_name(const c10::OperatorName& original) {
  std::string name = original.name;
  if (size_t colons = name.find("::"); colons != std::string::npos) name.replace(colons, 2, "__");
  return {std::string(kPrefix) + name, original.overload_name};
}

c10::FunctionSchema form_schema(const c10::FunctionSchema& schema, const c10::OperatorName& name,
                                const Plan& plan) {
  std::vector<c10::Argument> arguments, returns;
  for (const c10::Argument& argument : schema.arguments()) {
    arguments.emplace_back(argument.name(), argument.type(), argument.real_type(), argument.N(),
                           argument.default_value(), argument.kwarg_only());
  }
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const c10::Argument& result = schema.returns()[i];
    if (plan.returned[i] < 0) returns.emplace_back("", result.type(), result.real_type());
  }
  for (size_t i : plan.written)
    returns.emplace_back("", type_of_written(schema.arguments()[i].type()));
  return {name.name, name.overload_name, std::move(arguments), std::move(returns)};
}

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.defined() ? at::clone(tensor) : tensor;
}

c10::IValue copy_of(const c10::IValue& value) {
  if (value.isTensorList()) {
    c10::List<at::Tensor> copies;
    for (const at::Tensor& tensor : value.toTensorVector()) copies.push_back(copy_of(tensor));
    return copies;
  }
  return value.isTensor() ? c10::IValue(copy_of(value.toTensor())) : value;
}

/// A written tensor must keep its metadata: whoever reads the graph relies on it.
void check_same_sizes(const FunctionalForm& form, const c10::IValue& before,
                      const c10::IValue& after) {
  const auto check = [&](const at::Tensor& a, const at::Tensor& b) {
    TORCH_CHECK(!a.defined() || a.sizes() == b.sizes(), form.original.operator_name(),
                " changes the sizes of an argument from ", a.sizes(), " to ", b.sizes(),
                ": a compiled function cannot follow that");
  };
  if (before.isTensor()) {
    check(before.toTensor(), after.toTensor());
  } else if (before.isTensorList()) {
    const std::vector<at::Tensor> a = before.toTensorVector(), b = after.toTensorVector();
    for (size_t i = 0; i < a.size(); ++i) check(a[i], b[i]);
  }
}

/// The op on copies of what it writes; `call` may leave it out where its results are not needed.
void run(const FunctionalForm& form, torch::jit::Stack& stack, bool call) {
  const size_t count = form.original.schema().arguments().size();
  torch::jit::Stack arguments = torch::jit::pop(stack, count);
  std::vector<c10::IValue> before, copies;
  for (size_t i : form.written) {
    before.push_back(arguments[i]);
    arguments[i] = copy_of(arguments[i]);
    copies.push_back(arguments[i]);
  }
  if (call) {
    form.original.callBoxed(arguments);
    for (size_t i = 0; i < form.returned.size(); ++i) {
      if (form.returned[i] < 0) stack.push_back(std::move(arguments[i]));
    }
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    check_same_sizes(form, before[i], copies[i]);
    stack.push_back(copies[i].isNone() ? c10::IValue(at::Tensor()) : std::move(copies[i]));
  }
}

void run_form(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run(*find_form(op), *stack, /*call=*/true);
}

/// What is written keeps its metadata, so the op is asked only about other results.
void run_form_on_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const FunctionalForm& form = *find_form(op);
  run(form, *stack, std::ranges::find(form.returned, -1) != form.returned.end());
}

std::vector<at::Tag> tags_of(const c10::OperatorHandle& op) {
  std::vector<at::Tag> tags;
  for (at::Tag tag : op.getTags()) {
    if (tag != at::Tag::inplace_view) tags.push_back(tag);
  }
  return tags;
}

c10::OperatorHandle define(Forms& known, const c10::OperatorHandle& op,
                           const c10::OperatorName& name, const Plan& plan) {
  if (known.libraries.empty()) {
    known.libraries.push_back(std::make_unique<torch::Library>(torch::Library::FRAGMENT, kNamespace,
                                                               std::nullopt, __FILE__, __LINE__));
  }
  torch::Library& library = *known.libraries.front();
  const std::vector<at::Tag> tags = tags_of(op);
  library.def(form_schema(op.schema(), name, plan), tags);
  std::string key = name.name.substr(kPrefix.size());
  if (!name.overload_name.empty()) key += "." + name.overload_name;
  library.impl(key.c_str(), torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                            torch::CppFunction::makeFromBoxedFunction<run_form>()));
  const bool only_writes = std::ranges::find(plan.returned, -1) == plan.returned.end();
  if (only_writes || op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) {
    library.impl(key.c_str(),
                 torch::dispatch(c10::DispatchKey::Meta,
                                 torch::CppFunction::makeFromBoxedFunction<run_form_on_meta>()));
  }
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(),
                                                        name.overload_name.c_str());
}

}  // namespace

const FunctionalForm* functional_form(const c10::OperatorHandle& op) {
  Forms& known = forms();
  const c10::OperatorName& original = op.operator_name();
  {
    std::shared_lock lock(known.mutex);
    if (auto found = known.by_original.find(original); found != known.by_original.end())
      return found->second.get();
  }
  const std::optional<Plan> plan = plan_of(op.schema());
  if (!plan) return nullptr;
  std::unique_lock lock(known.mutex);
  std::unique_ptr<const FunctionalForm>& slot = known.by_original[original];
  if (!slot) {
    const c10::OperatorName name = form_name(original);
    slot = std::make_unique<const FunctionalForm>(
        FunctionalForm{define(known, op, name, *plan), op, plan->written, plan->returned});
    known.by_form.emplace(name, slot.get());
  }
  return slot.get();
}

const FunctionalForm* find_form(const c10::OperatorHandle& form) {
  if (!form.operator_name().name.starts_with(kPrefix)) return nullptr;
  Forms& known = forms();
  std::shared_lock lock(known.mutex);
  const auto found = known.by_form.find(form.operator_name());
  return found == known.by_form.end() ? nullptr : found->second;
}

std::optional<c10::OperatorHandle> form_called(const c10::OperatorName& name) {
  if (!name.name.starts_with(kPrefix)) return std::nullopt;
  const std::string joined = name.name.substr(kPrefix.size());
  for (size_t at = joined.find("__"); at != std::string::npos; at = joined.find("__", at + 1)) {
    const c10::OperatorName original{joined.substr(0, at) + "::" + joined.substr(at + 2),
                                     name.overload_name};
    const auto op = c10::Dispatcher::singleton().findSchema(original);
    if (!op) continue;
    if (const FunctionalForm* form = functional_form(*op)) return form->form;
  }
  return std::nullopt;
}

}  // namespace tandem::ir
