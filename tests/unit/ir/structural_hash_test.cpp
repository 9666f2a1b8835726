#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::ir {
namespace {

std::string text_of(const std::string& line, const std::string& head = "%x: f32[4] user_input 0",
                    const std::string& end = "return %y: output 0") {
  return "graph g(" + head + ") {\n  " + line + "\n  " + end + "\n}\n";
}

uint64_t hash_of(const std::string& text) { return structural_hash(parse(text)); }

const std::string kPlain = "%y: f32[4] = aten.add.Scalar(%x, 1, 1)";

// A number, so that a change of the function shows: stored hashes would no longer be found.
TEST(StructuralHash, IsTheSameInEveryProcess) {
  EXPECT_EQ(hash_of(text_of(kPlain)), 7679837330519132260u);
}

TEST(StructuralHash, IgnoresNamesIdsAndLocations) {
  uint64_t plain = hash_of(text_of(kPlain));
  EXPECT_EQ(hash_of("graph other(%p: f32[4] user_input 0) {\n  %q: f32[4] = aten.add.Scalar(%p, 1, "
                    "1)  # a.cpp:3\n"
                    "  return %q: output 0\n}"),
            plain);
  Graph graph = parse(text_of("%dead: f32[4] = aten.sin(%x)\n  " + kPlain));
  EXPECT_NE(structural_hash(graph), plain);
  graph.erase(graph.node(NodeId{0}));
  EXPECT_EQ(structural_hash(graph), plain);
}

TEST(StructuralHash, DiffersWithEverythingElse) {
  std::string head = "%x: f32[4] user_input 0";
  std::string end = "return %y: output 0";
  std::vector<std::string> texts = {
      text_of(kPlain),
      text_of("%y: f32[4] = aten.add.Scalar(%x, 2, 1)"),
      text_of("%y: f32[4] = aten.add.Scalar(%x, 1.0, 1)"),
      text_of("%y: f32[4] = aten.add.Scalar(%x, true, 1)"),
      text_of("%y: f32[4] = aten.add.Scalar(%x, 0.0, 1)"),
      text_of("%y: f32[4] = aten.add.Scalar(%x, -0.0, 1)"),
      text_of("%y: f32[4] = aten.sub.Scalar(%x, 1, 1)"),
      text_of("%y: f32[4] = aten.add.Tensor(%x, 1, alpha=1)"),
      text_of("%y: f64[4] = aten.add.Scalar(%x, 1, 1)"),
      text_of("%y: f32[5] = aten.add.Scalar(%x, 1, 1)"),
      text_of("%y: f32[4] (2) = aten.add.Scalar(%x, 1, 1)"),
      text_of("%y: cuda:0 f32[4] = aten.add.Scalar(%x, 1, 1)"),
      text_of("backward:\n  " + kPlain),
      text_of(kPlain, "%x: f32[4] user_input 1"),
      text_of(kPlain, "%x: f32[4] lifted 0"),
      text_of(kPlain, "%x: f32[4] param \"a\""),
      text_of(kPlain, "%x: f32[4] param \"b\""),
      text_of(kPlain, head + ", %z: f32[4] user_input 1"),
      text_of(kPlain, head, "return %y: output 1"),
      text_of(kPlain, head, "return %y: saved 0"),
      text_of(kPlain, head, "return %x: output 0"),
      text_of(kPlain, head, "return none: output 0"),
      text_of(kPlain, head, "return"),
      "graph g[s0: 0..](" + text_of(kPlain).substr(8),
      "graph g[s0: 0..8](" + text_of(kPlain).substr(8),
      "graph g[s0: 0..8 hint 4](" + text_of(kPlain).substr(8),
      text_of("%y: f32[2] = constant {1.0, 2.0}"),
      text_of("%y: f32[2] = constant {1.0, 3.0}"),
      text_of("%y: f32[] = constant {1.0}"),
      text_of("%y: f32[] = constant wrapped {1.0}"),
      text_of("%y: f32[8] = aten.cat([%x, %x], 0)"),
      text_of("%y: f32[8] = aten.cat([%x], 0)"),
      text_of("%y: f32[8] = aten.cat([%x, none], 0)"),
      text_of("%y: f32[4] = aten.gelu(%x, approximate=\"none\")"),
      text_of("%y: f32[4] = aten.gelu(%x, approximate=\"tanh\")"),
      text_of(
          "%y: f32[4] = region \"r\" (%x) graph (%a: f32[4] user_input 0) { return %a: output 0 }"),
      text_of(
          "%y: f32[4] = region \"s\" (%x) graph (%a: f32[4] user_input 0) { return %a: output 0 }"),
      text_of(
          "%y: f32[4] = region \"r\" (%x) graph (%a: f32[4] user_input 1) { return %a: output 0 }"),
      text_of("[%y: f32[2], %z: f32[2]] = aten.split.Tensor(%x, 2, 0)"),
      text_of("[%z: f32[2], %y: f32[2]] = aten.split.Tensor(%x, 2, 0)"),
      text_of("[%y: f32[2], none] = aten.split.Tensor(%x, 2, 0)"),
      text_of("%y: f32[4] = aten.bernoulli(%x, generator=generator 0)"),
      text_of("%y: f32[4] = aten.bernoulli(%x, generator=generator 1)"),
      text_of("%y: f32[4] = aten.empty_like(%x, dtype=f32)"),
      text_of("%y: f32[4] = aten.empty_like(%x, dtype=f64)"),
      text_of("%y: f32[4] = aten.empty_like(%x, device=cpu)"),
      text_of("%y: f32[4] = aten.empty_like(%x, layout=strided)"),
      text_of("%y: f32[4] = aten.empty_like(%x, memory_format=preserve)"),
  };
  std::set<uint64_t> hashes;
  for (const std::string& text : texts) EXPECT_TRUE(hashes.insert(hash_of(text)).second) << text;
}

uint64_t free_hash_of(const std::string& text) { return shape_free_hash(parse(text)); }

TEST(ShapeFreeHash, LeavesOutSizesStridesAndNumbers) {
  const uint64_t plain = free_hash_of(text_of(kPlain));
  EXPECT_NE(plain, hash_of(text_of(kPlain)));
  const std::string other_size = "%x: f32[7] user_input 0";
  EXPECT_EQ(free_hash_of(text_of("%y: f32[7] = aten.add.Scalar(%x, 5, 3)", other_size)), plain);
  EXPECT_EQ(free_hash_of(text_of("%y: f32[4] (2) = aten.add.Scalar(%x, 1, 1)")), plain);
  const auto constant = [](const std::string& numbers) {
    return free_hash_of(
        text_of("%c: f32[2] = constant " + numbers + "\n  %y: f32[2] = aten.mul.Tensor(%x, %c)",
                "%x: f32[2] user_input 0"));
  };
  EXPECT_EQ(constant("{1.0, 2.0}"), constant("{1.0, 3.0}"));
}

TEST(ShapeFreeHash, DiffersWithEverythingElse) {
  const std::string head = "%x: f32[4] user_input 0";
  const std::vector<std::string> texts = {
      text_of(kPlain),
      text_of("%y: f32[4] = aten.sub.Scalar(%x, 1, 1)"),
      text_of("%y: f32[4] = aten.add.Scalar(%x, true, 1)"),
      text_of("%y: f32[4] = aten.add.Scalar(%x, 1.0, 1)"),  // another kind of number
      text_of("%y: f64[4] = aten.add.Scalar(%x, 1, 1)"),
      text_of("%y: f32[4, 1] = aten.add.Scalar(%x, 1, 1)"),
      text_of("%y: cuda:0 f32[4] = aten.add.Scalar(%x, 1, 1)"),
      text_of("backward:\n  " + kPlain),
      text_of(kPlain, "%x: f32[4] param \"a\""),
      text_of(kPlain, head + ", %z: f32[4] user_input 1"),
      text_of("%y: f32[2, 2] = aten.view(%x, [2, 2])"),
      text_of("%y: f32[2, 2] = aten.view(%x, [2, 2, 1])"),
      text_of("%y: f32[4] = aten.sum.dim_IntList(%x, [0], true)"),
      text_of("%y: f32[4] = aten.sum.dim_IntList(%x, [0], false)"),
  };
  std::set<uint64_t> hashes;
  for (const std::string& text : texts)
    EXPECT_TRUE(hashes.insert(free_hash_of(text)).second) << text;
}

}  // namespace
}  // namespace tandem::ir
