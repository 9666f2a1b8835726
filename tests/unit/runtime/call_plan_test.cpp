#include "runtime/call/call_plan.h"

#include "partition/finish_split.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::runtime {
namespace {

/// A split around a forward graph, finished; `written` are inputs whose data the call writes, once.
Split split_of(const char* forward, const std::vector<size_t>& written = {}) {
  Split split;
  split.forward = ir::parse(forward);
  for (ir::ValueId input : split.forward.inputs()) {
    split.signature.inputs.push_back({.role = split.forward.input_role(input),
                                      .type = split.forward.value(input).tensor_type()});
  }
  for (const ir::Output& output : split.forward.outputs()) {
    if (output.role.role == ir::Role::Output)
      split.signature.outputs.push_back({.type = split.forward.value(output.value).tensor_type()});
  }
  for (size_t input : written) {
    split.signature.inputs[input].data_written = true;
    split.signature.inputs[input].version_delta = 1;
  }
  partition::finish_split(split, Mutations::epilogue);
  return split;
}

/// The first input is a closed-over leaf that gets a gradient.
Split with_gradient(Split split) {
  split.backward = ir::parse(R"(
    graph g.backward(%dy: f32[4] tangent 0) {
      backward:
      %dw: f32[4] = aten.neg(%dy)
      return %dw: grad 0
    })");
  ir::Signature& signature = split.signature;
  signature.training = true;
  signature.lifted_count = 1;
  signature.inputs[0].requires_grad = signature.inputs[0].requires_grad_after = true;
  signature.outputs[0].requires_grad = true;
  signature.tangents.push_back(
      {.of = {ir::CallTensor::output(0)}, .type = signature.outputs[0].type});
  signature.gradients.push_back({.of = {ir::CallTensor::input(0)}});
  return split;
}

using Texts = std::vector<std::string>;
Texts texts(const CallPlan& plan) {
  Texts texts;
  for (const Action& action : plan.actions) texts.push_back(to_string(action));
  return texts;
}

TEST(CallPlan, AnInferenceCallTakesItsResults) {
  const CallPlan plan = make_call_plan(split_of(R"(
    graph g(%x: f32[4] user_input 0) {
      %s: f32[4] = aten.sin(%x)
      %y: f32[4] = aten.exp(%s)
      return %s: output 0, %y: output 1
    })"));
  EXPECT_EQ(texts(plan), (Texts{"take output 0: 0", "take output 1: 1"}));
}

// Edges to closed-over leaves are kept from call to call.
TEST(CallPlan, ATrainingCallMakesOneNodeAndTakesNoEdgeToAParameter) {
  const CallPlan plan = make_call_plan(with_gradient(split_of(R"(
    graph g(%w: f32[4] param "w", %x: f32[4] user_input 0) {
      %y: f32[4] = aten.mul.Tensor(%w, %x)
      return %y: output 0, %x: saved 0
    })")));
  EXPECT_EQ(texts(plan), (Texts{"take output 0: 0", "make nodes", "add slot part 0 output 0: -1",
                                "connect part 0", "set history output 0: 0", "save"}));
  EXPECT_EQ(plan.parts[0].leaves, std::vector<size_t>{0});
  EXPECT_EQ(plan.taken_targets, 0u);
  EXPECT_EQ(plan.first_saved, 1);
  ASSERT_EQ(plan.saved.size(), 1u);
  EXPECT_EQ(plan.saved[0], (Saved::How{Saved::As::Input, 1}));
}

TEST(CallPlan, EdgesToArgumentsAreTakenInEachCall) {
  Split split = with_gradient(split_of(R"(
    graph g(%w: f32[4] param "w", %x: f32[4] user_input 0) {
      %y: f32[4] = aten.mul.Tensor(%w, %x)
      return %y: output 0
    })"));
  split.signature.lifted_count = 0;
  const CallPlan plan = make_call_plan(split);
  EXPECT_EQ(texts(plan),
            (Texts{"take output 0: 0", "make nodes", "add slot part 0 output 0: -1", "take edge: 0",
                   "connect part 0", "set history output 0: 0", "save"}));
  EXPECT_TRUE(plan.parts[0].leaves.empty());
}

// Results and saved values come after, so that they see the input as the call leaves it.
TEST(CallPlan, WritesComeBeforeTheNodeIsConnected) {
  const CallPlan plan = make_call_plan(with_gradient(split_of(R"(
    graph g(%w: f32[4] param "w", %x: f32[4] user_input 0) {
      %y: f32[4] = aten.mul.Tensor(%w, %x)
      %n: f32[4] = aten.exp(%x)
      return %n: mutated 1, %y: output 0, %n: saved 0
    })",
                                                              {1})));
  EXPECT_EQ(texts(plan), (Texts{"take output 0: 1", "make nodes", "add slot part 0 output 0: -1",
                                "write input 1: 0", "move version input 1: 1", "connect part 0",
                                "set history output 0: 0", "hold input input 1: 2", "save"}));
}

TEST(CallPlan, AnInputThatIsReshapedIsHeldAsItWasFound) {
  Split split = split_of(R"(
    graph g(%w: f32[4] param "w", %x: f32[4] user_input 0) {
      %y: f32[4] = aten.mul.Tensor(%w, %x)
      return %y: output 0
    })");
  split.forward.set_outputs(
      {split.forward.outputs()[0], {split.forward.inputs()[1], ir::Descriptor::saved(0)}});
  split.signature.inputs[1].metadata_changed = true;
  split.signature.inputs[1].type_after = split.signature.inputs[1].type;
  partition::finish_split(split, Mutations::epilogue);
  const CallPlan plan = make_call_plan(with_gradient(std::move(split)));
  EXPECT_EQ(texts(plan),
            (Texts{"hold input input 1: 1", "take output 0: 0", "make nodes",
                   "add slot part 0 output 0: -1", "restride input 1", "connect part 0",
                   "set history output 0: 0", "save", "ask history input 1"}));
}

}  // namespace
}  // namespace tandem::runtime
