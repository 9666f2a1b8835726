#include "runtime/backward/call_node.h"

#include <gtest/gtest.h>

namespace tandem::runtime {
namespace {

// glibc keeps freed blocks up to this size in a list of the thread. A call allocates one node, and
// beyond the limit that takes a tenth of a plain call.
TEST(CallNode, IsSmallEnoughForTheQuickListsOfMalloc) { EXPECT_LE(sizeof(CallNode), 1032u); }

}  // namespace
}  // namespace tandem::runtime
