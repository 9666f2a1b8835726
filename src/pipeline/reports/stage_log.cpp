#include "pipeline/reports/stage_log.h"

#include "base/error.h"
#include "base/log.h"
#include "pipeline/settings/environment.h"
#include "tandem/ir/text.h"
#include "tracing/recording/tracing_state.h"
#include "tracing/trace.h"

#include <fstream>
#include <optional>

namespace tandem::pipeline {
namespace {

struct Share {
  const char* stage;
  double before;  // of the whole, when the stage starts
};
/// Measured on a transformer with the eager backend: a guess for any other program, but in order.
constexpr Share kShares[] = {{"trace", 0.0},   {"signature", 0.35}, {"joint", 0.4},
                             {"passes", 0.75}, {"partition", 0.85}, {"lower", 0.9}};

double share_before(const std::string& stage) {
  for (const Share& share : kShares) {
    if (stage == share.stage) return share.before;
  }
  TANDEM_CHECK(false, "pipeline", "stage ", stage, " has no share of the whole");
}

}  // namespace

void StageLog::begin(const std::string& stage) {
  stage_ = stage;
  if (on_event_) tell(stage, share_before(stage));
}

void StageLog::finish() {
  if (on_event_) tell(stage_, 1.0);
  if (base::log_level() < base::LogLevel::Debug) return;
  for (const auto* times : {&seconds_, &step_seconds_}) {
    for (const auto& [stage, seconds] : *times) {
      base::log(base::LogLevel::Debug,
                base::str(function_name_, ": ", stage, " took ", seconds * 1e3, " ms"));
    }
  }
}

void StageLog::tell(const std::string& stage, double done) {
  bool go_on = false;
  {
    // The trace may be open: what the user's callback computes is no part of it.
    std::optional<tracing::OutsideTrace> outside;
    if (tracing::is_tracing()) outside.emplace();
    ended_by_user_ = true;  // unless the callback comes back and agrees
    go_on = on_event_(Event{.stage = stage, .done = done});
  }
  TANDEM_REQUIRE(go_on, stage, "cancelled by on_event at stage ", stage,
                 "\n  remedy: none needed; nothing has changed, and the next call compiles again");
  ended_by_user_ = false;
}

namespace {

/// What `write` raises names the variable that has asked for dumps.
template <class Write>
void write_dump(Write&& write) {
  try {
    write();
  } catch (const UserError& error) {
    throw base::with_detail(error, "set by", environment_setting("TANDEM_DUMP_DIR"));
  }
}

}  // namespace

void StageLog::dump(const std::string& stage, const ir::Graph& graph, bool changed) {
  if (dump_dir_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(dump_dir_, error);
  const std::string number = (next_dump_ < 10 ? "0" : "") + std::to_string(next_dump_);
  const auto file = dump_dir_ / (function_name_ + "." + number + "-" + stage + ".tdm");
  ++next_dump_;
  write_dump([&] {
    if (changed) {
      ir::write_file(file, {&graph, 1});
      return;
    }
    std::ofstream out(file);
    out << "# unchanged\n";
    TANDEM_REQUIRE(out.good(), "options", "cannot write the dump ", file.string(),
                   "\n  remedy: set dump_dir to a folder that can be written");
  });
}

void StageLog::dump(const std::string& half, const Executable& executable) {
  if (dump_dir_.empty()) return;
  for (const Executable::Listing& listing : executable.listings()) {
    const auto file = dump_dir_ / (function_name_ + "." + half + "." + listing.name);
    write_dump([&] {
      std::ofstream out(file);
      out << listing.text;
      TANDEM_REQUIRE(out.good(), "options", "cannot write the dump ", file.string(),
                     "\n  remedy: set dump_dir to a folder that can be written");
    });
  }
}

}  // namespace tandem::pipeline
