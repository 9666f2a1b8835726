#pragma once

#include "ir/text/records.h"
#include "tandem/ir/signature.h"

/// The fields of the signature, for its text. A field that is missing here is lost when an entry is
/// stored: tests/unit/ir/signature_text_test.cpp counts them.
namespace tandem::ir {

constexpr std::array<std::string_view, 4> words(const StorageChange*) {
  return {"none", "grown", "replaced", "resized"};
}
constexpr std::array<std::string_view, 8> words(const OutputKind*) {
  return {"fresh",         "is_input",        "alias_of_input", "alias_of_group",
          "alias_of_base", "alias_of_output", "same_as_output", "undefined"};
}
constexpr std::array<std::string_view, 4> words(const CallTensor::Kind*) {
  return {"input", "group", "base", "output"};
}

constexpr auto fields(const CallTensor*) {
  return std::tuple(Field{"kind", &CallTensor::kind}, Field{"index", &CallTensor::index});
}

constexpr auto fields(const History*) {
  return std::tuple(Field{"tensor", &History::tensor}, Field{"number", &History::number});
}

constexpr auto fields(const InputFacts*) {
  using F = InputFacts;
  return std::tuple(
      Field{"role", &F::role}, Field{"type", &F::type}, Field{"requires_grad", &F::requires_grad},
      Field{"is_leaf", &F::is_leaf}, Field{"duplicate_of", &F::duplicate_of},
      Field{"counter_of", &F::counter_of}, Field{"group", &F::group},
      Field{"closed_over", &F::closed_over}, Field{"history_only", &F::history_only},
      Field{"data_written", &F::data_written}, Field{"history_changed", &F::history_changed},
      Field{"histories", &F::histories}, Field{"metadata_changed", &F::metadata_changed},
      Field{"version_delta", &F::version_delta},
      Field{"requires_grad_after", &F::requires_grad_after},
      Field{"is_leaf_after", &F::is_leaf_after}, Field{"read_by_backward", &F::read_by_backward},
      Field{"viewed_by_backward", &F::viewed_by_backward},
      Field{"read_by_gradients", &F::read_by_gradients}, Field{"type_after", &F::type_after},
      Field{"offset_after", &F::offset_after}, Field{"storage", &F::storage},
      Field{"set_to", &F::set_to}, Field{"bytes_after", &F::bytes_after});
}

constexpr auto fields(const GroupFacts*) {
  using F = GroupFacts;
  return std::tuple(Field{"members", &F::members}, Field{"type", &F::type},
                    Field{"offset", &F::offset}, Field{"is_root", &F::is_root},
                    Field{"requires_grad", &F::requires_grad}, Field{"is_leaf", &F::is_leaf},
                    Field{"history_changed", &F::history_changed});
}

constexpr auto fields(const BaseFacts*) {
  using F = BaseFacts;
  return std::tuple(Field{"type", &F::type}, Field{"requires_grad", &F::requires_grad},
                    Field{"output", &F::output}, Field{"reshaped", &F::reshaped});
}

constexpr auto fields(const OutputFacts*) {
  using F = OutputFacts;
  return std::tuple(Field{"kind", &F::kind}, Field{"type", &F::type}, Field{"source", &F::source},
                    Field{"requires_grad", &F::requires_grad}, Field{"is_leaf", &F::is_leaf},
                    Field{"made_leaf", &F::made_leaf}, Field{"own_history", &F::own_history},
                    Field{"of_custom_function", &F::of_custom_function});
}

constexpr auto fields(const TangentFacts*) {
  using F = TangentFacts;
  return std::tuple(Field{"of", &F::of}, Field{"type", &F::type}, Field{"part", &F::part},
                    Field{"raises", &F::raises}, Field{"raises_in", &F::raises_in});
}

constexpr auto fields(const GradientFacts*) {
  using F = GradientFacts;
  return std::tuple(Field{"of", &F::of}, Field{"part", &F::part});
}

constexpr auto fields(const FormulaFacts*) {
  using F = FormulaFacts;
  return std::tuple(Field{"part", &F::part}, Field{"tangents", &F::tangents},
                    Field{"next", &F::next}, Field{"gradients", &F::gradients},
                    Field{"reads", &F::reads}, Field{"saves", &F::saves});
}

constexpr auto fields(const EffectFacts*) {
  return std::tuple(Field{"formula", &EffectFacts::formula});
}

constexpr auto fields(const ViewReplay*) {
  using F = ViewReplay;
  return std::tuple(Field{"source", &F::source}, Field{"as_found", &F::as_found},
                    Field{"detached", &F::detached}, Field{"graph", &F::graph});
}

constexpr auto fields(const EqualityFacts*) {
  using F = EqualityFacts;
  return std::tuple(Field{"a", &F::a}, Field{"b", &F::b}, Field{"equal", &F::equal});
}

constexpr auto fields(const Signature*) {
  using F = Signature;
  return std::tuple(Field{"training", &F::training}, Field{"inputs", &F::inputs},
                    Field{"lifted_count", &F::lifted_count}, Field{"groups", &F::groups},
                    Field{"outputs", &F::outputs}, Field{"bases", &F::bases},
                    Field{"tangents", &F::tangents}, Field{"gradients", &F::gradients},
                    Field{"formulas", &F::formulas}, Field{"effects", &F::effects},
                    Field{"replays", &F::replays}, Field{"equalities", &F::equalities},
                    Field{"grad_mode_after", &F::grad_mode_after});
}

}  // namespace tandem::ir
