#pragma once

#include "tandem/ir/graph.h"

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

namespace tandem::pipeline {

/// Watches one compile: how long each stage took, and its graph as a file if the user asked for
/// dumps.
class StageLog {
 public:
  StageLog(std::string function_name, std::filesystem::path dump_dir)
      : function_name_(std::move(function_name)), dump_dir_(std::move(dump_dir)) {}

  /// Runs a stage and adds its time under `stage`.
  template <class Fn>
  auto time(const std::string& stage, Fn&& fn) {
    const auto start = std::chrono::steady_clock::now();
    struct AddOnExit {
      double& total;
      std::chrono::steady_clock::time_point start;
      ~AddOnExit() {
        total += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      }
    } add{seconds_[stage], start};
    return fn();
  }

  /// Writes `<function>.<number>-<stage>.tdm` into the dump folder; a step that changed nothing
  /// says so.
  void dump(const std::string& stage, const ir::Graph& graph, bool changed = true);

  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  std::string function_name_;
  std::filesystem::path dump_dir_;
  int next_dump_ = 0;
  std::map<std::string, double> seconds_;
};

}  // namespace tandem::pipeline
