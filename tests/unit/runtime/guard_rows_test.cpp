#include "runtime/guards/guard_rows.h"

#include "ir/text/records.h"

#include <gtest/gtest.h>

#include <complex>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace tandem::runtime {
namespace {

template <class Row>
constexpr size_t named(const Row& row) {
  return std::tuple_size_v<decltype(fields(&row))>;
}

// A field without a name would be lost when an entry is stored. The bindings do not compile with
// another number of members.
TEST(GuardRows, EveryMemberIsNamed) {
  const TensorRow tensor{};
  [[maybe_unused]] const auto& [defined, type, keys, requires_grad, is_leaf, wrapped_number,
                                without_history] = tensor;
  EXPECT_EQ(named(tensor), 7u);
  const ModuleRow module{};
  [[maybe_unused]] const auto& [path, training, parameters, buffers, children] = module;
  EXPECT_EQ(named(module), 5u);
  const GroupRow::Member member{};
  [[maybe_unused]] const auto& [input, offset, creation] = member;
  EXPECT_EQ(named(member), 3u);
  const GroupRow group{};
  [[maybe_unused]] const auto& [members, base] = group;
  EXPECT_EQ(named(group), 2u);
  const GuardRows rows{};
  [[maybe_unused]] const auto& [thread, effectful_ops, constants, arguments, names, first_same,
                                modules, closes_over, guard_on, lifted, shared_storage, closed_over,
                                lifted_offsets, argument_offsets, groups, views] = rows;
  EXPECT_EQ(named(rows), 16u);
}

TEST(GuardRows, ReadBackAsTheyWere) {
  ir::Cursor cursor("f32[2, 4] (1, 2)");
  const TensorRow tensor{.defined = true,
                         .type = std::make_shared<const ir::TensorType>(parse_tensor_type(cursor)),
                         .keys = uint64_t{1} << 40,
                         .requires_grad = true,
                         .is_leaf = false,
                         .wrapped_number = true,
                         .without_history = true};
  GuardRows rows;
  rows.thread.threads = 3;
  rows.thread.keys.included = 7;
  rows.thread.default_dtype = c10::ScalarType::Double;
  rows.effectful_ops = {"mylib::log"};
  rows.constants = {true, int64_t{-3}, 0.5, std::complex<double>(1, -2), std::string("a \"b\"")};
  rows.arguments = {tensor, TensorRow{}};
  rows.names = {"x", "y"};
  rows.first_same = {0, 1};
  rows.modules.push_back(
      {.path = "fc", .training = true, .parameters = 2, .buffers = 1, .children = 3});
  rows.closes_over = {"f32[2]"};
  rows.guard_on = GuardFn::Value(int64_t{3});
  rows.lifted = {tensor};
  rows.shared_storage.push_back(std::vector<int64_t>{0});
  rows.closed_over = {1};
  rows.lifted_offsets = {4};
  rows.argument_offsets = {0, 2};
  GroupRow& group = rows.groups.emplace_back();
  group.members.push_back({.input = 1, .offset = 2, .creation = -1});
  group.base = tensor;
  // Bit for bit.
  rows.constants.emplace_back(-0.0);
  rows.constants.emplace_back(std::numeric_limits<double>::quiet_NaN());
  rows.constants.emplace_back(std::complex<double>(-0.0, std::numeric_limits<double>::quiet_NaN()));
  const std::string bytes = ir::pack_record(rows);
  const auto again = ir::unpack_record<GuardRows>(bytes);
  EXPECT_TRUE(ir::same_record(rows, again));
  EXPECT_EQ(ir::pack_record(again), bytes);
}

}  // namespace
}  // namespace tandem::runtime
