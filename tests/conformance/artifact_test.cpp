/// Entries that one process stores and another one runs: results, gradients, what the call does to
/// its arguments, as a caller can see it, in the first call and in the second. The process that
/// runs them has never traced the program.
#include "conformance/case.h"
#include "conformance/compare.h"
#include "conformance/inputs.h"
#include "conformance/observe.h"
#include "pipeline/backward_compiler.h"
#include "pipeline/pipeline.h"
#include "pipeline/settings/environment.h"
#include "runtime/bind.h"
#include "runtime/call/call.h"
#include "support/one_thread.h"
#include "support/temporary_folder.h"
#include "support/wide_run.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

namespace tandem::conformance {
namespace {

/// Whose programs are stored: writes to arguments and to what the function closes over, aliases,
/// several autograd nodes, groups, random numbers.
const std::set<std::string>& chosen_cases() {
  static const std::set<std::string> kCases = {
      "test_single_output",
      "test_input_mutation_simple",
      "test_input_mutation_is_output",
      "test_input_mutation_multiple",
      "test_input_mutation_metadata",
      "test_input_output_view_simple",
      "test_input_output_view_mutate_multiple",
      "test_output_aliases_intermediate_single",
      "test_output_aliases_intermediate_multiple",
      "test_input_mutation_aliases_other_input",
      "test_input_mutation_noncontiguous",
      "test_batchnorm",
      "test_functionalized_rng_codegen_training",
      "closure over a parameter and a written buffer",
      "closure over a module with batch norm",
      "argument is a closed-over tensor",
      "base and view, the view written",
      "saved, then overwritten",
      "split of the input",
      "two arguments written, each from the other",
      "custom function that writes its input",
  };
  return kCases;
}

struct Item {
  std::string name;
  MakeProgram make;
  Settings settings;
};

/// Sizes that depend on data, which the backward needs, too. The second call has other counts.
Item rows_under_a_mask() {
  return {"sizes that depend on data",
          [] {
            const auto calls = std::make_shared<int64_t>(0);
            return Program{[calls] {
                             const at::Tensor x = leaf({6, 4});
                             const at::Tensor mask = torch::arange(6) < 2 + 3 * (*calls)++ % 5;
                             return Inputs{{x, mask}, {x}};
                           },
                           [](Tensors& a) -> Tensors {
                             const at::Tensor rows = a[0].index({a[1]});
                             const at::Tensor places = a[1].nonzero().squeeze(1);
                             return {torch::zeros({6, 4}).index_add(0, places, rows.exp()),
                                     rows.sum(0)};
                           }};
          },
          {}};
}

/// The programs of the chosen cases that a list of tensors calls.
std::vector<Item> items() {
  std::vector<Item> found{rows_under_a_mask()};
  const bool all = std::getenv("ARTIFACTS_OF_ALL_CASES") != nullptr;
  for (const Category& category : all_categories()) {
    for (const Case& one : category.cases) {
      if (one.standing.kind != Standing::Kind::Passes) continue;
      if (!all && !chosen_cases().contains(one.name)) continue;
      Session session([&](const MakeProgram& make, const Settings& settings) {
        const bool plain = settings.refused.empty() && settings.raises.empty() &&
                           !settings.second_order && !settings.further;
        torch::manual_seed(1);
        if (plain && !make().compile)
          found.push_back({category.name + ": " + one.name, make, settings});
      });
      one.body(session);
    }
  }
  return found;
}

Program made(const Item& item) {
  torch::manual_seed(1);
  return item.make();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What inputs hold of tensors, one after the other: a closed-over tensor is known by its place.
Tensors tensors_of(const Inputs& inputs) {
  Tensors all = inputs.leaves;
  all.insert(all.end(), inputs.watched.begin(), inputs.watched.end());
  return all;
}

/// `<folder>/<number>.entry` and `.lifted`, places of the closed-over tensors. False if some of
/// them are not among the inputs of the program.
bool write(const Item& item, const std::filesystem::path& file) {
  const Program program = made(item);
  torch::manual_seed(5);
  const Inputs inputs = program.inputs();
  const detail::FlatFunction function = detail::Typed<Tensors(Tensors)>::flat_function(
      [&](Tensors arguments) { return program.function(arguments); });
  const Options options = pipeline::apply_environment({});
  std::shared_ptr<const runtime::EntryState> entry;
  const auto compile = [&] {
    pipeline::StageLog log("artifact", {});
    pipeline::CaptureCounts counts;
    entry = pipeline::compile_entry(std::make_shared<pipeline::Program>(function),
                                    detail::flatten(inputs.arguments), options, log, counts);
  };
  if (item.settings.around) {
    item.settings.around(compile);
  } else {
    compile();
  }
  const Tensors known = tensors_of(inputs);
  std::string places;
  for (const at::Tensor& lifted : entry->lifted()) {
    size_t place = 0;
    while (place < known.size() && !known[place].is_same(lifted)) ++place;
    if (place == known.size()) return false;
    places += std::to_string(place) + " ";
  }
  std::ofstream(file.string() + ".lifted") << places;
  std::ofstream(file.string() + ".entry", std::ios::binary)
      << runtime::write_artifact(entry->artifact_by_now());
  return true;
}

/// Nobody shall take for loaded what was compiled again.
class LoadingBackend final : public Backend {
 public:
  explicit LoadingBackend(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    // This one stores nothing, and gets graphs whose sizes depend on data from the others.
    if (name() != "eager" && graph.symbols().empty())
      ADD_FAILURE() << graph.name() << " was compiled, not loaded";
    return inner_->compile(graph, context);
  }
  std::unique_ptr<Executable> load(std::string_view stored, const ir::Graph& graph,
                                   const CompileContext& context) override {
    return inner_->load(stored, graph, context);
  }

 private:
  const std::shared_ptr<Backend> inner_;
};

std::shared_ptr<const runtime::EntryState> load(const std::filesystem::path& file,
                                                const Inputs& inputs) {
  runtime::Artifact artifact = runtime::read_artifact(read_file(file.string() + ".entry"));
  const Tensors known = tensors_of(inputs);
  runtime::Bindings bindings;
  std::istringstream places(read_file(file.string() + ".lifted"));
  for (size_t place = 0; places >> place;) bindings.lifted.push_back(known.at(place));
  bindings.generators = inputs.generators;
  for (const int64_t argument : artifact.guards.closed_over)
    bindings.watched.closed_over.push_back(inputs.arguments.at(static_cast<size_t>(argument)));
  bindings.backend = std::make_shared<LoadingBackend>(tandem::backend(artifact.backend));
  bindings.compiler = pipeline::make_backward_compiler(tandem::backend(artifact.backend));
  return runtime::bind(std::move(artifact), std::move(bindings));
}

/// Both calls of a loaded entry against eager; empty if nothing differs.
std::vector<std::string> judge_loaded(const Item& item, const std::filesystem::path& file) {
  const Program eager = made(item), program = made(item);
  test::WideRun wide_run;
  Program watched = program;
  Inputs inputs;
  watched.inputs = [&] { return inputs = program.inputs(); };
  std::shared_ptr<const runtime::EntryState> entry;
  std::vector<std::string> found;
  const Call call = [&](Tensors& arguments) {
    const detail::Flat flat = detail::flatten(arguments);
    if (!entry) entry = load(file, inputs);
    const auto miss = entry->guards().mismatch(libtorch::ThreadState::now(), flat);
    if (miss) found.push_back("guards do not hold: " + *miss);
    return detail::unflatten<Tensors>(runtime::call(entry, flat));
  };
  for (int number = 0; number < 2; ++number) {
    Observation expected;
    {
      const test::WideRun::Scope scope(wide_run);
      expected = observe(eager, eager.function, number, item.settings);
    }
    for (const std::string& text :
         differences(expected, observe(watched, call, number, item.settings), item.settings))
      found.push_back("call " + std::to_string(number) + ": " + text);
  }
  return found;
}

/// What the other process runs; alone it does nothing. With ARTIFACTS_OF_ALL_CASES both look at the
/// whole suite, of which some cases have expectations that a stored entry cannot meet.
TEST(Artifact, WritesForAnotherProcess) {
  const char* const folder = std::getenv("ARTIFACT_FOLDER");
  if (folder == nullptr) GTEST_SKIP() << "run by Artifact.RunsInAnotherProcess";
  const test::OneThread one_thread;
  const std::vector<Item> all = items();
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].name);
    try {
      write(all[i], std::filesystem::path(folder) / std::to_string(i));
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

void run_writer(const std::filesystem::path& folder) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("ARTIFACT_FOLDER", folder.c_str(), 1);
    unsetenv("GTEST_TOTAL_SHARDS");
    unsetenv("GTEST_SHARD_INDEX");
    execl("/proc/self/exe", "artifact_writer", "--gtest_filter=Artifact.WritesForAnotherProcess",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
}

TEST(Artifact, RunsInAnotherProcess) {
  const test::OneThread one_thread;
  const test::TemporaryFolder folder("artifacts");
  run_writer(folder.path());
  const std::vector<Item> all = items();
  std::set<std::string> run;
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].name);
    const auto file = folder.path() / std::to_string(i);
    if (!std::filesystem::exists(file.string() + ".entry")) continue;
    try {
      for (const std::string& difference : judge_loaded(all[i], file)) ADD_FAILURE() << difference;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    run.insert(all[i].name);
  }
  EXPECT_GE(run.size(), 10u);
  std::string names;
  for (const std::string& name : run) names += name + "; ";
  RecordProperty("cases", names);
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Stored and read again, in this process.
class Stored : public ::testing::Test {
 protected:
  runtime::Artifact store(const std::function<at::Tensor(const at::Tensor&)>& function,
                          Options options = {}) {
    const detail::FlatFunction flat = detail::Typed<at::Tensor(at::Tensor)>::flat_function(
        [=](const at::Tensor& x) { return function(x); });
    pipeline::StageLog log("artifact", {});
    pipeline::CaptureCounts counts;
    const auto entry = pipeline::compile_entry(std::make_shared<pipeline::Program>(flat),
                                               detail::flatten(x_), options, log, counts);
    return runtime::read_artifact(bytes_ = runtime::write_artifact(entry->artifact_by_now()));
  }

