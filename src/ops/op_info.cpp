#include "ir/functional_form.h"
#include "ops/effect_marks.h"
#include "ops/op_row.h"
#include "ops/op_table.h"
#include "shapes/stable_hash.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

namespace tandem::ops {
namespace {

OpInfo make_info(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const OpRow* row = find_row(op);
  const Fact facts = row ? row->facts : Fact::None;
  OpInfo info;
  info.name_hash = shapes::StableHash()
                       .add(op.operator_name().name)
                       .add(op.operator_name().overload_name)
                       .value();

  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() && argument.alias_info()->isWrite()) info.writes_arguments = true;
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() && !result.alias_info()->isWrite()) info.is_view = true;
  }
  info.is_view = info.is_view || (facts & Fact::HiddenAlias);
  info.hidden_writes = facts & Fact::HiddenWrite;
  // An op without results is called for what else it does.
  const ir::FunctionalForm* form = ir::find_form(op);
  info.marked = is_marked_effectful(form ? form->original.operator_name() : op.operator_name());
  info.has_effect = info.marked || (facts & Fact::Effect) || keeps_its_place(op) ||
                    (schema.returns().empty() && !info.writes_arguments);
  info.random = op.hasTag(at::Tag::nondeterministic_seeded);
  info.data_dependent_shape =
      op.hasTag(at::Tag::dynamic_output_shape) && !(facts & Fact::StaticSize);
  info.reads_data = op.hasTag(at::Tag::data_dependent_output) || (facts & Fact::ReadsData);
  info.raises = facts & Fact::Raises;
  info.raises_on_integers = facts & Fact::RaisesOnIntegers;
  info.raises_if = schema.argumentIndexWithName("check_errors").value_or(-1);
  if (info.is_view || !info.mergeable()) return info;
  if (row) info.work = row->work;
  if (info.work == Work::Other && op.hasTag(at::Tag::pointwise) && !(facts & Fact::NotPointwise))
    info.work = Work::Pointwise;
  return info;
}

/// Values by overload, made on first use. Readers share a lock; addresses stay.
template <class T>
class PerOverload {
 public:
  template <class Make>
  const T& get(const c10::OperatorHandle& op, Make&& make) {
    const void* key = &op.schema();
    const uint64_t marks = effect_marks();
    {
      std::shared_lock lock(mutex_);
      if (auto found = values_.find(key); found != values_.end() && found->second->is_of(op, marks))
        return found->second->value;
    }
    auto made = std::make_unique<Named>(Named{op.operator_name(), marks, make(op)});
    std::unique_lock lock(mutex_);
    std::unique_ptr<Named>& slot = values_[key];
    if (!slot || !slot->is_of(op, marks)) {
      // The schema of an op that was unregistered may have left its address to another one, and
      // ops are marked as effectful. What was handed out before stays valid.
      if (slot) retired_.push_back(std::move(slot));
      slot = std::move(made);
    }
    return slot->value;
  }

 private:
  struct Named {
    c10::OperatorName name;
    uint64_t marks;
    T value;
    bool is_of(const c10::OperatorHandle& op, uint64_t now) const {
      return marks == now && name == op.operator_name();
    }
  };
  std::shared_mutex mutex_;
  std::unordered_map<const void*, std::unique_ptr<Named>> values_;
  std::vector<std::unique_ptr<Named>> retired_;
};

bool same_arguments(const c10::FunctionSchema& a, const c10::FunctionSchema& b) {
  if (a.arguments().size() != b.arguments().size()) return false;
  for (size_t i = 0; i < a.arguments().size(); ++i) {
    if (a.arguments()[i].name() != b.arguments()[i].name() ||
        *a.arguments()[i].type() != *b.arguments()[i].type()) {
      return false;
    }
  }
  return true;
}

