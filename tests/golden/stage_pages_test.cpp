// Keeps the examples of the documentation true. A fenced block that follows the line
//
//   <!-- example: forward -->
//
// in README.md or below docs/ must hold the example of that name: what the library prints for one
// small training step, or the lines of a file between `// [name]` and `// [end]`: this one,
// page_programs_test.cpp, examples/readme.cpp.
// TANDEM_UPDATE_GOLDEN=1 writes what came out into the pages; review the diff.

#include "support/one_thread.h"
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "tandem/tandem.h"
#include "tracing/trace.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// [backend]
class CountingBackend : public tandem::Backend {
 public:
  std::string_view name() const override { return "counting"; }

  std::unique_ptr<tandem::Executable> compile(const tandem::ir::Graph& graph,
                                              const tandem::CompileContext& context) override {
    return std::make_unique<Run>(*this, eager_->compile(graph, context));
  }

  int64_t runs() const { return runs_; }

 private:
  struct Run : tandem::Executable {
    Run(CountingBackend& owner, std::unique_ptr<tandem::Executable> inner)
        : owner(owner), inner(std::move(inner)) {}

    std::vector<at::Tensor> run(std::span<at::Tensor> inputs) override {
      ++owner.runs_;
      return inner->run(inputs);
    }

    CountingBackend& owner;
    std::unique_ptr<tandem::Executable> inner;
  };

  std::shared_ptr<tandem::Backend> eager_ = tandem::backend("eager");
  std::atomic<int64_t> runs_{0};
};
// [end]