  const test::OneThread one_thread_{};
  const at::Tensor x_ = torch::ones({3}, torch::requires_grad());
  std::string bytes_;
};

TEST_F(Stored, TheSameBytesAgain) {
  const at::Tensor weight = torch::ones({3}, torch::requires_grad());
  runtime::Artifact artifact = store([&](const at::Tensor& x) { return (x * weight).exp(); });
  EXPECT_EQ(runtime::write_artifact(artifact), bytes_);
}

TEST_F(Stored, ALoadedEntryHasNoFunctionToTraceAgain) {
  const auto entry = runtime::bind(store([](const at::Tensor& x) { return x.exp(); }), {});
  const at::Tensor y = runtime::call(entry, detail::flatten(x_)).tensors[0];
  EXPECT_EQ(
      error_of([&] { torch::autograd::grad({y.sum()}, {x_}, {}, true, true); }),
      "call: backward with create_graph=true traces the function again, and an entry that was "
      "loaded does not have it\n  instead: backward without create_graph works\n  remedy: "
      "compile the function in this process");
  const Tensors gradient = torch::autograd::grad({y.sum()}, {x_});
  EXPECT_TRUE(at::equal(gradient[0], x_.exp()));
}

TEST_F(Stored, WithoutACompilerOnlyTheBackwardsOfTheArtifact) {
  const detail::FlatFunction flat = detail::Typed<Tensors(at::Tensor)>::flat_function(
      [](const at::Tensor& x) { return Tensors{x.exp(), x.sin()}; });
  pipeline::StageLog log("artifact", {});
  pipeline::CaptureCounts counts;
  const auto compiled = pipeline::compile_entry(std::make_shared<pipeline::Program>(flat),
                                                detail::flatten(x_), {}, log, counts);
  const auto entry = runtime::bind(
      runtime::read_artifact(runtime::write_artifact(compiled->artifact_by_now())), {});
  const detail::Flat results = runtime::call(entry, detail::flatten(x_));
  EXPECT_EQ(error_of([&] { torch::autograd::grad({results.tensors[0].sum()}, {x_}, {}, true); }),
            "call: the entry was stored without the backward for these of its results\n  instead: "
            "the backward of all results, without autocast, works\n  remedy: load it where graphs "
            "can be compiled");
  const at::Tensor sum = (results.tensors[0] + results.tensors[1]).sum();
  EXPECT_TRUE(at::allclose(torch::autograd::grad({sum}, {x_})[0], x_.exp() + x_.cos()));
}

TEST_F(Stored, WithoutACompilerABackwardForSomeInputsIsThatForAll) {
  const detail::FlatFunction flat = detail::Typed<Tensors(at::Tensor, at::Tensor)>::flat_function(
      [](const at::Tensor& x, const at::Tensor& y) { return Tensors{x.exp() * y}; });
  pipeline::StageLog log("artifact", {});
  pipeline::CaptureCounts counts;
  const at::Tensor y = torch::ones({3}).requires_grad_();
  const auto compiled = pipeline::compile_entry(std::make_shared<pipeline::Program>(flat),
                                                detail::flatten(x_, y), {}, log, counts);
  const auto entry = runtime::bind(
      runtime::read_artifact(runtime::write_artifact(compiled->artifact_by_now())), {});
  const at::Tensor result = runtime::call(entry, detail::flatten(x_, y)).tensors[0];
  EXPECT_TRUE(at::equal(torch::autograd::grad({result.sum()}, {y}, {}, true)[0], x_.exp()));
  EXPECT_TRUE(at::equal(torch::autograd::grad({result.sum()}, {x_})[0], x_.exp()));
}

/// An entry with two results, of which a call has differentiated the first alone and, in an
/// autocast region, both: stored and read again, it does so without a compiler.
TEST_F(Stored, BackwardsThatCallsHaveMetAreStoredToo) {
  const detail::FlatFunction flat = detail::Typed<Tensors(at::Tensor)>::flat_function(
      [](const at::Tensor& x) { return Tensors{x.exp(), x.matmul(x.view({3, 1}))}; });
  pipeline::StageLog log("artifact", {});
  pipeline::CaptureCounts counts;
  const auto program = std::make_shared<pipeline::Program>(flat);
  const auto compiled = pipeline::compile_entry(program, detail::flatten(x_), {}, log, counts);
  const auto gradients = [&](const std::shared_ptr<const runtime::EntryState>& entry) {
    const auto results = runtime::call(entry, detail::flatten(x_)).tensors;
    Tensors found = torch::autograd::grad({results[0].sum()}, {x_}, {}, true);
    const at::Tensor sum = results[0].sum() + results[1].sum();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    found.push_back(torch::autograd::grad({sum}, {x_})[0]);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    return found;
  };
  const Tensors expected = gradients(compiled);
  runtime::Artifact stored =
      runtime::read_artifact(runtime::write_artifact(compiled->artifact_by_now()));
  EXPECT_EQ(stored.backwards.size(), compiled->artifact().backwards.size() + 2);
  const Tensors found = gradients(runtime::bind(std::move(stored), {}));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i]));
}