/// Writes argument 0, nothing else, and returns it.
bool writes_self_only(const c10::FunctionSchema& schema) {
  if (schema.arguments().empty() || schema.returns().size() != 1) return false;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if ((alias && alias->isWrite()) != (i == 0)) return false;
  }
  const c10::AliasInfo* result = schema.returns()[0].alias_info();
  return result && result->isWrite();
}

std::optional<c10::OperatorHandle> find_inplace(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  // `squeeze_` and its like change what a tensor looks like, not what it holds.
  if (info(op).writes_arguments || info(op).is_view) return std::nullopt;
  auto found = c10::Dispatcher::singleton().findSchema({name.name + "_", name.overload_name});
  if (!found || !same_arguments(op.schema(), found->schema()) ||
      !writes_self_only(found->schema())) {
    return std::nullopt;
  }
  return found;
}

}  // namespace

const OpRow* find_row(const c10::OperatorHandle& op) {
  static const auto* const rows = [] {
    auto* map = new std::unordered_map<std::string_view, const OpRow*>;
    for (const OpRow& row : op_rows()) map->emplace(row.op, &row);
    return map;
  }();
  constexpr std::string_view kNamespace = "aten::";
  const c10::OperatorName& name = op.operator_name();
  if (!name.name.starts_with(kNamespace)) return nullptr;
  std::string key = name.name.substr(kNamespace.size());
  if (!name.overload_name.empty()) key += "." + name.overload_name;
  auto found = rows->find(key);
  return found == rows->end() ? nullptr : found->second;
}

bool keeps_its_place(const c10::OperatorHandle& op) {
  constexpr std::string_view kOps[] = {"tandem::itself", "tandem::read_in_backward",
                                       "tandem::write_in_backward"};
  return std::ranges::find(kOps, op.operator_name().name) != std::end(kOps);
}

const OpInfo& info(const c10::OperatorHandle& op) {
  static auto* const infos = new PerOverload<OpInfo>;
  // Passes ask for the same few ops again and again: a small table per thread spares them the lock.
  struct Slot {
    const void* schema = nullptr;
    uint64_t marks = 0;
    std::string name, overload;
    const OpInfo* info = nullptr;
  };
  static thread_local std::array<Slot, 256> recent;
  const void* schema = &op.schema();
  const c10::OperatorName& name = op.operator_name();
  Slot& slot = recent[(reinterpret_cast<uintptr_t>(schema) >> 6) % recent.size()];
  const uint64_t marks = effect_marks();
  if (slot.schema != schema || slot.marks != marks || slot.name != name.name ||
      slot.overload != name.overload_name) {
    slot = {schema, marks, name.name, name.overload_name, &infos->get(op, make_info)};
  }
  return *slot.info;
}

bool draws(const c10::OperatorHandle& op, std::span<const c10::IValue> args) {
  if (!info(op).random) return false;
  const OpRow* row = find_row(op);
  if (row == nullptr || row->draw_switch.empty()) return true;
  const auto at = op.schema().argumentIndexWithName(std::string(row->draw_switch));
  if (!at.has_value()) return true;
  const c10::IValue& value = args[static_cast<size_t>(*at)];
  if (value.isBool()) return value.toBool();
  if (value.isDouble()) return value.toDouble() != 0;
  return true;
}

MetadataRule metadata_rule(const c10::OperatorHandle& op) {
  const OpRow* row = find_row(op);
  return row ? row->rule : nullptr;
}

std::optional<c10::OperatorHandle> inplace_overload(const c10::OperatorHandle& op,
                                                    c10::ScalarType dtype) {
  // The loops of complex kernels are compiled for memory that overlaps and for memory that does
  // not, and contract in one of them.
  if (c10::isComplexType(dtype)) return std::nullopt;
  if (c10::isReducedFloatingType(dtype)) {
    const OpRow* row = find_row(op);
    if (row != nullptr && (row->facts & Fact::InPlaceRounds)) return std::nullopt;
  }
  static auto* const overloads = new PerOverload<std::optional<c10::OperatorHandle>>;
  return overloads->get(op, find_inplace);
}

}  // namespace tandem::ops
