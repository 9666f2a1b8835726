#include "conformance/case.h"
#include "conformance/status.h"
#include "support/paths.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace tandem::conformance {
namespace {

constexpr int kDiffersAtMost = 40;

/// `Input mutation: data` as the name of a test suite: `InputMutationData`.
std::string suite_name(const std::string& category) {
  std::string name;
  bool start = true;
  for (char c : category) {
    if (!std::isalnum(static_cast<unsigned char>(c))) {
      start = true;
      continue;
    }
    name += start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    start = false;
  }
  return name;
}

/// `closure over a module` as the name of a test, which a filter can name: `closure_over_a_module`.
std::string test_name(const std::string& name) {
  std::string test;
  for (char c : name) test += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return test;
}

struct Ending {
  std::vector<std::string> failures{};
  std::vector<std::string> errors{};  // refusals that the judge met, and what the body threw
};

/// Runs the body and keeps its failures from the test: a case that is `later` must have them.
Ending run_body(const Case& item, Session& session) {
  Ending ending;
  ::testing::TestPartResultArray results;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    try {
      item.body(session);
    } catch (const c10::Error& error) {
      ending.errors.push_back(error.what_without_backtrace());
    } catch (const std::exception& error) {
      ending.errors.push_back(error.what());
    }
  }
  for (const std::string& error : ending.errors) {
    ending.failures.push_back("the case threw: " + error);
  }
  for (int i = 0; i < results.size(); ++i) {
    const ::testing::TestPartResult& part = results.GetTestPartResult(i);
    if (part.failed()) ending.failures.push_back(part.message());
  }
  ending.errors.insert(ending.errors.end(), session.refusals().begin(), session.refusals().end());
  return ending;
}

class CaseTest : public ::testing::Test {
 public:
  CaseTest(const Category& category, const Case& item, Status& status)
      : category_(category), case_(item), status_(status) {}

  void TestBody() override {
    Session session;
    const Ending ending = run_body(case_, session);
    Outcome outcome = Outcome::Failed;
    if (case_.standing.kind == Standing::Kind::Later) {
      bool refused = false;
      for (const std::string& error : ending.errors) {
        refused = refused || error.find(case_.standing.words) != std::string::npos;
      }
      if (refused) {
        outcome = Outcome::Later;
      } else if (ending.failures.empty()) {
        ADD_FAILURE() << "passes now: switch it on";
      } else {
        ADD_FAILURE() << "is later for want of " << name_of(case_.standing.feature)
                      << ", but does not fail with \"" << case_.standing.words << "\"";
      }
    } else if (ending.failures.empty()) {
      outcome = case_.standing.kind == Standing::Kind::Differs ? Outcome::Differs : Outcome::Passed;
    }
    if (outcome == Outcome::Failed) {
      for (const std::string& failure : ending.failures) ADD_FAILURE() << failure;
    }
    status_.add(category_.name, case_, outcome, session);
  }

 private:
  const Category& category_;
  const Case& case_;
  Status& status_;
};

/// The last test: the page in the repository is what this run would write.
class StatusTest : public ::testing::Test {
 public:
  StatusTest(const std::vector<Category>& categories, const Status& status)
      : categories_(categories), status_(status) {}

  void TestBody() override {
    std::set<std::string> names;
    for (const Category& category : categories_) {
      for (const Case& item : category.cases) {
        EXPECT_TRUE(names.insert(category.name + "." + item.name).second)
            << item.name << " is registered twice";
        if (!status_.has(category.name, item.name)) {
          GTEST_SKIP() << "not every case was run: no page";
        }
      }
    }
    EXPECT_LE(status_.count(Outcome::Differs), kDiffersAtMost);
    const auto path = std::filesystem::path(test::kTestsDir) / "conformance" / "STATUS.md";
    const std::string page = status_.page(categories_);
    if (std::getenv("TANDEM_UPDATE_STATUS") != nullptr) {
      std::ofstream(path) << page;
      return;
    }
    std::ifstream file(path);
    std::ostringstream found;
    found << file.rdbuf();
    EXPECT_TRUE(found.str() == page)
        << path << " is not what this run would write: run it with TANDEM_UPDATE_STATUS=1";
  }

 private:
  const std::vector<Category>& categories_;
  const Status& status_;
};

int run(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::vector<Category> categories = all_categories();
  Status status;
  for (const Category& category : categories) {
    for (const Case& item : category.cases) {
      ::testing::RegisterTest(suite_name(category.name).c_str(), test_name(item.name).c_str(),
                              nullptr, nullptr, __FILE__, __LINE__, [&]() -> ::testing::Test* {
                                return new CaseTest(category, item, status);
                              });
    }
  }
  ::testing::RegisterTest("Status", "PageIsCurrent", nullptr, nullptr, __FILE__, __LINE__,
                          [&]() -> ::testing::Test* { return new StatusTest(categories, status); });
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace tandem::conformance

int main(int argc, char** argv) { return tandem::conformance::run(argc, argv); }
