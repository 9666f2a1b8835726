#pragma once

#include <ftw.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace tandem::test {

/// A folder of its own for a test, gone at the end of the scope.
///
/// Removed with POSIX calls: libtorch 2.11 exports parts of an older std::filesystem, and its
/// remove_all, which the loader then prefers, crashes.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::path(::testing::TempDir()) /
              ("tandem." + name + "." + std::to_string(::getpid()))) {
    ::mkdir(path_.c_str(), 0700);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    const auto remove = [](const char* path, const struct stat*, int, struct FTW*) {
      return std::remove(path);
    };
    ::nftw(path_.c_str(), remove, 8, FTW_DEPTH | FTW_PHYS);
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tandem::test
