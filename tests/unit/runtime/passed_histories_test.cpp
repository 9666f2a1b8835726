#include "runtime/backward/passed_histories.h"

#include <gtest/gtest.h>

namespace tandem::runtime {
namespace {

using ir::CallTensor;

std::vector<std::string> texts(const std::vector<CallPlan::PassedHistory>& passed) {
  constexpr std::array kWords = {"edge ", "slot ", "kept "};
  std::vector<std::string> texts;
  for (const CallPlan::PassedHistory& one : passed) {
    texts.push_back(kWords[static_cast<size_t>(one.from)] + std::to_string(one.index) + ": " +
                    ir::to_string(one.of));
  }
  return texts;
}

TEST(PassedHistories, ThoseThatNoArgumentHas) {
  ir::Signature signature;
  signature.inputs = {{.role = {}, .type = {}, .requires_grad = true, .histories = 2},
                      {.role = {}, .type = {}, .requires_grad = false},  // requires_grad_() inside
                      {.role = {}, .type = {}, .requires_grad = true}};
  signature.outputs.resize(1);
  signature.tangents = {{.of = {CallTensor::output(0)}, .type = {}},
                        {.of = {CallTensor::input(0), 1}, .type = {}, .part = 1}};
  signature.gradients = {{.of = {CallTensor::input(0)}},
                         {.of = {CallTensor::input(0), 1}},
                         {.of = {CallTensor::input(1)}},
                         {.of = {CallTensor::input(2)}},
                         {.of = {CallTensor::input(0)}, .part = 1}};
  const CallPlan::Part results{
      .tangents = {0}, .edges = {{0, 0}, {1, 1}, {2, 2}, {3, 3}}, .passed = {}};
  EXPECT_EQ(texts(passed_histories(signature, results)),
            (std::vector<std::string>{"edge 1: input 0, history 1", "edge 2: input 1",
                                      "slot 0: output 0"}));
  const CallPlan::Part rewritten{.tangents = {1}, .edges = {{0, 4}}, .passed = {}};
  EXPECT_EQ(texts(passed_histories(signature, rewritten)),
            (std::vector<std::string>{"kept 0: input 0, history 1"}));
}

// A formula may have saved what a view shows when the call ends.
TEST(PassedHistories, ThoseOfTheViewsOfARewrittenBase) {
  ir::Signature signature;
  signature.inputs = {{.role = {},
                       .type = {},
                       .requires_grad = true,
                       .group = 0,
                       .histories = 2,
                       .requires_grad_after = true},
                      {.role = {},
                       .requires_grad = true,
                       .group = 0,
                       .histories = 2,
                       .requires_grad_after = false}};
  signature.groups = {{.members = {0, 1}, .type = {}, .is_root = true, .history_changed = true}};
  signature.tangents = {{.of = {CallTensor::group(0), 1}, .type = {}, .part = 1}};
  signature.gradients = {{.of = {CallTensor::group(0)}, .part = 1}};
  const CallPlan::Part part{.tangents = {0}, .edges = {{0, 0}}, .passed = {}};
  EXPECT_EQ(texts(passed_histories(signature, part)),
            (std::vector<std::string>{"slot 0: group 0, history 1", "kept 0: input 0, history 1"}));
}

}  // namespace
}  // namespace tandem::runtime
