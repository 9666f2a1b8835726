#include "ir/text/signature_fields.h"
#include "support/error_text.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::ir {
namespace {

/// Anything that a field may be initialised with.
struct Anything {
  template <class T>
  operator T() const;  // NOLINT: that is its purpose
};
template <class T, class... Given>
constexpr size_t field_count() {
  if constexpr (requires { T{Given{}..., Anything{}}; }) {
    return field_count<T, Given..., Anything>();
  } else {
    return sizeof...(Given);
  }
}
template <class T>
constexpr bool names_all() {
  return std::tuple_size_v<decltype(fields(static_cast<const T*>(nullptr)))> == field_count<T>();
}

// A field without a name would be lost when an entry is stored.
static_assert(names_all<CallTensor>());
static_assert(names_all<History>());
static_assert(names_all<InputFacts>());
static_assert(names_all<GroupFacts>());
static_assert(names_all<BaseFacts>());
static_assert(names_all<OutputFacts>());
static_assert(names_all<TangentFacts>());
static_assert(names_all<GradientFacts>());
static_assert(names_all<FormulaFacts>());
static_assert(names_all<EffectFacts>());
static_assert(names_all<ViewReplay>());
static_assert(names_all<EqualityFacts>());

TypePtr type(const char* text) {
  Cursor cursor(text);
  return std::make_shared<const TensorType>(parse_tensor_type(cursor));
}

Signature full() {
  Signature signature;
  signature.training = true;
  signature.lifted_count = 1;
  signature.inputs.push_back({.role = Descriptor::param("fc.weight \"quoted\""),
                              .type = type("f32[2, 4] (1, 2)"),
                              .requires_grad = true});
  signature.inputs.push_back({.role = Descriptor::user_input(3),
                              .type = type("f64[]"),
                              .is_leaf = false,
                              .duplicate_of = 0,
                              .data_written = true,
                              .version_delta = 2,
                              .type_after = type("f64[1]"),
                              .storage = StorageChange::Replaced,
                              .set_to = 0});
  signature.groups.push_back({.members = {0, 1}, .type = type("f32[8]"), .is_root = true});
  signature.outputs.push_back(
      {.kind = OutputKind::AliasOfInput, .type = type("f32[4]"), .source = 1});
  signature.outputs.push_back({.kind = OutputKind::Undefined, .type = nullptr});
  signature.bases.push_back({.type = type("f32[3]"), .output = 0});
  signature.tangents.push_back({.of = {CallTensor::group(0), 1},
                                .type = type("f32[8]"),
                                .part = -1,
                                .raises = "line one\nline two",
                                .raises_in = {1, 2}});
  signature.gradients.push_back({.of = {CallTensor::input(1), 1}, .part = 1});
  signature.formulas.push_back({.part = 1,
                                .tangents = {0},
                                .next = {0, 2},
                                .gradients = {0},
                                .reads = {CallTensor::input(1), CallTensor::output(0)},
                                .saves = true});
  signature.effects.push_back({.formula = 3});
  signature.replays.push_back({.source = CallTensor::input(1),
                               .detached = true,
                               .graph = parse(R"(graph g(%x: f32[2, 2] user_input 0) {
    %y: f32[4] = aten.view(%x, [4])
    return %y: output 0
  })")});
  signature.equalities.push_back({.a = 0, .b = 1, .equal = true});
  signature.grad_mode_after = false;
  return signature;
}

TEST(SignatureText, ReadsBackAsItWas) {
  const Signature signature = full();
  const std::string text = print(signature);
  const Signature again = parse_signature(text);
  EXPECT_TRUE(same_record(signature, again));
  EXPECT_EQ(print(again), text);
  EXPECT_EQ(print(parse_signature(print(Signature()))), print(Signature()));
}

TEST(SignatureText, LeavesOutWhatIsAsUsual) {
  Signature signature;
  signature.inputs.push_back({.role = Descriptor::user_input(0), .type = type("f32[4]")});
  EXPECT_EQ(print(signature), "signature {inputs: [\n  {type: f32[4]}]}\n");
}

TEST(SignatureText, ErrorsSayWhere) {
  EXPECT_EQ(
      test::error_text<UserError>([] { parse_signature("signature {inputs: [{kind: fresh}]}"); }),
      "parse: line 1, column 22: expected the name of a field, got 'kind'");
  EXPECT_EQ(
      test::error_text<UserError>([] { parse_signature("signature {outputs: [{kind: stale}]}"); }),
      "parse: line 1, column 29: expected fresh, is_input, alias_of_input, alias_of_group, "
      "alias_of_base, alias_of_output, same_as_output, undefined, got 'stale'");
}

}  // namespace
}  // namespace tandem::ir
