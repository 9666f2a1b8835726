/// No module of the C++ front end is forgotten: the headers of the libtorch in use are the list.
#include "support/paths.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace tandem::test {
namespace {

std::set<std::string> modules_of_the_front_end() {
  const std::filesystem::path folder =
      std::filesystem::path(test::kTorchIncludeDir) / "torch/csrc/api/include/torch/nn/modules";
  const std::regex holder(R"((?:^|\n)TORCH_MODULE(?:_IMPL)?\((\w+))");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".h") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string content = text.str();
    for (std::sregex_iterator it(content.begin(), content.end(), holder), end; it != end; ++it) {
      names.insert((*it)[1]);
    }
  }
  return names;
}

/// Names of the cases in *_modules_test.cpp, up to the underscore.
std::set<std::string> modules_with_a_case() {
  std::set<std::string> names;
  const ::testing::UnitTest& program = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < program.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *program.GetTestSuite(i);
    if (!std::string(suite.name()).ends_with("Modules")) continue;
    for (int j = 0; j < suite.total_test_count(); ++j) {
      std::string name = suite.GetTestInfo(j)->name();
      name.erase(0, name.find('/') + 1);
      names.insert(name.substr(0, name.find('_')));
    }
  }
  return names;
}

TEST(ModuleCensus, EveryModuleHasACase) {
  // Refused as a whole; loss_modules_test.cpp has tests of their own.
  const std::set<std::string> refused{"AdaptiveLogSoftmaxWithLoss", "CTCLoss"};
  const std::set<std::string> modules = modules_of_the_front_end(), cases = modules_with_a_case();
  EXPECT_GT(modules.size(), 100u);
  for (const std::string& module : modules) {
    EXPECT_TRUE(cases.contains(module) || refused.contains(module)) << module << " has no case";
  }
}

}  // namespace
}  // namespace tandem::test
