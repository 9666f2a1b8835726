#pragma once

#include "support/one_thread.h"
#include "support/same_bits.h"
#include "support/wide_run.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// One program, written once, run eagerly and compiled: whatever it records must be equal.
namespace tandem::test {

enum class OptimizerKind { Sgd, Adam };

/// What a twin calls: the eager function itself, or the compiled one.
template <class Eager, class Handle>
struct TwinFunction {
  template <class... Args>
  auto operator()(const Args&... args) const {
    return handle ? handle(args...) : eager(args...);
  }

  /// One entry was compiled for each of these reasons, and no other; `reasons` are how their texts
  /// begin. Says nothing of an eager twin.
  void expect_misses(const std::vector<std::string>& reasons) const {
    if (!handle) return;
    const Stats stats = handle.stats();
    std::vector<std::string> seen;
    for (size_t i = 0; i < stats.misses.size(); ++i) {
      seen.push_back(stats.misses[i].reason);
      if (i < reasons.size() && seen[i].starts_with(reasons[i])) seen[i] = reasons[i];
    }
    EXPECT_EQ(seen, reasons);
    EXPECT_EQ(stats.compiles, static_cast<int64_t>(reasons.size()));
    EXPECT_EQ(stats.eager_calls, 0);
  }
  void expect_one_compile() const { expect_misses({"first call: no entry yet"}); }

  mutable Eager eager;
  Handle handle;  // empty in the eager twin
};

/// One of the two runs of a program.
class Twin {
 public:
  Twin(bool compiled, OptimizerKind kind) : compiled_(compiled), kind_(kind) {}

  bool is_compiled() const { return compiled_; }

  template <class Function>
  auto compile(Function function) const {
    using Handle = decltype(tandem::compile(function));
    return TwinFunction<Function, Handle>{function,
                                          compiled_ ? tandem::compile(function) : Handle{}};
  }
  template <class Modules, class Function>
  auto compile(const Modules& modules, Function function) const {
    using Handle = decltype(tandem::compile(modules, function));
    return TwinFunction<Function, Handle>{
        function, compiled_ ? tandem::compile(modules, function) : Handle{}};
  }

  std::unique_ptr<torch::optim::Optimizer> optimizer(std::vector<at::Tensor> parameters) const {
    if (kind_ == OptimizerKind::Sgd) {
      return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                                 torch::optim::SGDOptions(0.05).momentum(0.9));
    }
    return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                                torch::optim::AdamOptions(1e-2).eps(adam_eps()));
  }

  void record(std::string what, const at::Tensor& value) {
    records_.push_back(
        {std::move(what), {}, value.defined() ? value.detach().clone() : value, false});
  }
  void record(std::string what, std::string text) {
    records_.push_back({std::move(what), std::move(text), {}, false});
  }
  void record(std::string what, int64_t number) { record(std::move(what), std::to_string(number)); }
  /// A sum that eager forms in another order: equal but for rounding.
  void record_sum(std::string what, const at::Tensor& value) {
    record(std::move(what), value);
    records_.back().may_round = true;
  }
  /// The text of the error that `body` raises, without libtorch's backtrace.
  template <class Body>
  void record_error(std::string what, Body&& body) {
    std::string text = "no error";
    try {
      body();
    } catch (const c10::Error& error) {
      text = error.what_without_backtrace();
    } catch (const std::exception& error) {
      text = error.what();
    }
    record(std::move(what), std::move(text));
  }
  /// Compares the records of each name among themselves: for what runs in another order by nature.
  void sort_records() {
    std::stable_sort(records_.begin(), records_.end(),
                     [](const Record& a, const Record& b) { return a.what < b.what; });
  }
  /// Data, gradient, requires_grad and version of whatever the module has registered.
  void record_state(const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters()) record_tensor(item.key(), item.value());
    for (const auto& item : module.named_buffers()) record_tensor(item.key(), item.value());
  }
  void record_tensor(const std::string& what, const at::Tensor& tensor) {
    record(what, tensor);
    record("gradient of " + what, tensor.grad());
    record("requires_grad of " + what, tensor.requires_grad());
    record("version of " + what, tensor._version());
  }

 private:
  friend void expect_same_records(const Twin& eager, const Twin& compiled);
  struct Record {
    std::string what, text;
    at::Tensor value;
    bool may_round = false;
  };
  bool compiled_;
  OptimizerKind kind_;
  std::vector<Record> records_;
};

inline void expect_same_records(const Twin& eager, const Twin& compiled) {
  ASSERT_EQ(eager.records_.size(), compiled.records_.size());
  ASSERT_GT(eager.records_.size(), 0u) << "the program has recorded nothing";
  // Whatever comes after the first difference differs, too.
  for (size_t i = 0; i < eager.records_.size() && !::testing::Test::HasFailure(); ++i) {
    const auto &a = eager.records_[i], &b = compiled.records_[i];
    EXPECT_EQ(a.what, b.what) << "record " << i;
    EXPECT_EQ(a.text, b.text) << a.what << ", record " << i;
    if (a.may_round && a.value.defined() && b.value.defined()) {
      EXPECT_TRUE(at::allclose(a.value, b.value, 1e-12, 1e-14)) << a.what << ", record " << i;
    } else {
      EXPECT_TRUE(same_bits(a.value, b.value)) << a.what << ", record " << i;
    }
  }
}

/// Runs the program eagerly, then compiled, from the same seed; their records and the random stream
/// must be equal.
inline void expect_twins_agree(const std::function<void(Twin&)>& program,
                               OptimizerKind kind = OptimizerKind::Sgd) {
  const OneThread one_thread;
  const auto run = [&](bool compiled) {
    torch::manual_seed(11);
    Twin twin(compiled, kind);
    program(twin);
    twin.record("random stream", at::detail::getDefaultCPUGenerator().get_state());
    return twin;
  };
  WideRun wide_run;
  const Twin eager = [&] {
    const WideRun::Scope scope(wide_run);
    return run(false);
  }();
  expect_same_records(eager, run(true));
}

/// The same for a program that trains with `twin.optimizer()`: once with SGD, once with Adam.
inline void expect_training_agrees(const std::function<void(Twin&)>& program) {
  for (OptimizerKind kind : {OptimizerKind::Sgd, OptimizerKind::Adam}) {
    SCOPED_TRACE(kind == OptimizerKind::Sgd ? "SGD" : "Adam");
    expect_twins_agree(program, kind);
  }
}

}  // namespace tandem::test
