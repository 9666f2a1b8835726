#include "conformance/judge.h"

#include "conformance/compare.h"
#include "conformance/higher_order.h"
#include "conformance/observe.h"
#include "passes/registry.h"
#include "pipeline/pipeline.h"
#include "support/one_thread.h"
#include "support/wide_run.h"

#include <memory>
#include <optional>
#include <set>
#include <thread>

namespace tandem::conformance {
namespace {

/// Of the pipeline, each once.
std::set<std::string> pass_names() {
  const auto names = pipeline::joint_passes();
  return {names.begin(), names.end()};
}

Handle compile(const Program& program, const Options& options) {
  if (program.compile) return program.compile(options);
  auto function = program.function;
  return handle_of(
      tandem::compile_boxed([function](Tensors arguments) { return function(arguments); }, options),
      [](const auto& compiled, Tensors& arguments) { return compiled(arguments); });
}

/// Stage by stage, with one pass left out. No guards, no cache: for one set of inputs.
Call compile_without(const std::string& pass, const Program& program, const Settings& settings,
                     const Tensors& arguments) {
  const auto function = program.function;
  const detail::FlatFunction flat = detail::Typed<Tensors(Tensors)>::flat_function(
      [function](Tensors list) { return function(list); });
  Joint joint;
  const auto capture = [&] {
    pipeline::StageLog log("conformance", {});
    joint = pipeline::capture(flat, detail::flatten(arguments), {}, log).joint;
  };
  if (settings.around) {
    settings.around(capture);
  } else {
    capture();
  }
  passes::PassObserver observer;
  observer.disabled.insert(pass);
  for (const char* name : pipeline::joint_passes())
    passes::run_pass(passes::find_pass(name), joint.graph, observer);
  const Boxed lowered = tandem::lower(tandem::split(joint),
                                      tandem::backend(test::backend_rounds() ? "llvm" : "eager"));
  return [lowered, lifted = joint.lifted](Tensors& list) {
    Tensors inputs = lifted;
    for (const at::Tensor& tensor : list) {
      if (tensor.defined()) inputs.push_back(tensor);  // the graph has no input for another
    }
    return lowered(inputs);
  };
}

class Judge {
 public:
  Judge(const MakeProgram& make, const Settings& settings) : make_(make), settings_(settings) {}

  std::vector<ModeResult> run() {
    eager_ = make();
    if (!settings_.refused.empty()) {
      run_refused();
      return results_;
    }
    run_compiled(Mutations::in_graph);
    if (results_.front().outcome != ModeResult::Outcome::Passed) return results_;
    run_compiled(Mutations::epilogue);
    run_higher_order();
    run_min_cut();
    // With a calling form of its own the program cannot be taken stage by stage.
    if (!eager_.compile) {
      for (const std::string& pass : pass_names()) run_without(pass);
    }
    return results_;
  }

 private:
  Program make() {
    torch::manual_seed(1);
    return make_();
  }

  /// Eager's view of call `number`. The program keeps its state, so calls come in order.
  const Observation& eager(size_t number) {
    while (eager_seen_.size() <= number) {
      const int next = static_cast<int>(eager_seen_.size());
      const test::WideRun::Scope scope(wide_run_);
      eager_seen_.push_back(observe(eager_, eager_.function, next, settings_));
    }
    return eager_seen_[number];
  }

  /// A case whose eager run raises compares little: it must have meant it.
  void check_case(ModeResult& result, const Observation& eager) {
    const auto check = [&](const std::string& where, const std::string& text,
                           const std::string& words) {
      if (words.empty() || text.find(words) == std::string::npos) {
        result.differences.push_back("fault of the case: eager raises in " + where + ": " + text);
      }
    };
    if (!eager.error.empty()) check("the call", eager.error, settings_.raises);
    if (eager.error.empty() && !settings_.raises.empty()) {
      result.differences.push_back("fault of the case: eager does not raise");
    }
    for (const Record& record : eager.records) {
      if (record.kind == RecordKind::Error && record.text != "none" &&
          (record.what.starts_with("gradient") || record.what.starts_with("backward")) &&
          !record.what.ends_with("after the writes")) {
        check(record.what, record.text, settings_.backward_raises);
      }
    }
  }

  void compare(ModeResult& result, const Observation& eager, const Observation& compiled) {
    check_case(result, eager);
    for (std::string& text : differences(eager, compiled, settings_)) {
      result.differences.push_back(std::move(text));
    }
    if (compiled.refused) result.refusal = compiled.error;
  }

  /// On the list of differences: refused with a reason, before any effect.
  void run_refused() {
    ModeResult result{"in graph"};
    const Program program = make();
    const Handle handle = compile(program, {});
    const Observation seen = observe(program, handle.call, 0, settings_);
    check_case(result, eager(0));
    if (!seen.refused || seen.error.find(settings_.refused) == std::string::npos)
      result.differences.push_back("not refused with \"" + settings_.refused + "\": " + seen.error);
    if (seen.touched)
      result.differences.push_back("refused, but it has changed the " + seen.touched_what);
    add(std::move(result));
  }

  void add(ModeResult result) {
    if (!result.differences.empty()) result.outcome = ModeResult::Outcome::Failed;
    results_.push_back(std::move(result));
  }

