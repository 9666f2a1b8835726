#include "conformance/case.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

/// Every test of the peer that can be stated in C++ is registered, in its category.
namespace tandem::conformance {
namespace {

struct Row {
  const char* category;
  size_t core, adjacent;  // tests of the main files, and of the files beside them
};
constexpr Row kPeer[] = {
    {"Basics: calling convention, grad mode, training/inference choice", 28, 6},
    {"Tracing front end", 6, 0},
    {"Input mutation: data", 12, 22},
    {"Input mutation: metadata", 3, 0},
    {"Input mutation: set_ and storage resize", 4, 0},
    {"Output alias of an input", 10, 10},
    {"Intermediate base, aliases among outputs", 11, 4},
    {"Dedupe of arguments", 2, 3},
    {"Synthetic base (aliased, mutated inputs)", 15, 0},
    {"Mutation in the backward", 4, 1},
    {"Batch norm buffers and other mutated buffers", 5, 0},
    {"Dynamic shapes", 6, 3},
    {"Partitioner: default, extraction, tagging", 7, 1},
    {"Partitioner: min-cut", 5, 0},
    {"Checkpointing, memory budget, knapsack", 36, 0},
    {"Common-subexpression removal and rematerialising preset", 20, 0},
    {"Tangents: layout and type", 2, 4},
    {"Lifetime and memory", 3, 0},
    {"Saved-tensor hooks and donated buffers", 0, 9},
    {"RNG", 12, 9},
    {"Effect tokens", 10, 15},
    {"Autocast", 5, 2},
    {"Streams and ordering nodes", 8, 0},
    {"Custom op / custom autograd function", 2, 1},
    {"Double backward", 1, 1},
    {"Metadata analysis records", 1, 0},
    {"Error messages and run-time assertions", 15, 3},
    {"Export", 7, 0},
    {"Cache", 2, 0},
    {"Compiled optimisers", 1, 0},
};

TEST(Inventory, EveryTestOfThePeerIsRegistered) {
  std::map<std::string, size_t> registered;
  for (const Category& category : all_categories())
    registered[category.name] = category.cases.size();
  size_t core = 0, adjacent = 0;
  for (const Row& row : kPeer) {
    EXPECT_EQ(registered[row.category], row.core + row.adjacent) << row.category;
    core += row.core;
    adjacent += row.adjacent;
  }
  EXPECT_EQ(core, 243);
  EXPECT_EQ(adjacent, 94);
}

}  // namespace
}  // namespace tandem::conformance
