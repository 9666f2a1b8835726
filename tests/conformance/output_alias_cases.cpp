#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

namespace tandem::conformance {
namespace {

void input_output_view_simple(Session& session) {
  const auto program = [](Tensors& a) -> Tensors { return {a[0].view(-1)}; };
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.signature().outputs[0].kind, ir::OutputKind::AliasOfInput);
    EXPECT_FALSE(entry.signature().training) << "a view has no backward of ours";
  };
  session.judge(non_leaves({{3, 3}}), program, settings);
  session.judge(leaves({{3, 3}}), program, settings);
  session.judge(plain({{3, 3}}), program, settings);
}

}  // namespace

Category output_alias() {
  return {"Output alias of an input",
          {
              {"test_input_output_view_simple", input_output_view_simple},
          }};
}

}  // namespace tandem::conformance