  void run_compiled(Mutations mutations) {
    const bool epilogue = mutations == Mutations::epilogue;
    const std::string prefix = epilogue ? "epilogue" : "in graph";
    Options options;
    options.mutations = mutations;
    const Program program = make();
    Handle handle;
    try {
      handle = compile(program, options);
    } catch (const UnsupportedError& error) {
      const bool option = std::string(error.what()).starts_with("options: mutations");
      add({prefix, option ? ModeResult::Outcome::Later : ModeResult::Outcome::Failed, error.what(),
           option ? std::vector<std::string>{} : std::vector<std::string>{error.what()}});
      return;
    }
    call(prefix, handle, program, 0);
    if (results_.back().outcome == ModeResult::Outcome::Failed) return;
    // Facts about graphs as recorded; a backend that fuses has asked for others.
    if (settings_.entry && !epilogue && !handle.entries().empty() && !test::backend_rounds()) {
      settings_.entry(handle.entries().front());
    }
    call(epilogue ? "epilogue, second call" : "second call", handle, program, 1);
    if (!epilogue) {
      eager(2);
      std::thread([&] {
        const test::OneThread one_thread;
        test::rounding_judge = &wide_run_;
        call("other thread", handle, program, 2);
      }).join();
      memory(handle, program, 3);
    }
    const bool raises = !eager(0).error.empty();
    const int64_t expected = epilogue ? settings_.epilogue_traces : settings_.traces;
    if (const int64_t traces = handle.stats().traces; !raises && traces != expected) {
      ModeResult& last = results_.back();
      last.differences.push_back("the function was recorded " + std::to_string(traces) +
                                 " times, not " + std::to_string(expected));
      for (const Miss& miss : handle.stats().misses) last.differences.push_back(miss.reason);
      last.outcome = ModeResult::Outcome::Failed;
    }
  }

  /// What the backward computes again it need not have kept.
  void run_min_cut() {
    Options options;
    options.partitioner = min_cut_recompute;
    const Program program = make();
    const Handle handle = compile(program, options);
    for (int number = 0; number < 2; ++number) {
      ModeResult result{number == 0 ? "min-cut" : "min-cut, second call"};
      Observation expected = eager(static_cast<size_t>(number));
      Observation seen = observe(program, handle.call, number, settings_);
      forgive_harmless_writes(expected, seen);
      compare(result, expected, seen);
      add(std::move(result));
    }
  }

  /// On the list of differences: eager refuses to differentiate once a tensor that it kept has been
  /// written; what we compute again instead nobody can have written.
  static void forgive_harmless_writes(Observation& eager, Observation& compiled) {
    constexpr std::string_view kWhen = " after the writes";
    const auto error_in = [&](const Observation& seen, const std::string& what) {
      for (const Record& record : seen.records) {
        if (record.what == what && record.kind == RecordKind::Error) return record.text;
      }
      return std::string("none");
    };
    bool harmless = false;
    for (const Record& record : eager.records) {
      harmless =
          harmless || (record.kind == RecordKind::Error && record.what.ends_with(kWhen) &&
                       record.text.find("modified by an inplace operation") != std::string::npos &&
                       error_in(compiled, record.what) == "none");
    }
    if (!harmless) return;
    for (Observation* seen : {&eager, &compiled}) {
      std::erase_if(seen->records,
                    [&](const Record& record) { return record.what.ends_with(kWhen); });
    }
  }

  void call(const std::string& mode, const Handle& handle, const Program& program, int number) {
    ModeResult result{mode};
    compare(result, eager(static_cast<size_t>(number)),
            observe(program, handle.call, number, settings_));
    add(std::move(result));
  }

  void memory(const Handle& handle, const Program& program, int number) {
    ModeResult result{"memory"};
    const std::string expected = leftovers(eager_, eager_.function, number, settings_);
    const std::string found = leftovers(program, handle.call, number, settings_);
    if (expected != found) {
      result.differences.push_back("when all is dropped: eager \"" + expected + "\", compiled \"" +
                                   found + "\"");
    }
    add(std::move(result));
  }

  void run_higher_order() {
    const Program eager = make(), program = make();
    const Handle handle = compile(program, {});
    ModeResult result{"higher order"};
    int calls = 0;
    const Observation found = observe_higher_order(program, handle.call, 0, settings_, calls);
    const Observation expected = [&] {
      const test::WideRun::Scope scope(wide_run_);
      return observe_higher_order(eager, eager.function, 0, settings_, calls);
    }();
    result.differences = differences(expected, found, settings_);
    add(std::move(result));
  }

  void run_without(const std::string& pass) {
    ModeResult result{"without " + pass};
    // One more program for eager, too: the first one has been called.
    const Program eager = make(), program = make();
    const Observation expected = [&] {
      const test::WideRun::Scope scope(wide_run_);
      return observe(eager, eager.function, 0, settings_);
    }();
    std::optional<Call> compiled;
    const Call compile_and_call = [&](Tensors& arguments) {
      if (!compiled) compiled = compile_without(pass, program, settings_, arguments);
      return (*compiled)(arguments);
    };
    compare(result, expected, observe(program, compile_and_call, 0, settings_));
    add(std::move(result));
  }

  const MakeProgram& make_;
  const Settings& settings_;
  test::WideRun wide_run_{};
  Program eager_{};
  std::vector<Observation> eager_seen_{};
  std::vector<ModeResult> results_{};
};

}  // namespace

std::vector<std::string> mode_names() {
  std::vector<std::string> names = {"in graph",     "second call", "other thread",
                                    "memory",       "epilogue",    "epilogue, second call",
                                    "higher order", "min-cut",     "min-cut, second call"};
  for (const std::string& pass : pass_names()) names.push_back("without " + pass);
  return names;
}

std::vector<ModeResult> judge(const MakeProgram& make, const Settings& settings) {
  const test::OneThread one_thread;
  return Judge(make, settings).run();
}

}  // namespace tandem::conformance
