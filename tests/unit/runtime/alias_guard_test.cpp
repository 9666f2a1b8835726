#include "runtime/guards/alias_guard.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tandem::runtime {
namespace {

using Tensors = std::vector<at::Tensor>;
using Inputs = std::vector<const at::Tensor*>;

Inputs pointers(const Tensors& tensors) {
  Inputs inputs;
  for (const at::Tensor& tensor : tensors) inputs.push_back(&tensor);
  return inputs;
}

ir::Signature arguments(size_t count) {
  ir::Signature signature;
  signature.inputs.resize(count);
  return signature;
}

AliasGuard guard_of(const ir::Signature& signature, const Tensors& traced) {
  const Inputs inputs = pointers(traced);
  const auto groups = AliasGuard::rows_of(signature, inputs);
  const auto views = AliasGuard::views_of(signature, inputs);
  return {signature, {groups, views}, inputs, {"a", "b"}};
}

std::string mismatch(const AliasGuard& guard, const Tensors& tensors) {
  return guard.mismatch(pointers(tensors)).value_or("none");
}

TEST(AliasGuard, WatchesNothingIfNothingIsWritten) {
  const Tensors tensors = {torch::ones({4}), torch::ones({4})};
  EXPECT_FALSE(guard_of(arguments(2), tensors).watches());
}

TEST(AliasGuard, NoticesAWrittenInputThatCameToOverlap) {
  ir::Signature signature = arguments(2);
  signature.inputs[0].data_written = true;
  const at::Tensor all = torch::ones({8});
  const Tensors apart = {torch::ones({4}), torch::ones({4})};
  const AliasGuard guard = guard_of(signature, apart);
  ASSERT_TRUE(guard.watches());
  EXPECT_EQ(mismatch(guard, apart), "none");
  EXPECT_EQ(mismatch(guard, {all.slice(0, 0, 4), all.slice(0, 4, 8)}), "none");
  EXPECT_EQ(mismatch(guard, {all.slice(0, 0, 4), all.slice(0, 3, 7)}),
            "a is written and shares memory with b");
}

TEST(AliasGuard, AGroupMustLieAsItLay) {
  ir::Signature signature = arguments(2);
  signature.groups = {{.members = {0, 1}, .type = {}, .is_root = true}};
  for (ir::InputFacts& facts : signature.inputs) {
    facts.group = 0;
    facts.data_written = true;
  }
  const auto group = [](int64_t second) {
    const at::Tensor all = torch::ones({8});
    return Tensors{all.slice(0, 0, 4), all.slice(0, second, second + 4)};
  };
  const Tensors traced = group(2);
  const AliasGuard guard = guard_of(signature, traced);
  EXPECT_EQ(mismatch(guard, traced), "none");
  EXPECT_EQ(mismatch(guard, group(2)), "none");  // another tensor, the same pattern
  EXPECT_EQ(mismatch(guard, group(3)), "b does not share memory with a as it did");
  EXPECT_EQ(mismatch(guard, {torch::ones({8}).slice(0, 0, 4), torch::ones({8}).slice(0, 2, 6)}),
            "b does not share memory with a as it did");
  // The same places, but no view of the same tensor for autograd.
  const at::Tensor all = torch::ones({8});
  EXPECT_EQ(mismatch(guard, {all.slice(0, 0, 4), all.detach().slice(0, 2, 6)}),
            "b does not share memory with a as it did");
}

TEST(AliasGuard, CountersThatPartedAreNoticed) {
  ir::Signature signature = arguments(2);
  signature.inputs[0].version_delta = 1;
  signature.inputs[1].version_delta = 1;
  signature.inputs[1].counter_of = 0;
  const at::Tensor all = torch::ones({8});
  const Tensors views = {all.slice(0, 0, 4), all.slice(0, 4, 8)};
  const AliasGuard guard = guard_of(signature, views);
  EXPECT_EQ(mismatch(guard, views), "none");
  EXPECT_EQ(mismatch(guard, {all.slice(0, 0, 4), all.data().slice(0, 4, 8)}),
            "a and b do not have one version counter");
  // Nor do tensors that have nothing to do with each other.
  EXPECT_EQ(mismatch(guard, {torch::ones({4}), torch::ones({4})}),
            "a and b do not have one version counter");
}

TEST(AliasGuard, AnArgumentThatComesTwiceIsInTheGroupOfTheFirst) {
  ir::Signature signature = arguments(3);
  signature.groups = {{.members = {0, 2}, .type = {}, .is_root = true}};
  for (size_t i : {0, 2}) {
    signature.inputs[i].group = 0;
    signature.inputs[i].data_written = true;
  }
  signature.inputs[1].duplicate_of = 0;
  const at::Tensor all = torch::ones({8}), first = all.slice(0, 0, 4);
  const Tensors tensors = {first, first, all.slice(0, 2, 6)};
  const Inputs inputs = pointers(tensors);
  const auto groups = AliasGuard::rows_of(signature, inputs);
  const AliasGuard guard(signature, {groups, {}}, inputs, {"a", "b", "c"});
  EXPECT_EQ(mismatch(guard, tensors), "none");
}

// A view gets another history when its version moves, and what the function takes of it is a view
// of its base.
TEST(AliasGuard, AViewIsNoTensorOfItsOwnWhereItsVersionMoves) {
  const at::Tensor p = torch::ones({4}).requires_grad_();
  ir::Signature signature = arguments(1);
  signature.training = true;
  signature.inputs[0].version_delta = 1;
  signature.inputs[0].requires_grad = true;
  signature.inputs[0].requires_grad_after = true;
  const Tensors own = {p * 1}, view = {(p * 1).narrow(0, 0, 4)};
  const auto mismatch_of = [&](const Tensors& traced, const Tensors& given) {
    return mismatch(guard_of(signature, traced), given);
  };
  for (const bool is_leaf : {false, true}) {
    for (const bool history_changed : {false, true}) {
      signature.inputs[0].is_leaf = is_leaf;
      signature.inputs[0].history_changed = history_changed;
      EXPECT_EQ(mismatch_of(own, own), "none");
      EXPECT_EQ(mismatch_of(own, view), "a is a view, compiled for a tensor of its own");
      EXPECT_EQ(mismatch_of(view, view), "none");
      EXPECT_EQ(mismatch_of(view, own), "a is no view, compiled for one");
    }
  }
  signature.inputs[0].requires_grad = signature.inputs[0].requires_grad_after = false;
  EXPECT_EQ(mismatch_of(own, view), "none");
  signature.inputs[0].requires_grad_after = true;
  EXPECT_EQ(mismatch_of(own, view), "a is a view, compiled for a tensor of its own");
  signature.inputs[0].version_delta = 0;
  EXPECT_EQ(mismatch_of(own, view), "none");
}

}  // namespace
}  // namespace tandem::runtime
