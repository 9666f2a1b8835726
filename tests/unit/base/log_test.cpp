#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::base {
namespace {

/// Collects lines, and puts sink and level back.
class LogTest : public testing::Test {
 protected:
  LogTest() {
    before_ = set_log_sink([this](const std::string& line) { lines.push_back(line); });
    set_log_level(LogLevel::Warning);
  }
  ~LogTest() override {
    set_log_sink(before_);
    set_log_level(LogLevel::Warning);
  }
  std::vector<std::string> lines;

 private:
  LogSink before_;
};

TEST_F(LogTest, AWarningIsALineWithItsPrefix) {
  warn("disk is full");
  EXPECT_EQ(lines, std::vector<std::string>{"tandem: warning: disk is full"});
}

TEST_F(LogTest, WarnOnceSaysAKeyOnce) {
  warn_once("log_test a", "first");
  warn_once("log_test a", "second");
  warn_once("log_test b", "third");
  EXPECT_EQ(lines, (std::vector<std::string>{"tandem: warning: first", "tandem: warning: third"}));
}

TEST_F(LogTest, SaysNoMoreThanTheLevelAllows) {
  log(LogLevel::Info, "not said");
  set_log_level(LogLevel::Info);
  log(LogLevel::Info, "compiled");
  log(LogLevel::Debug, "not said either");
  set_log_level(LogLevel::Debug);
  log(LogLevel::Debug, "details");
  EXPECT_EQ(lines, (std::vector<std::string>{"tandem: info: compiled", "tandem: debug: details"}));
}

TEST_F(LogTest, WithoutASinkItGoesToStderr) {
  LogSink collecting = set_log_sink({});
  testing::internal::CaptureStderr();
  warn("to stderr");
  std::string text = testing::internal::GetCapturedStderr();
  set_log_sink(collecting);
  EXPECT_EQ(text, "tandem: warning: to stderr\n");
  EXPECT_TRUE(lines.empty());
}

}  // namespace
}  // namespace tandem::base
