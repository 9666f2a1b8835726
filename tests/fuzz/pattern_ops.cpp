#include "fuzz/custom_functions.h"
#include "fuzz/op.h"
#include "fuzz/patterns.h"

#define OP TANDEM_FUZZ_OP

namespace tandem::fuzz {
namespace {

void add(std::vector<Op>& all, ProgramPattern pattern, std::vector<Op> ops) {
  for (Op& op : ops) {
    op.only_in = pattern;
    all.push_back(op);
  }
}

}  // namespace

/// Without a pattern for its operands an op is not drawn: the generator places it.
std::vector<Op> pattern_ops() {
  using enum ProgramPattern;
  using namespace patterns;
  std::vector<Op> all;
  add(all, LeafViews,
      {OP("leaf.part", nullptr, kView, x.narrow(0, i, j).view(s).requires_grad_())});
  add(all, MixedBackward,
      {OP("custom.mixes", floating, kCustom, MixesGradients::apply(x)),
       OP("custom.divides", same_sizes, kCustom, DividesGradients::apply(x, y)),
       OP("custom.projects", floating, kCustom | kRounds, ProjectsGradients::apply(x))});
  add(all, UndefinedTangents,
      {OP("custom.asks", floating, kCustom, AsksForGradients::apply(x)),
       OP("custom.passes_undefined", same_sizes, kCustom, PassesUndefined::apply(x, y))});
  return all;
}

}  // namespace tandem::fuzz