TEST_F(Stored, WhichOpsTheFunctionCalledIsTheSameInEveryRun) {
  const auto fingerprint = [&](const std::function<at::Tensor(const at::Tensor&)>& function) {
    return store(function).fingerprint;
  };
  const auto sine = [](const at::Tensor& x) { return x.sin(); };
  EXPECT_EQ(fingerprint(sine), fingerprint(sine));
  EXPECT_NE(fingerprint(sine), fingerprint([](const at::Tensor& x) { return x.cos(); }));
}

TEST_F(Stored, AGuardOfTheHostMustBeGivenAgain) {
  Options options;
  options.guard_on = [] { return int64_t{3}; };
  const runtime::Artifact artifact = store([](const at::Tensor& x) { return x.exp(); }, options);
  EXPECT_EQ(
      error_of([&] { runtime::bind(artifact, {}); }),
      "bind: the entry is guarded by guard_on, a function of the program that compiled it (it "
      "returned 3)\n  remedy: pass the same guard_on");
  int64_t now = 3;
  runtime::Bindings bindings;
  bindings.watched.guard_on = [&] { return now; };
  const auto entry = runtime::bind(artifact, bindings);
  const libtorch::ThreadState thread = libtorch::ThreadState::now();
  EXPECT_TRUE(entry->guards().hold(thread, detail::flatten(x_)));
  now = 4;
  EXPECT_FALSE(entry->guards().hold(thread, detail::flatten(x_)));
}

