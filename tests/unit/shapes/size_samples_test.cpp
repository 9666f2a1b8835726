/// Expressions that samples tell: those of the family are found, and what is found is right at
/// every value of the symbols, judged by brute force.
#include "shapes/size_samples.h"

#include "shapes/evaluate.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace tandem::shapes {
namespace {

using Row = std::vector<int64_t>;
using Formula = std::function<int64_t(const Row&)>;

std::string name_of(size_t symbol) { return "u" + std::to_string(symbol); }

std::vector<SampledSymbol> symbols_to(const Row& largest) {
  std::vector<SampledSymbol> symbols;
  for (size_t i = 0; i < largest.size(); ++i)
    symbols.push_back({.name = name_of(i), .min = 0, .max = largest[i]});
  return symbols;
}

std::vector<Row> random_rows(const Row& largest, size_t count) {
  std::mt19937 random(3);
  std::vector<Row> rows;
  for (size_t k = 0; k < count; ++k) {
    Row& row = rows.emplace_back();
    for (int64_t most : largest)
      row.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)));
  }
  return rows;
}

std::optional<Size> found(const Row& largest, const Formula& formula) {
  const std::vector<Row> rows = random_rows(largest, 10 + largest.size());
  const SizeSamples samples(symbols_to(largest), rows);
  EXPECT_TRUE(samples.tell_apart());
  Row values;
  for (const Row& row : rows) values.push_back(formula(row));
  return samples.expression(values);
}

/// At every value that the symbols can have.
void expect_right(const Row& largest, const Size& size, const Formula& formula) {
  Row at(largest.size(), 0);
  for (;;) {
    const int64_t value =
        evaluate(size, [&](const std::string& name) { return at[std::stoul(name.substr(1))]; });
    ASSERT_EQ(value, formula(at)) << size;
    size_t i = 0;
    while (i < at.size() && at[i] == largest[i]) at[i++] = 0;
    if (i == at.size()) return;
    ++at[i];
  }
}

TEST(SizeSamples, FindTheFamily) {
  const struct {
    const char* text;
    Formula formula;
  } cases[] = {
      {"7", [](const Row&) { return 7; }},
      {"u1", [](const Row& u) { return u[1]; }},
      {"4*u0", [](const Row& u) { return 4 * u[0]; }},
      {"-u2 + 12", [](const Row& u) { return 12 - u[2]; }},
      {"u0 + u1 + u2", [](const Row& u) { return u[0] + u[1] + u[2]; }},
      {"2*u0 - 3*u2 + 5", [](const Row& u) { return 2 * u[0] - 3 * u[2] + 5; }},
      {"3*u0*u1", [](const Row& u) { return 3 * u[0] * u[1]; }},
      {"u2*u2", [](const Row& u) { return u[2] * u[2]; }},
      {"min(3, u0)", [](const Row& u) { return std::min<int64_t>(u[0], 3); }},
      {"max(1, u1)", [](const Row& u) { return std::max<int64_t>(u[1], 1); }},
      {"floordiv(u1 + 1, 2)", [](const Row& u) { return (u[1] + 1) / 2; }},
  };
  const Row largest{6, 9, 12};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.text);
    const std::optional<Size> size = found(largest, one.formula);
    ASSERT_TRUE(size.has_value());
    expect_right(largest, *size, one.formula);
    std::string_view text(one.text);
    EXPECT_EQ(*size, Size::parse(text));
  }
}

TEST(SizeSamples, RandomSumsAreFoundExactly) {
  std::mt19937 random(5);
  const Row largest{6, 6, 3, 8};
  for (int round = 0; round < 200; ++round) {
    Row factors;
    for (int i = 0; i < 5; ++i) factors.push_back(static_cast<int64_t>(random() % 9) - 4);
    const Formula formula = [&](const Row& u) {
      int64_t sum = factors[4];
      for (size_t i = 0; i < 4; ++i) sum += factors[i] * u[i];
      return sum;
    };
    const std::optional<Size> size = found(largest, formula);
    ASSERT_TRUE(size.has_value());
    expect_right(largest, *size, formula);
  }
}

TEST(SizeSamples, WhatIsNotOfTheFamilyIsNotFound) {
  const Row largest{20, 20};
  for (const Formula& formula : std::vector<Formula>{
           [](const Row& u) { return u[0] * u[0] * u[1]; },
           [](const Row& u) { return u[0] % 4 == 0 ? 1 : u[0]; },
           [](const Row& u) { return (u[0] + 1) * (u[1] + 1); },
           [](const Row& u) { return std::max(u[0], u[1]); },
       }) {
    EXPECT_FALSE(found(largest, formula).has_value());
  }
}

// As many runs as there are symbols do not tell sums apart.
TEST(SizeSamples, TooFewRuns) {
  const Row largest{20, 20, 20};
  EXPECT_FALSE(SizeSamples(symbols_to(largest), random_rows(largest, 3)).tell_apart());
  EXPECT_TRUE(SizeSamples(symbols_to(largest), random_rows(largest, 9)).tell_apart());
  // A symbol that was the same in all of them, although it need not be.
  EXPECT_FALSE(SizeSamples(symbols_to({4}), {{2}, {2}, {2}}).tell_apart());
  // One that has no choice.
  EXPECT_TRUE(SizeSamples(symbols_to({0}), {{0}, {0}, {0}}).tell_apart());
}

TEST(Evaluate, ExpressionsWithNumbers) {
  const auto at = [](std::string_view text) {
    return evaluate(Size::parse(text),
                    [](const std::string& name) { return name == "a" ? 7 : -3; });
  };
  EXPECT_EQ(at("2*a*b + 5"), -37);
  EXPECT_EQ(at("floordiv(b, 2)"), -2);
  EXPECT_EQ(at("mod(b, 4)"), 1);
  EXPECT_EQ(at("min(a, b)"), -3);
  EXPECT_EQ(at("max(a, b + 12)"), 9);
  EXPECT_EQ(symbol_name(Size::symbol("a")), "a");
  EXPECT_EQ(symbol_name(Size::symbol("a") + Size(1)), "");
  EXPECT_EQ(symbol_name(Size(4)), "");
}

}  // namespace
}  // namespace tandem::shapes
