#include "pipeline/settings/options.h"

#include "support/environment.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>

namespace tandem::pipeline {
namespace {

struct NullBackend : Backend {
  std::string_view name() const override { return "null"; }
  std::unique_ptr<Executable> compile(const ir::Graph&, const CompileContext&) override {
    return nullptr;
  }
};

TEST(Options, TheDefaultsPass) { EXPECT_NO_THROW(check_options({})); }

TEST(Options, WhatIsBuiltPasses) {
  at::Tensor mask = torch::ones({1});
  int mode = 0;
  Options options{.backend = std::make_shared<NullBackend>(),
                  .partitioner = [](const Joint& joint,
                                    const Options& o) { return default_partition(joint, o); },
                  .max_entries = 1,
                  .on_overflow = OnOverflow::error,
                  .on_unsupported = OnUnsupported::eager,
                  .modules = {torch::nn::Linear(1, 1).ptr()},
                  .closes_over = {&mask},
                  .guard_on = [&] { return mode; },
                  .dump_dir = "dumps"};
  EXPECT_NO_THROW(check_options(options));
}

TEST(BackendRef, OfNobodyIsTheOneThatMakesKernels) {
  EXPECT_EQ(BackendRef().name(), "llvm");
  EXPECT_EQ(Options().backend.name(), "llvm");
}

// Nobody asks for a backend, nor for anything else.
TEST(BackendRef, WhatIsCompiledWithoutAWordRunsOnIt) {
  const test::EnvironmentVariable nobody("TANDEM_BACKEND", nullptr);
  const auto compiled = compile([](const at::Tensor& x) { return x.exp() * 2; });
  compiled(torch::ones({64}));
  const std::string report = compiled.report();
  EXPECT_NE(report.find("backend llvm"), std::string::npos) << report;
  EXPECT_NE(report.find("  k0: reads 256 bytes, writes 256 bytes, "), std::string::npos) << report;
}

TEST(BackendRef, TakesNamesAndObjects) {
  auto object = std::make_shared<NullBackend>();
  std::string name = "eager";

  EXPECT_EQ(BackendRef("eager").name(), "eager");
  EXPECT_EQ(BackendRef(name).name(), "eager");
  EXPECT_EQ(BackendRef(object).name(), "null");
  EXPECT_EQ(BackendRef(object).resolve(), object);
  EXPECT_EQ(BackendRef("eager").resolve()->name(), "eager");
}

}  // namespace
}  // namespace tandem::pipeline