TEST_F(Stored, ClosedOverTensorsAreGivenAndMustFit) {
  const at::Tensor weight = torch::ones({3}, torch::requires_grad());
  const runtime::Artifact artifact = store([&](const at::Tensor& x) { return x * weight; });
  EXPECT_EQ(error_of([&] { runtime::bind(artifact, {}); }),
            "bind: the entry closes over 1 tensors, got 0\n  remedy: pass one for each, in the "
            "order of the signature");
  EXPECT_EQ(error_of([&] { runtime::bind(artifact, {.lifted = {torch::ones({4})}}); }),
            "bind: lifted 0: size is [4], compiled for [3]\n  remedy: pass a tensor like the one "
            "that the function closed over");
  const at::Tensor other = torch::full({3}, 2.0, torch::requires_grad());
  const auto entry = runtime::bind(artifact, {.lifted = {other}});
  runtime::call(entry, detail::flatten(x_)).tensors[0].sum().backward();
  EXPECT_TRUE(at::equal(x_.grad(), other));
  EXPECT_TRUE(at::equal(other.grad(), x_));
}

TEST_F(Stored, ModulesAreGivenAgainAndMustBeBuiltAlike) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(3, 3);
  Options options;
  options.modules = {net};
  const runtime::Artifact artifact =
      store([=](const at::Tensor& x) { return x * net->weight; }, options);
  EXPECT_EQ(error_of([&] { runtime::bind(artifact, {.lifted = {net->weight}}); }),
            "bind: the entry was compiled with 1 modules, sub-modules included, got 0\n  remedy: "
            "pass the modules that Options::modules named, in that order");
  runtime::Bindings bindings{.lifted = {net->weight}};
  bindings.watched.modules = {std::make_shared<torch::nn::DropoutImpl>()};
  EXPECT_EQ(error_of([&] { runtime::bind(artifact, bindings); }),
            "bind: the module has 0 parameters, 0 buffers and 0 sub-modules; the entry was "
            "compiled with the module of 2, 0 and 0\n  remedy: pass modules that are built as "
            "those were");
  const auto other = std::make_shared<torch::nn::LinearImpl>(3, 3);
  bindings.lifted = {other->weight};
  bindings.watched.modules = {other};
  const auto entry = runtime::bind(artifact, bindings);
  const libtorch::ThreadState thread = libtorch::ThreadState::now();
  EXPECT_TRUE(entry->guards().hold(thread, detail::flatten(x_)));
  other->eval();
  EXPECT_EQ(entry->guards().mismatch(thread, detail::flatten(x_)).value_or(""),
            "the module is in eval mode, compiled in training mode");
}

