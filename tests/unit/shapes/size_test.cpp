#include "tandem/shapes/size.h"

#include "tandem/error.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace tandem::shapes {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

const Size s0 = Size::symbol("s0");
const Size s1 = Size::symbol("s1");

Size parsed(std::string_view text) {
  Size size = Size::parse(text);
  EXPECT_EQ(text, "") << "left over";
  return size;
}

std::string error_of(auto&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Size, FoldsConstants) {
  EXPECT_EQ(Size(3) + Size(4), Size(7));
  EXPECT_EQ(Size(3) - Size(4), Size(-1));
  EXPECT_EQ(Size(3) * Size(4), Size(12));
  EXPECT_EQ(min(Size(3), Size(4)), Size(3));
  EXPECT_EQ(max(Size(3), Size(4)), Size(4));
}

TEST(Size, DividesTowardsMinusInfinity) {
  for (int64_t a = -7; a <= 7; ++a) {
    for (int64_t b : {-3, -1, 1, 3}) {
      int64_t quotient = floordiv(Size(a), Size(b)).value();
      int64_t rest = mod(Size(a), Size(b)).value();
      EXPECT_EQ(quotient * b + rest, a);
      EXPECT_TRUE(b > 0 ? rest >= 0 && rest < b : rest <= 0 && rest > b) << a << " mod " << b;
    }
  }
}

TEST(Size, IsEqualHoweverItWasBuilt) {
  EXPECT_EQ((s0 + 1) * (s0 + 1), s0 * s0 + 2 * s0 + 1);
  EXPECT_EQ((s0 + s1) * (s0 - s1), s0 * s0 - s1 * s1);
  EXPECT_EQ(s0 * s1, s1 * s0);
  EXPECT_EQ(s0 - s0, Size(0));
  EXPECT_TRUE((s0 - s0).is_constant());
  EXPECT_EQ(((s0 + 1) * 3).hash(), (3 + 3 * s0).hash());
  EXPECT_FALSE(s0 == s1);
  EXPECT_FALSE(s0 == s0 + 1);
  EXPECT_NE(s0.hash(), s1.hash());
}

TEST(Size, TakesWhatADivisorDividesOutOfTheFunction) {
  EXPECT_EQ(floordiv(4 * s0, 2), 2 * s0);
  EXPECT_EQ(floordiv(4 * s0 + 3, 2), 2 * s0 + 1);
  EXPECT_EQ(floordiv(4 * s0 + s1 + 5, 2), 2 * s0 + 2 + floordiv(s1 + 1, 2));
  EXPECT_EQ(mod(4 * s0 + 3, 2), Size(1));
  EXPECT_EQ(mod(5 * s0, 2), mod(s0, 2));
  EXPECT_EQ(floordiv(s0, 1), s0);
  EXPECT_EQ(mod(s0, s0), Size(0));
}

TEST(Size, OrdersMinAndMaxWhereTheDifferenceIsKnown) {
  EXPECT_EQ(min(s0, s0 + 1), s0);
  EXPECT_EQ(max(s0, s0 + 1), s0 + 1);
  EXPECT_EQ(min(s0, s1), min(s1, s0));
  EXPECT_EQ(max(s0, s0), s0);
}

TEST(Size, ListsItsSymbolsOnce) {
  EXPECT_EQ((s1 * floordiv(s0, 3) + s1 + min(s0, 4)).symbols(),
            (std::vector<std::string>{"s0", "s1"}));
  EXPECT_TRUE(Size(4).symbols().empty());
}

TEST(Size, PrintsAndParsesBack) {
  for (std::string text :
       {"0", "12", "-3", "s0", "-s0", "4*s0", "-4*s0", "s0 + 3", "s0 - 3", "s0*s1 + 3",
        "s0*s0 - s1 - 1", "floordiv(s0, 2)", "mod(s0 + 1, 4)", "min(s0, s1)", "max(s0, 4*s1 - 2)",
        "3*s0*floordiv(s1, 2) + min(s0, s1)", "9223372036854775807", "-9223372036854775808"}) {
    EXPECT_EQ(parsed(text).to_string(), text);
  }
}

TEST(Size, ParsesMoreThanItPrints) {
  EXPECT_EQ(parsed("2*(s0+1)*s0"), 2 * s0 * s0 + 2 * s0);
  EXPECT_EQ(parsed("-(s0 - 1)"), 1 - s0);
  EXPECT_EQ(parsed("min"), Size::symbol("min"));
}

TEST(Size, LeavesTheRestOfTheTextAlone) {
  std::string_view text = "4*s0 ], rest";
  EXPECT_EQ(Size::parse(text), 4 * s0);
  EXPECT_EQ(text, " ], rest");
}

