#include "pipeline/settings/environment.h"

#include "base/log.h"
#include "support/environment.h"
#include "support/paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tandem::pipeline {
namespace {

using test::EnvironmentVariable;

/// The plain function behind a partitioner.
Split (*target(const Partitioner& partitioner))(const Joint&, const Options&) {
  const auto* function = partitioner.target<Split (*)(const Joint&, const Options&)>();
  return function == nullptr ? nullptr : *function;
}

TEST(Environment, BeatsTheCode) {
  EnvironmentVariable max_entries("TANDEM_MAX_ENTRIES", "4");

  Options options = apply_environment({.max_entries = 9, .verify_every = 3});

  EXPECT_EQ(options.max_entries, 4);
  EXPECT_EQ(options.verify_every, 3) << "what is not set stays";
}

TEST(Environment, SetsEveryPlainField) {
  EnvironmentVariable variables[] = {
      {"TANDEM_BACKEND", "llvm"},          {"TANDEM_CACHE_DIR", "a/cache"},
      {"TANDEM_DUMP_DIR", "a/dump"},       {"TANDEM_DYNAMIC", "always"},
      {"TANDEM_HIGHER_ORDER", "false"},    {"TANDEM_INTEGER_SIZES", "strict"},
      {"TANDEM_MAX_ENTRIES", "3"},         {"TANDEM_MEMORY_BUDGET", "0.5"},
      {"TANDEM_MUTATIONS", "epilogue"},    {"TANDEM_ON_OVERFLOW", "error"},
      {"TANDEM_ON_UNSUPPORTED", "eager"},  {"TANDEM_PARTITIONER", "min_cut"},
      {"TANDEM_PEAK_LIMIT_BYTES", "4096"}, {"TANDEM_RANDOM", "fast"},
      {"TANDEM_ROUNDING", "fast"},         {"TANDEM_VERIFY_EVERY", "10"},
  };

  Options options = apply_environment({});

  EXPECT_EQ(options.backend.name(), "llvm");
  EXPECT_EQ(options.cache_dir, "a/cache");
  EXPECT_EQ(options.dump_dir, "a/dump");
  EXPECT_EQ(options.dynamic, Dynamic::always);
  EXPECT_FALSE(options.higher_order);
  EXPECT_EQ(options.integer_sizes, IntegerSizes::strict);
  EXPECT_EQ(options.max_entries, 3);
  EXPECT_EQ(options.memory_budget, 0.5);
  EXPECT_EQ(options.mutations, Mutations::epilogue);
  EXPECT_EQ(options.on_overflow, OnOverflow::error);
  EXPECT_EQ(options.on_unsupported, OnUnsupported::eager);
  EXPECT_EQ(target(options.partitioner), &min_cut);
  EXPECT_EQ(options.peak_limit_bytes, 4096);
  EXPECT_EQ(options.random, Random::fast);
  EXPECT_EQ(options.rounding, Rounding::fast);
  EXPECT_EQ(options.verify_every, 10);
}

TEST(Environment, ReadsTheOtherWordsToo) {
  EnvironmentVariable variables[] = {
      {"TANDEM_DYNAMIC", "automatic"},      {"TANDEM_HIGHER_ORDER", "true"},
      {"TANDEM_INTEGER_SIZES", "inferred"}, {"TANDEM_MUTATIONS", "in_graph"},
      {"TANDEM_ON_OVERFLOW", "eager"},      {"TANDEM_ON_UNSUPPORTED", "error"},
      {"TANDEM_PARTITIONER", "default"},    {"TANDEM_RANDOM", "eager"},
      {"TANDEM_ROUNDING", "eager"},
  };

  Options options = apply_environment({.partitioner = min_cut,
                                       .rounding = Rounding::fast,
                                       .random = Random::fast,
                                       .mutations = Mutations::epilogue,
                                       .on_overflow = OnOverflow::error,
                                       .on_unsupported = OnUnsupported::eager,
                                       .higher_order = false});

  EXPECT_EQ(options.dynamic, Dynamic::automatic);
  EXPECT_EQ(options.integer_sizes, IntegerSizes::inferred);
  EXPECT_EQ(options.mutations, Mutations::in_graph);
  EXPECT_EQ(options.on_overflow, OnOverflow::eager);
  EXPECT_EQ(options.on_unsupported, OnUnsupported::error);
  EXPECT_EQ(options.random, Random::eager);
  EXPECT_EQ(options.rounding, Rounding::eager);
  EXPECT_EQ(target(options.partitioner), &default_partition);
  EXPECT_TRUE(options.higher_order);
}

TEST(Environment, AnEmptyValueCountsAsNotSet) {
  EnvironmentVariable dynamic("TANDEM_DYNAMIC", ""), backend("TANDEM_BACKEND", nullptr);
  EXPECT_EQ(apply_environment({}).dynamic, Options{}.dynamic);
  EXPECT_EQ(describe_environment(), "");
}

TEST(Environment, SetsTheLogLevelAndTakesItBack) {
  {
    EnvironmentVariable log("TANDEM_LOG", "debug");
    apply_environment({});
    EXPECT_EQ(base::log_level(), base::LogLevel::Debug);
  }
  apply_environment({});
  EXPECT_EQ(base::log_level(), base::LogLevel::Warning);
}

TEST(Environment, AnUnknownNameWarnsOnceWithTheNearest) {
  EnvironmentVariable typo("TANDEM_BAKCEND", "eager");
  std::vector<std::string> lines;
  base::LogSink before =
      base::set_log_sink([&](const std::string& line) { lines.push_back(line); });

  apply_environment({});
  apply_environment({});

  base::set_log_sink(before);
  EXPECT_EQ(lines, std::vector<std::string>{
                       "tandem: warning: unknown environment variable TANDEM_BAKCEND, did "
                       "you mean TANDEM_BACKEND?"});
}

TEST(Environment, IsDescribedForExplain) {
  EnvironmentVariable backend("TANDEM_BACKEND", "eager");
  EnvironmentVariable max_entries("TANDEM_MAX_ENTRIES", "4");
  EnvironmentVariable unknown("TANDEM_MAX_ENTIRES", "5");

  EXPECT_EQ(describe_environment(), "TANDEM_BACKEND=eager, TANDEM_MAX_ENTRIES=4");
}

// The page is written by hand; a name that is missing there does not exist for users.
TEST(Environment, EveryNameIsInTheReference) {
  std::ifstream file(std::string(test::kTestsDir) + "/../docs/reference/options.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::vector<std::string> names = environment_names();

  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names) {
    EXPECT_NE(text.str().find("`" + name + "`"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace tandem::pipeline
