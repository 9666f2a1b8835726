#include "shapes/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tandem::shapes {
namespace {

struct View {
  int64_t offset;
  std::vector<int64_t> sizes, strides;
  int64_t element_bytes = 4;

  StridedView strided() const { return {offset, sizes, strides, element_bytes}; }

  std::set<int64_t> bytes() const {
    std::set<int64_t> starts{offset};
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::set<int64_t> all;
      for (int64_t start : starts) {
        for (int64_t k = 0; k < sizes[i]; ++k) all.insert(start + k * strides[i]);
      }
      starts = std::move(all);
    }
    std::set<int64_t> touched;
    for (int64_t start : starts) {
      for (int64_t k = 0; k < element_bytes; ++k) touched.insert(start * element_bytes + k);
    }
    return touched;
  }
};

bool overlap(const View& a, const View& b) { return may_overlap(a.strided(), b.strided()); }

bool truth(const View& a, const View& b) {
  std::set<int64_t> other = b.bytes();
  for (int64_t byte : a.bytes()) {
    if (other.contains(byte)) return true;
  }
  return false;
}

TEST(Overlap, IsExactForContiguousRanges) {
  EXPECT_FALSE(overlap({0, {4}, {1}}, {4, {4}, {1}}));
  EXPECT_TRUE(overlap({0, {5}, {1}}, {4, {4}, {1}}));
  EXPECT_TRUE(overlap({0, {100}, {1}}, {40, {2}, {1}}));
}

TEST(Overlap, TellsColumnsOfAMatrixApart) {
  // Large, so that counting elements is out of the question.
  std::vector<int64_t> sizes{100000, 3};
  std::vector<int64_t> strides{1000, 1};
  EXPECT_FALSE(overlap({0, sizes, strides}, {3, sizes, strides}));
  EXPECT_TRUE(overlap({0, sizes, strides}, {2, sizes, strides}));
  EXPECT_FALSE(overlap({5003, sizes, strides}, {5000, sizes, strides}))
      << "a matrix with an offset";
}

TEST(Overlap, TellsInterleavedSlicesApart) {
  EXPECT_FALSE(overlap({0, {1000000}, {2}}, {1, {1000000}, {2}}));
  EXPECT_TRUE(overlap({0, {1000000}, {2}}, {2, {1000000}, {2}}));
}

TEST(Overlap, SeesNothingInAnEmptyView) {
  EXPECT_FALSE(overlap({0, {0, 4}, {4, 1}}, {0, {4}, {1}}));
}

TEST(Overlap, SeesAScalarInsideAMatrix) {
  EXPECT_TRUE(overlap({5, {}, {}}, {0, {4, 4}, {4, 1}}));
  EXPECT_FALSE(overlap({16, {}, {}}, {0, {4, 4}, {4, 1}}));
}

TEST(Overlap, ComparesBytesWhereElementSizesDiffer) {
  EXPECT_TRUE(overlap({1, {1}, {1}, 4}, {4, {1}, {1}, 1}));
  EXPECT_FALSE(overlap({1, {1}, {1}, 4}, {3, {1}, {1}, 1}));
}

View random_view(std::mt19937& random) {
  View view{static_cast<int64_t>(random() % 24), {}, {}, int64_t{1} << random() % 3};
  for (auto rank = random() % 4; rank > 0; --rank) {
    view.sizes.push_back(static_cast<int64_t>(random() % 4) + (random() % 16 != 0));
    view.strides.push_back(static_cast<int64_t>(random() % 13));
  }
  return view;
}

// Never false where bytes are shared; and on views this small the answer is exact.
TEST(Overlap, AgreesWithCountingBytesOnSmallViews) {
  std::mt19937 random(11);
  int64_t apart = 0;
  for (int i = 0; i < 20000; ++i) {
    View a = random_view(random);
    View b = random_view(random);
    ASSERT_EQ(overlap(a, b), truth(a, b))
        << ::testing::PrintToString(a.sizes) << ::testing::PrintToString(a.strides) << " at "
        << a.offset << " x" << a.element_bytes << " and " << ::testing::PrintToString(b.sizes)
        << ::testing::PrintToString(b.strides) << " at " << b.offset << " x" << b.element_bytes;
    apart += !truth(a, b);
  }
  EXPECT_GT(apart, 2000) << "the sample must hold both answers";
}

}  // namespace
}  // namespace tandem::shapes
