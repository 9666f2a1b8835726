#pragma once

#include "tandem/backend.h"
#include "tandem/ir/graph.h"
#include "tandem/options.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace tandem::pipeline {

/// Watches one compile: how long each stage took, its graph as a file if the user asked for dumps,
/// and the user's on_event, which may end the compile.
class StageLog {
 public:
  using OnEvent = std::function<bool(const Event&)>;

  StageLog(std::string function_name, std::filesystem::path dump_dir, OnEvent on_event = {})
      : function_name_(std::move(function_name)),
        dump_dir_(std::move(dump_dir)),
        on_event_(std::move(on_event)) {}

  /// Runs a stage and adds its time under `stage`.
  template <class Fn>
  auto time(const std::string& stage, Fn&& fn) {
    begin(stage);
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

  /// Adds the time of one step of a stage, of which the stage's own time has it, too.
  void note_step(const std::string& stage, const std::string& step, double seconds) {
    step_seconds_[stage + "/" + step] += seconds;
  }

  /// After the last stage.
  void finish();

  /// Writes `<function>.<number>-<stage>.tdm` into the dump folder; a step that changed nothing
  /// says so.
  void dump(const std::string& stage, const ir::Graph& graph, bool changed = true);

  /// Writes what a backend made on its way as `<function>.<half>.<name of the listing>`.
  void dump(const std::string& half, const Executable& executable);

  const std::map<std::string, double>& seconds() const { return seconds_; }
  /// By `<stage>/<step>`.
  const std::map<std::string, double>& step_seconds() const { return step_seconds_; }
  /// on_event returned false or threw. Not a property of the function: nothing to remember.
  bool ended_by_user() const { return ended_by_user_; }

 private:
  void begin(const std::string& stage);
  void tell(const std::string& stage, double done);

  std::string function_name_;
  std::filesystem::path dump_dir_;
  OnEvent on_event_;
  std::string stage_;
  bool ended_by_user_ = false;
  int next_dump_ = 0;
  std::map<std::string, double> seconds_, step_seconds_;
};

}  // namespace tandem::pipeline
