// Texts of the typed layer: handles, functions and modules given to compile, what is not built yet.
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tandem {
namespace {

using test::error_text;
using T = at::Tensor;

TEST(CompileErrors, AnEmptyHandle) {
  Compiled<T(T)> empty;
  const std::string text =
      "call: this Compiled handle is empty\n"
      "  remedy: assign it the result of tandem::compile(...)";
  T x = torch::ones({1});

  EXPECT_EQ(error_text<UserError>([&] { empty(x); }), text);
  EXPECT_EQ(error_text<UserError>([&] { empty.stats(); }), text);
  EXPECT_EQ(error_text<UserError>([&] { empty.entries(); }), text);
  EXPECT_EQ(error_text<UserError>([&] { empty.explain(x); }), text);
  EXPECT_EQ(error_text<UserError>([&] { empty.explain(); }), text);
  EXPECT_EQ(error_text<UserError>([&] { empty.report(); }), text);
  EXPECT_EQ(error_text<UserError>([&] { empty.prepare(x); }), text);
  EXPECT_EQ(error_text<UserError>([&] { empty.reset(); }), text);
  EXPECT_EQ(error_text<UserError>([&] { empty.release_cached_memory(); }), text);
}

TEST(CompileErrors, AnEmptyFunction) {
  T (*null)(T) = nullptr;

  EXPECT_EQ(
      error_text<UserError>([] { compile(std::function<T(T)>{}); }),
      "compile: there is nothing to compile: expected a function, got an empty std::function\n"
      "  remedy: assign a function to it first");
  EXPECT_EQ(
      error_text<UserError>([&] { compile(null); }),
      "compile: there is nothing to compile: expected a function, got a null function pointer\n"
      "  remedy: assign a function to it first");
  EXPECT_EQ(
      error_text<UserError>([] { compile(Compiled<T(T)>{}); }),
      "compile: there is nothing to compile: expected a function, got an empty Compiled handle\n"
      "  remedy: assign a function to it first");
  EXPECT_EQ(
      error_text<UserError>([] { compile_boxed({}); }),
      "compile: there is nothing to compile: expected a function, got an empty std::function\n"
      "  remedy: assign a function to it first");
}

TEST(CompileErrors, AnEmptyModule) {
  torch::nn::Linear empty(nullptr), full(1, 1);
  std::shared_ptr<torch::nn::LinearImpl> null;
  auto fn = [](const T& x) { return x; };

  EXPECT_EQ(error_text<UserError>([&] { compile(empty); }),
            "compile: the module is empty: expected a module, got a null pointer\n"
            "  remedy: construct it before compiling");
  EXPECT_EQ(error_text<UserError>([&] { compile(null, fn); }),
            "compile: the module is empty: expected a module, got a null pointer\n"
            "  remedy: construct it before compiling");
  EXPECT_EQ(error_text<UserError>([&] { compile(std::tuple{full, empty}, fn); }),
            "compile: module 1 of 2 is empty: expected a module, got a null pointer\n"
            "  remedy: construct it before compiling");
}

TEST(CompileErrors, WhatIsNotBuiltYet) {
  EXPECT_EQ(error_text<UnsupportedError>([] {
              set_metadata_rule("mylib::op", [](auto operands) {
                return std::vector<ir::TensorType>(operands.begin(), operands.end());
              });
            }),
            "options: set_metadata_rule of mylib::op is not built yet\n"
            "  instead: register a Meta kernel for the op with TORCH_LIBRARY_IMPL");
}

TEST(CompileErrors, ACheckpointInsideATrace) {
  auto fn = compile([](const T& x) { return checkpoint([](const T& y) { return y.sin(); }, x); });

  EXPECT_EQ(error_text<UnsupportedError>([&] { fn(torch::ones({2})); }),
            "trace: checkpoint inside a compiled function is not built yet\n"
            "  instead: call the function itself; the partitioner decides what is saved");
}

}  // namespace
}  // namespace tandem
