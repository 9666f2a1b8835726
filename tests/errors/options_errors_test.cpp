// Texts of options, from the code and from the environment.
#include "support/environment.h"
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>

namespace tandem {
namespace {

using test::EnvironmentVariable;
using test::error_text;
using T = at::Tensor;

template <class Error>
std::string text_of(Options options) {
  return error_text<Error>([&] { compile([](const T& x) { return x; }, std::move(options)); });
}

template <class Error>
std::string text_of(const char* name, const char* value) {
  EnvironmentVariable variable(name, value);
  return text_of<Error>(Options{});
}

TEST(OptionsErrors, ValuesThatMakeNoSense) {
  const EnvironmentVariable no_other("TANDEM_BACKEND", nullptr);
  EXPECT_EQ(text_of<UserError>({.partitioner = nullptr}),
            "options: partitioner is empty\n"
            "  remedy: leave it out, or give tandem::min_cut or a function of your own");
  EXPECT_EQ(text_of<UserError>({.max_entries = 0}),
            "options: max_entries is 0: expected at least 1\n"
            "  remedy: 1 keeps a single entry; to run without Tandem, call your function itself");
  EXPECT_EQ(text_of<UserError>({.verify_every = -2}),
            "options: verify_every is -2: expected 0 (never) or a number of calls\n"
            "  remedy: leave it out");
  EXPECT_EQ(text_of<UserError>({.memory_budget = 1.5}),
            "options: memory_budget is 1.5: expected a share from 0 to 1\n"
            "  remedy: for a limit in bytes use peak_limit_bytes");
  EXPECT_EQ(text_of<UserError>({.peak_limit_bytes = 0}),
            "options: peak_limit_bytes is 0: expected more than 0\n"
            "  remedy: leave it out for no limit");
  EXPECT_EQ(text_of<UserError>({.modules = {nullptr}}),
            "options: modules[0] is a null pointer\n"
            "  remedy: construct the module before compiling");
  EXPECT_EQ(text_of<UserError>({.closes_over = {nullptr}}),
            "options: closes_over[0] is a null pointer\n"
            "  remedy: give the address of the tensor variable that the function closes over");
  EXPECT_EQ(text_of<UserError>({.backend = std::shared_ptr<Backend>()}),
            "options: backend is a null pointer\n"
            "  remedy: give a Backend object, or the name of one: \"eager\"");
}

TEST(OptionsErrors, FieldsThatAreNotBuiltYet) {
  EXPECT_EQ(text_of<UnsupportedError>({.integer_sizes = IntegerSizes::inferred}),
            "options: integer_sizes = inferred is not built yet\n"
            "  instead: checked: the function is traced once for each set of sizes");
  EXPECT_EQ(text_of<UnsupportedError>({.integer_sizes = IntegerSizes::strict}),
            "options: integer_sizes = strict is not built yet\n"
            "  instead: checked: the function is traced once for each set of sizes");
  EXPECT_EQ(text_of<UnsupportedError>({.memory_budget = 0.5}),
            "options: memory_budget is not built yet\n"
            "  instead: leave it out; the partitioner decides what is saved");
  EXPECT_EQ(text_of<UnsupportedError>({.peak_limit_bytes = 1 << 20}),
            "options: peak_limit_bytes is not built yet\n"
            "  instead: leave it out; no limit is kept");
  EXPECT_EQ(text_of<UnsupportedError>({.cache_dir = "cache"}),
            "options: cache_dir is not built yet\n"
            "  instead: leave it out; every process compiles for itself");
}

TEST(OptionsErrors, AnEnvironmentVariableThatCannotBeRead) {
  const std::string remedy = "\n  remedy: correct it or unset it; it beats what the program says";
  auto expected = [&](const std::string& what) {
    return "options: environment variable " + what + remedy;
  };

  EXPECT_EQ(text_of<UserError>("TANDEM_STRICT", "yes"),
            expected("TANDEM_STRICT cannot be read: expected 0 or 1, got \"yes\""));
  EXPECT_EQ(text_of<UserError>("TANDEM_CHECK", "2"),
            expected("TANDEM_CHECK cannot be read: expected 0 or 1, got \"2\""));
  EXPECT_EQ(
      text_of<UserError>("TANDEM_DYNAMIC", "sometimes"),
      expected(
          "TANDEM_DYNAMIC cannot be read: expected automatic, never or always, got \"sometimes\""));
  EXPECT_EQ(text_of<UserError>("TANDEM_HIGHER_ORDER", "yes"),
            expected("TANDEM_HIGHER_ORDER cannot be read: expected true or false, got \"yes\""));
  EXPECT_EQ(
      text_of<UserError>("TANDEM_INTEGER_SIZES", "x"),
      expected(
          "TANDEM_INTEGER_SIZES cannot be read: expected checked, inferred or strict, got \"x\""));
  EXPECT_EQ(
      text_of<UserError>("TANDEM_LOG", "verbose"),
      expected("TANDEM_LOG cannot be read: expected warning, info or debug, got \"verbose\""));
  EXPECT_EQ(
      text_of<UserError>("TANDEM_MAX_ENTRIES", "0"),
      expected("TANDEM_MAX_ENTRIES cannot be read: expected an integer, at least 1, got \"0\""));
  EXPECT_EQ(
      text_of<UserError>("TANDEM_MAX_ENTRIES", "4x"),
      expected("TANDEM_MAX_ENTRIES cannot be read: expected an integer, at least 1, got \"4x\""));
  EXPECT_EQ(
      text_of<UserError>("TANDEM_MEMORY_BUDGET", "2"),
      expected("TANDEM_MEMORY_BUDGET cannot be read: expected a number from 0 to 1, got \"2\""));
  EXPECT_EQ(text_of<UserError>("TANDEM_MUTATIONS", "x"),
            expected("TANDEM_MUTATIONS cannot be read: expected in_graph or epilogue, got \"x\""));
  EXPECT_EQ(text_of<UserError>("TANDEM_ON_OVERFLOW", "x"),
            expected("TANDEM_ON_OVERFLOW cannot be read: expected eager or error, got \"x\""));
  EXPECT_EQ(text_of<UserError>("TANDEM_ON_UNSUPPORTED", "x"),
            expected("TANDEM_ON_UNSUPPORTED cannot be read: expected error or eager, got \"x\""));
  EXPECT_EQ(
      text_of<UserError>("TANDEM_PASSES", "-merge-views,x"),
      expected("TANDEM_PASSES cannot be read: expected passes with commas between them, those "
               "to be left out with a - before them, got \"-merge-views,x\""));
  EXPECT_EQ(text_of<UserError>("TANDEM_PARTITIONER", "x"),
            expected("TANDEM_PARTITIONER cannot be read: expected default, min_cut or "
                     "min_cut_recompute, got \"x\""));
  EXPECT_EQ(
      text_of<UserError>("TANDEM_PEAK_LIMIT_BYTES", "1GB"),
      expected(
          "TANDEM_PEAK_LIMIT_BYTES cannot be read: expected an integer, at least 1, got \"1GB\""));
  EXPECT_EQ(text_of<UserError>("TANDEM_RANDOM", "x"),
            expected("TANDEM_RANDOM cannot be read: expected eager or fast, got \"x\""));
  EXPECT_EQ(text_of<UserError>("TANDEM_ROUNDING", "x"),
            expected("TANDEM_ROUNDING cannot be read: expected eager or fast, got \"x\""));
  EXPECT_EQ(
      text_of<UserError>("TANDEM_VERIFY_EVERY", "-1"),
      expected("TANDEM_VERIFY_EVERY cannot be read: expected an integer, at least 0, got \"-1\""));
}

TEST(OptionsErrors, EnvironmentVariablesThatAreNotBuiltYet) {
  EXPECT_EQ(text_of<UnsupportedError>("TANDEM_INTEGER_SIZES", "strict"),
            "options: integer_sizes = strict is not built yet\n"
            "  set by:  TANDEM_INTEGER_SIZES=strict\n"
            "  instead: checked: the function is traced once for each set of sizes");
}

TEST(OptionsErrors, WhatAVariableIsToBlameForNamesIt) {
  const std::string text = text_of<UserError>("TANDEM_BACKEND", "egaer");
  EXPECT_EQ(text.find("lower: no backend is called \"egaer\"\n"), 0) << text;
  EXPECT_NE(text.find("  set by: TANDEM_BACKEND=egaer\n"), std::string::npos) << text;
  EnvironmentVariable dumps("TANDEM_DUMP_DIR", "/dev/null/dumps");
  const std::string dump =
      error_text<UserError>([] { compile([](const T& x) { return x * 2; })(torch::ones({2})); });
  EXPECT_NE(dump.find("  set by: TANDEM_DUMP_DIR=/dev/null/dumps"), std::string::npos) << dump;
}

// The variable beats the program, and is not named for what the program has got wrong.
TEST(OptionsErrors, AVariableIsNotBlamedForTheProgram) {
  EnvironmentVariable backend("TANDEM_BACKEND", "eager");
  EXPECT_NO_THROW(compile([](const T& x) { return x; }, {.backend = "egaer"}));
  EXPECT_EQ(text_of<UnsupportedError>({.integer_sizes = IntegerSizes::strict}),
            "options: integer_sizes = strict is not built yet\n"
            "  instead: checked: the function is traced once for each set of sizes");
  EXPECT_EQ(error_text<UserError>([] {
              compile([](const T& x) { return x * 2; },
                      {.dump_dir = "/dev/null/dumps"})(torch::ones({2}));
            }).find("set by"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