TEST_F(Stored, WatchedVariablesAreGivenAgain) {
  const at::Tensor weight = torch::ones({3}), other = torch::full({3}, 2.0);
  Options options;
  options.closes_over = {&weight};
  const runtime::Artifact artifact =
      store([&](const at::Tensor& x) { return x * weight; }, options);
  runtime::Bindings bindings{.lifted = {other}};
  EXPECT_EQ(error_of([&] { runtime::bind(artifact, bindings); }),
            "bind: the entry watches 1 variables of the program that compiled it (closes_over), "
            "got 0\n  remedy: pass as many, in the same order");
  at::Tensor variable = other;
  bindings.watched.closes_over = {&variable};
  const auto entry = runtime::bind(artifact, bindings);
  const libtorch::ThreadState thread = libtorch::ThreadState::now();
  EXPECT_TRUE(entry->guards().hold(thread, detail::flatten(x_)));
  variable = weight;
  EXPECT_FALSE(entry->guards().hold(thread, detail::flatten(x_)));
}

TEST_F(Stored, NamedGeneratorsAreGivenAgain) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  const runtime::Artifact artifact =
      store([=](const at::Tensor& x) { return x * torch::rand({3}, generator); });
  EXPECT_EQ(error_of([&] { runtime::bind(artifact, {}); }),
            "bind: the entry draws from 1 generators beside the default one, got 0\n  remedy: pass "
            "one generator for each, in the order of the graph's numbers");
  const at::Generator mine = at::detail::createCPUGenerator(7);
  const auto entry = runtime::bind(artifact, {.generators = {mine}});
  const at::Tensor drawn = torch::rand({3}, at::detail::createCPUGenerator(7));
  EXPECT_TRUE(at::equal(runtime::call(entry, detail::flatten(x_)).tensors[0], x_ * drawn));
}

TEST_F(Stored, DamagedBytesAreRefused) {
  store([](const at::Tensor& x) { return x.exp(); });
  EXPECT_EQ(error_of([] { runtime::read_artifact("nothing of ours"); }),
            "read: this is no stored record\n  remedy: store it again with this version of Tandem");
  for (size_t at = 8; at < bytes_.size(); at += 1 + bytes_.size() / 40) {
    std::string damaged = bytes_;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    EXPECT_EQ(error_of([&] { runtime::read_artifact(damaged); }),
              "read: a stored record is damaged\n  remedy: store it again");
    EXPECT_NE(error_of([&] { runtime::read_artifact(std::string_view(bytes_).substr(0, at)); }),
              "no error");
  }
}

}  // namespace
}  // namespace tandem::conformance