namespace tandem {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = fs::path(test::kTestsDir).parent_path();
constexpr std::string_view kMark = "<!-- example: ";
constexpr std::string_view kFence = "```";

using Examples = std::map<std::string, std::string>;

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream stream(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// Everything between `// [name]` and `// [end]` in the file, without the indentation of the marks.
void add_sources(Examples& examples, const fs::path& file) {
  std::string name;
  size_t indent = 0;
  for (const std::string& line : lines_of(file)) {
    const size_t start = std::min(line.find_first_not_of(' '), line.size());
    const std::string_view rest = std::string_view(line).substr(start);
    if (rest == "// [end]") {
      name.clear();
    } else if (rest.starts_with("// [") && rest.ends_with("]")) {
      name = rest.substr(4, rest.size() - 5);
      indent = start;
    } else if (!name.empty()) {
      examples[name] += line.substr(std::min(indent, line.size())) + "\n";
    }
  }
}

/// Lines of this file become lines of the program that the page shows: `step.cpp:6`.
std::string with_page_lines(const std::string& text) {
  const std::vector<std::string> source = lines_of(kRoot / "tests/golden/stage_pages_test.cpp");
  static const std::regex place(R"([^\s(]*/stage_pages_test\.cpp:(\d+))");
  std::string result;
  auto rest = text.cbegin();
  for (std::sregex_iterator it(text.begin(), text.end(), place), end; it != end; ++it) {
    const auto line = static_cast<size_t>(std::stoul((*it)[1]));
    size_t mark = line;  // counted from 1: of the line before
    while (mark > 0 && source[mark - 1].find("// [") == std::string::npos) --mark;
    const std::string_view name = std::string_view(source[mark - 1]);
    const size_t from = name.find('[') + 1;
    result.append(rest, (*it)[0].first);
    result.append(name.substr(from, name.find(']') - from));
    result += ".cpp:" + std::to_string(line - mark);
    rest = (*it)[0].second;
  }
  return result.append(rest, text.cend());
}

std::string print_dumps(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return join(names);
}

std::string print_saved(const std::vector<Saved>& saved) {
  std::ostringstream out;
  for (const Saved& one : saved)
    out << "%" << one.name << ", " << one.bytes << " bytes: " << one.why
        << (one.line.empty() ? "" : " (" + one.line + ")") << "\n";
  return out.str();
}

/// The recording as the trace leaves it: inputs in the order of first sight, no outputs yet.
template <class F>
std::string print_recording(const torch::nn::Linear& fc, F& step, const at::Tensor& x,
                            const at::Tensor& y) {
  const detail::Flat arguments = detail::flatten(x, y);
  const auto function = detail::Typed<at::Tensor(at::Tensor, at::Tensor)>::flat_function(step);
  tracing::Trace trace(
      arguments, {.known = {{fc->weight.unsafeGetTensorImpl(), ir::Descriptor::param("weight")},
                            {fc->bias.unsafeGetTensorImpl(), ir::Descriptor::param("bias")}},
                  .names = function.tensor_names(arguments)});
  trace.run(function);
  return ir::print(trace.recording().graph());
}

/// The step that architecture.md follows through all stages.
void add_step(Examples& examples) {
  const test::TemporaryFolder dumps("stage_pages");
  // [step]
  torch::nn::Linear fc(4, 2);
  at::Tensor seen = torch::zeros({});

  auto step = [&](const at::Tensor& x, const at::Tensor& y) {
    seen.add_(1);  // counts the calls: an effect that every call must have
    const at::Tensor error = fc->forward(x).tanh() - y;
    return (error * error).mean();
  };
  // [end]
  const at::Tensor x = torch::randn({3, 4}), y = torch::randn({3, 2});
  const test::TemporaryFolder default_dumps("stage_pages_default");
  tandem::compile(fc, step, {.dump_dir = default_dumps.path()})(x, y).backward();
  examples["dumps"] = print_dumps(default_dumps.path());

  // Nothing is computed again there, and no op is written as others: one value is easy to follow.
  seen.zero_();
  auto compiled = tandem::compile(fc, step, {.backend = "eager", .dump_dir = dumps.path()});
  compiled(x, y).backward();
  const Entry entry = compiled.entries().front();

  examples["trace"] = print_recording(fc, step, x, y);
  examples["signature"] = ir::to_string(entry.signature());
  examples["recorded"] = join(lines_of(dumps.path() / "function0.entry0.00-joint.tdm"));
  examples["joint"] = ir::print(entry.joint());
  examples["forward"] = ir::print(entry.forward());
  examples["backward"] = ir::print(entry.backward());
  examples["saved"] = print_saved(entry.saved());
  for (const Guard& guard : entry.guards()) examples["guards"] += guard.text + "\n";
  EXPECT_EQ(seen.item<float>(), 1);
}

/// A function that does more to its argument than reading it.
void add_effects(Examples& examples) {
  // [effects]
  auto effects = tandem::compile([](const at::Tensor& x, const at::Tensor& w) {
    x.mul_(2);
    return std::tuple{x, x.view(-1).slice(0, 1, 3), w.exp()};
  });
  // [end]
  effects(torch::ones({2, 2}), torch::ones({2}).requires_grad_());
  const Entry entry = effects.entries().front();
  examples["effects-signature"] = ir::to_string(entry.signature());
  ASSERT_EQ(entry.signature().replays.size(), 1);
  examples["effects-replay"] = ir::print(entry.signature().replays.front().graph);
}

/// A module that counts its calls in a buffer, as one graph by itself.
void add_exported(Examples& examples) {
  // [export-module]
  struct Regression : torch::nn::Module {
    Regression() {
      fc = register_module("fc", torch::nn::Linear(4, 1));
      calls = register_buffer("calls", torch::zeros({}));
    }
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
      calls.add_(1);
      return torch::mse_loss(fc->forward(x).squeeze(1), y);
    }
    torch::nn::Linear fc{nullptr};
    at::Tensor calls;
  };
  auto net = std::make_shared<Regression>();
  const at::Tensor x = torch::randn({3, 4}), y = torch::randn({3});

  tandem::Exported m =
      tandem::export_module(net, std::tuple{x, y}, {.joint = true, .loss_output = 0});
  // [end]
  // [run-exported]
  std::vector<at::Tensor> inputs(m.graph.inputs().size());
  for (auto& [name, place] : m.signature.parameters) inputs[place] = net->named_parameters()[name];
  for (auto& [name, place] : m.signature.buffers) inputs[place] = net->named_buffers()[name];
  inputs[m.signature.user_inputs[0]] = x;
  inputs[m.signature.user_inputs[1]] = y;

  std::vector<at::Tensor> outputs = tandem::backend("eager")->compile(m.graph, {})->run(inputs);
  at::Tensor loss = outputs[*m.signature.loss_output];
  at::Tensor slope = outputs[m.signature.gradients["fc.weight"]];
  // [end]
  examples["exported-signature"] = to_string(m.signature);
  examples["exported-graph"] = ir::print(m.graph);
  const at::Tensor eager_loss = net->forward(x, y);
  eager_loss.backward();
  EXPECT_TRUE(torch::equal(loss, eager_loss));
  EXPECT_TRUE(torch::equal(slope, net->fc->weight.grad()));
}

void add_miss(Examples& examples) {
  auto twice = tandem::compile([](const at::Tensor& x) { return x * 2; });
  twice(torch::ones({2, 3}));
  twice(torch::ones({2, 3}, torch::kDouble));
  std::ostringstream out;
  out << twice.stats().misses.back() << "\n";
  examples["miss"] = out.str();
}

/// What the pages show as programs must also run.
void run_programs() {
  // [use-backend]
  auto counting = std::make_shared<CountingBackend>();
  auto counted =
      tandem::compile([](const at::Tensor& x) { return x.sin().sum(); }, {.backend = counting});
  counted(torch::ones({3}).requires_grad_()).backward();
  // [end]
  EXPECT_EQ(counting->runs(), 2);  // forward and backward
}

Examples all_examples() {
  const test::OneThread one_thread;  // its number is part of the guards
  Examples examples;
  add_sources(examples, kRoot / "tests/golden/stage_pages_test.cpp");
  add_sources(examples, kRoot / "tests/golden/page_programs_test.cpp");
  add_sources(examples, kRoot / "examples/readme.cpp");
  add_step(examples);
  add_effects(examples);
  add_exported(examples);
  add_miss(examples);
  for (auto& [name, text] : examples) text = with_page_lines(text);
  return examples;
}

std::vector<fs::path> pages() {
  std::vector<fs::path> pages{kRoot / "README.md"};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  std::ranges::sort(pages);
  return pages;
}

bool updating() {
  const char* wish = std::getenv("TANDEM_UPDATE_GOLDEN");
  return wish != nullptr && std::string_view(wish) == "1";
}

/// Compares the marked blocks of a page with the examples; returns the page with the blocks
/// replaced.
std::string check_page(const fs::path& page, const Examples& examples,
                       std::set<std::string>& shown) {
  const std::vector<std::string> lines = lines_of(page);
  std::vector<std::string> updated;
  for (size_t i = 0; i < lines.size(); ++i) {
    updated.push_back(lines[i]);
    if (!lines[i].starts_with(kMark)) continue;
    const std::string name = lines[i].substr(kMark.size(), lines[i].find(" -->") - kMark.size());
    SCOPED_TRACE(page.filename().string() + ", example " + name);
    const auto example = examples.find(name);
    const bool fenced = i + 1 < lines.size() && lines[i + 1].starts_with(kFence);
    if (example == examples.end() || !fenced) {
      ADD_FAILURE() << (fenced ? "nobody makes an example of this name"
                               : "no fenced block follows");
      continue;
    }
    updated.push_back(lines[++i]);
    std::string block;
    for (++i; i < lines.size() && lines[i] != kFence; ++i) block += lines[i] + "\n";
    if (!updating()) {
      EXPECT_EQ(example->second, block) << "TANDEM_UPDATE_GOLDEN=1 updates the page";
    }
    updated.push_back(example->second.substr(0, example->second.size() - 1));
    updated.emplace_back(kFence);
    shown.insert(name);
  }
  return join(updated);
}

TEST(StagePages, ShowWhatTheLibraryPrints) {
  const Examples examples = all_examples();
  std::set<std::string> shown, made;
  for (const fs::path& page : pages()) {
    const std::string text = check_page(page, examples, shown);
    if (updating() && text != join(lines_of(page))) std::ofstream(page) << text;
  }
  for (const auto& [name, text] : examples) made.insert(name);
  EXPECT_EQ(shown, made) << "an example that no page shows";
}

TEST(StagePages, ShowProgramsThatRun) { run_programs(); }

/// Whole graphs in fenced blocks, also those that no program prints.
TEST(StagePages, ShowGraphsThatParse) {
  int64_t graphs = 0;
  for (const fs::path& page : pages()) {
    std::string block;
    bool fenced = false;
    for (const std::string& line : lines_of(page)) {
      if (line.starts_with(kFence)) {
        const bool whole = block.starts_with("graph ") &&
                           block.find("\n  return") != std::string::npos &&
                           block.find("\n...\n") == std::string::npos;
        if (fenced && whole) {
          SCOPED_TRACE(page.filename().string() + ":\n" + block);
          EXPECT_NO_THROW(graphs += static_cast<int64_t>(ir::parse_all(block).size()));
        }
        fenced = !fenced;
        block.clear();
      } else if (fenced) {
        block += line + "\n";
      }
    }
  }
  EXPECT_GT(graphs, 10) << "the pages show more than that: are they still found?";
}

}  // namespace
}  // namespace tandem
