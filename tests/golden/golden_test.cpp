// Runs every .tdm file of this folder. A file holds comments, a run line, one or several graphs,
// and what is expected of them:
//
//   # run: opt --passes=remove-dead-nodes,merge-duplicates
//   graph g(...) { ... }
//   # expect:
//   graph g(...) { ... }
//
// Run lines: `opt --passes=...` prints each graph after the passes, `partition` prints the halves
// of a joint graph, with `--partitioner=min_cut_recompute` those of the other partitioner. `lower`
// prints the steps and the loops that the backend llvm makes of each graph after its
// decompositions, `lower --fast` with Rounding::fast and Random::fast.
// TANDEM_UPDATE_GOLDEN=1 writes what came out into the files; review the diff.

#include "backends/eager/eager_backend.h"
#include "backends/llvm_cpu/cpu_target.h"
#include "loops/host/host_list.h"
#include "loops/host/kernel_backend.h"
#include "passes/decompose.h"
#include "passes/registry.h"
#include "support/paths.h"
#include "tandem/ir/text.h"
#include "tandem/options.h"
#include "tandem/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRun = "# run: ";
constexpr std::string_view kExpect = "# expect:\n";

struct GoldenFile {
  std::string head;  // everything up to and with the expect line
  std::string run;
  std::string input;
  std::string expected;
};

std::string read(const fs::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

GoldenFile read_golden(const fs::path& path) {
  const std::string text = read(path);
  GoldenFile golden;
  const size_t run = text.find(kRun), expect = text.find(kExpect);
  if (run == std::string::npos || expect == std::string::npos || expect < run) {
    ADD_FAILURE() << path << " needs a line \"# run: ...\" and after it a line \"# expect:\"";
    return golden;
  }
  const size_t end_of_run = text.find('\n', run);
  golden.head = text.substr(0, expect + kExpect.size());
  golden.run = text.substr(run + kRun.size(), end_of_run - run - kRun.size());
  golden.input = text.substr(end_of_run, expect - end_of_run);
  golden.expected = text.substr(expect + kExpect.size());
  return golden;
}

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

std::string run_passes(std::string_view names, std::vector<ir::Graph> graphs) {
  std::string text;
  for (ir::Graph& graph : graphs) {
    for (const std::string& name : split_at(names, ','))
      passes::run_pass(passes::find_pass(name), graph);
    text += ir::print(graph);
  }
  return text;
}

std::string run_partition(const Partitioner& partitioner, std::vector<ir::Graph> graphs) {
  std::string text;
  for (ir::Graph& graph : graphs) {
    const Split split =
        partitioner(Joint{.graph = std::move(graph), .signature = {}, .lifted = {}},
                    {.backend = "eager"});  // says nothing about fusion, so the partitioner guesses
    text += ir::print(split.forward);
    if (!split.backward.outputs().empty()) text += ir::print(split.backward);
    for (const Saved& saved : split.saved) {
      text += "# saved %" + saved.name + ", " + std::to_string(saved.bytes) +
              " bytes: " + saved.why + "\n";
    }
    for (const Recomputed& again : split.recomputed) {
      text += "# computed again %" + again.name + ", " + std::to_string(again.bytes) +
              " bytes: " + again.why + "\n";
    }
  }
  return text;
}

std::string run_lower(bool fast, std::vector<ir::Graph> graphs) {
  namespace loops = loops;
  const auto judge = backends::eager::make_backend();
  const auto compiler = loops::make_reference_compiler(*backends::llvm_cpu::cpu_target());
  CompileContext context;
  context.rounding = fast ? Rounding::fast : Rounding::eager;
  context.random = fast ? Random::fast : Random::eager;
  const Decompositions table = backend("llvm")->decompositions(context.rounding, context.random);
  std::string text;
  for (ir::Graph& graph : graphs) {
    passes::decompose(graph, table);
    passes::run_pass(passes::find_pass("remove-dead-nodes"), graph);
    const loops::HostList list = loops::make_host_list(graph, context, *compiler, *judge);
    text += loops::print(list);
    for (const loops::Kernel& kernel : list.kernels) text += loops::print(kernel);
  }
  return text;
}

std::string execute(const GoldenFile& golden) {
  constexpr std::string_view kPasses = "opt --passes=";
  const std::string_view run = golden.run;
  if (run.starts_with(kPasses))
    return run_passes(run.substr(kPasses.size()), ir::parse_all(golden.input));
  if (run == "partition") return run_partition(default_partition, ir::parse_all(golden.input));
  if (run == "partition --partitioner=min_cut_recompute")
    return run_partition(min_cut_recompute, ir::parse_all(golden.input));
  if (run == "lower" || run == "lower --fast")
    return run_lower(run.ends_with("--fast"), ir::parse_all(golden.input));
  ADD_FAILURE() << "unknown run line: " << run;
  return {};
}

bool updating() {
  const char* wish = std::getenv("TANDEM_UPDATE_GOLDEN");
  return wish != nullptr && std::string_view(wish) == "1";
}

class Golden : public ::testing::TestWithParam<fs::path> {};

TEST_P(Golden, GivesTheExpectedText) {
  const GoldenFile golden = read_golden(GetParam());
  const std::string got = execute(golden);
  if (HasFailure()) return;  // nothing worth comparing or writing
  if (updating()) {
    std::ofstream(GetParam()) << golden.head << got;
    return;
  }
  EXPECT_EQ(got, golden.expected) << "TANDEM_UPDATE_GOLDEN=1 updates " << GetParam().filename();
}

std::vector<fs::path> golden_files() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(test::kTestsDir) / "golden")) {
    if (entry.path().extension() == ".tdm") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, ::testing::ValuesIn(golden_files()),
                         [](const auto& info) { return info.param.stem().string(); });

}  // namespace
}  // namespace tandem