TEST(Size, SaysWhatItCannotParse) {
  auto parse = [](std::string_view text) { return error_of([&] { Size::parse(text); }); };
  EXPECT_EQ(parse(""), "shapes: expected a size, got the end");
  EXPECT_EQ(parse("4*]"), "shapes: expected a size, got ']'");
  EXPECT_EQ(parse("min(s0 s1)"), "shapes: expected ',' in min, got ' '");
  EXPECT_EQ(parse("min(s0, s1"), "shapes: expected ')', got the end");
  EXPECT_EQ(parse("9223372036854775808"),
            "shapes: expected an integer of 64 bits, got '9223372036854775808'");
}

TEST(Size, RaisesInsteadOfOverflowing) {
  std::string remedy = "\n  remedy: use smaller tensors";
  EXPECT_EQ(error_of([] { return Size(kMax) + Size(1); }),
            "shapes: a size does not fit into 64 bits: 9223372036854775807 + 1" + remedy);
  EXPECT_EQ(error_of([] { return Size(kMax) * Size(2); }),
            "shapes: a size does not fit into 64 bits: 9223372036854775807 * 2" + remedy);
  EXPECT_EQ(error_of([] { return Size(kMin) - Size(1); }),
            "shapes: a size does not fit into 64 bits: -9223372036854775808 - 1" + remedy);
  EXPECT_EQ(error_of([] { return floordiv(Size(kMin), Size(-1)); }),
            "shapes: a size does not fit into 64 bits: -9223372036854775808 / -1" + remedy);
  EXPECT_EQ(error_of([] { return (s0 * kMax) * 2; }),
            "shapes: a size does not fit into 64 bits: 9223372036854775807 * 2" + remedy);
  EXPECT_EQ(Size(kMin) - Size(kMin), Size(0)) << "the result fits, whatever the way";
  EXPECT_EQ(error_of([] { return floordiv(s0, 0); }), "shapes: a size is divided by zero: s0");
  EXPECT_EQ(error_of([] { return mod(s0, 0); }), "shapes: a size is divided by zero: s0");
}

TEST(Size, RefusesToBeAConstantThatItIsNot) {
  EXPECT_EQ((s0 + 1).maybe_value(), std::nullopt);
  EXPECT_EQ(Size(5).maybe_value(), 5);
  EXPECT_NE(error_of([] { return (s0 + 1).value(); }).find("expected a constant size, got s0 + 1"),
            std::string::npos);
}

/// A random expression, and what it is for given symbols.
struct Sample {
  Size size;
  int64_t value;
};

Sample random_sample(std::mt19937& random, int64_t v0, int64_t v1, int depth) {
  int pick = static_cast<int>(random() % (depth == 0 ? 3 : 10));
  if (pick == 0) return {s0, v0};
  if (pick == 1) return {s1, v1};
  if (pick == 2) {
    auto number = static_cast<int64_t>(random() % 9) - 4;
    return {number, number};
  }
  Sample a = random_sample(random, v0, v1, depth - 1);
  Sample b = random_sample(random, v0, v1, depth - 1);
  auto floored = [](int64_t x, int64_t y) { return x / y - (x % y != 0 && (x < 0) != (y < 0)); };
  auto divisor = static_cast<int64_t>(random() % 4) + 1;
  switch (pick) {
    case 3:
      return {floordiv(a.size, divisor), floored(a.value, divisor)};
    case 4:
      return {mod(a.size, divisor), a.value - divisor * floored(a.value, divisor)};
    case 5:
      return {min(a.size, b.size), std::min(a.value, b.value)};
    case 6:
      return {max(a.size, b.size), std::max(a.value, b.value)};
    case 7:
      return {a.size - b.size, a.value - b.value};
    case 8:
      return {a.size * b.size, a.value * b.value};
    default:
      return {a.size + b.size, a.value + b.value};
  }
}

/// The text with symbols replaced by numbers is a constant expression: parsing evaluates it.
int64_t evaluate(std::string text, int64_t v0, int64_t v1) {
  for (auto [name, value] : {std::pair{"s0", v0}, std::pair{"s1", v1}}) {
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;) {
      text.replace(at, 2, "(" + std::to_string(value) + ")");
    }
  }
  std::string_view view = text;
  return Size::parse(view).value();
}

TEST(Size, KeepsItsValueThroughEveryRewriting) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    auto v0 = static_cast<int64_t>(random() % 11) - 3;
    auto v1 = static_cast<int64_t>(random() % 11) - 3;
    Sample sample = random_sample(random, v0, v1, 4);
    std::string text = sample.size.to_string();
    EXPECT_EQ(evaluate(text, v0, v1), sample.value) << text << " at s0 = " << v0 << ", s1 = " << v1;
    EXPECT_EQ(parsed(text), sample.size) << text;
    EXPECT_EQ(parsed(text).to_string(), text);
  }
}

}  // namespace
}  // namespace tandem::shapes
