#include "base/philox.h"

#include <gtest/gtest.h>

namespace tandem::base {
namespace {

/// Counter and key of the published generator, as ours takes them.
uint64_t published(uint64_t low, uint64_t high, uint64_t key) {
  return philox(high << 32 | low, key);
}

// The known answers that its authors publish, for a key without a high half.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(published(0, 0, 0), 0x6cd10df2ff1dae59);
  EXPECT_EQ(published(0xffffffff, 0xffffffff, 0xffffffff), 0xab4fd7ad2c3f628b);
  EXPECT_EQ(published(0x243f6a88, 0x85a308d3, 0x13198a2e), 0xf62a4c12dd7ce038);
}

TEST(Philox, TheHighHalfOfTheKeyCounts) {
  EXPECT_NE(philox(7, 1), philox(7, uint64_t{1} << 32 | 1));
  EXPECT_EQ(philox(7, uint64_t{9} << 32 | 1), published(7, 9, 1));
}

}  // namespace
}  // namespace tandem::base
