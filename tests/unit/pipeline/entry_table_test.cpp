#include "pipeline/entry_table.h"

#include <gtest/gtest.h>

namespace tandem::pipeline {
namespace {

TEST(EntryTable, KeepsFewerVariantsOfALargeModel) {
  EXPECT_EQ(most_variants(1), 1024u);
  EXPECT_EQ(most_variants(600), 110u);   // two transformer blocks
  EXPECT_EQ(most_variants(3'700), 64u);  // twelve
  EXPECT_EQ(most_variants(100'000), 64u);
  for (size_t nodes = 0; nodes < 2'000; ++nodes)
    EXPECT_GE(most_variants(nodes), most_variants(nodes + 1)) << nodes;
}

}  // namespace
}  // namespace tandem::pipeline
