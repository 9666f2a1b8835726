#include "pipeline/stage_log.h"

#include "base/error.h"
#include "tandem/ir/text.h"

#include <fstream>

namespace tandem::pipeline {

void StageLog::dump(const std::string& stage, const ir::Graph& graph, bool changed) {
  if (dump_dir_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(dump_dir_, error);
  const std::string number = (next_dump_ < 10 ? "0" : "") + std::to_string(next_dump_);
  const auto file = dump_dir_ / (function_name_ + "." + number + "-" + stage + ".tdm");
  ++next_dump_;
  if (changed) {
    ir::write_file(file, {&graph, 1});
    return;
  }
  std::ofstream out(file);
  out << "# unchanged\n";
  TANDEM_REQUIRE(out.good(), "options", "cannot write the dump ", file.string(),
                 "\n  remedy: set dump_dir to a folder that can be written");
}

}  // namespace tandem::pipeline
