#include "conformance/case.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tandem::conformance {

const char* name_of(Feature feature) {
  switch (feature) {
    case Feature::AutogradModes:
      return "autograd modes";
    case Feature::DoubleBackward:
      return "double backward";
    case Feature::RandomNumbers:
      return "fast random numbers, with the LLVM backend";
    case Feature::Hooks:
      return "hooks";
    case Feature::CustomFunctions:
      return "custom functions";
    case Feature::SymbolicShapes:
      return "symbolic shapes";
    case Feature::MinCut:
      return "min-cut";
    case Feature::CommonSubexpressions:
      return "common subexpressions";
    case Feature::Checkpoint:
      return "checkpoint";
    case Feature::Budgets:
      return "budgets";
    case Feature::Cache:
      return "cache";
    case Feature::Export:
      return "export";
    case Feature::Cuda:
      return "CUDA-only";
  }
  return "";
}

void Session::judge(const MakeProgram& make, const Settings& settings) {
  if (take_) return take_(make, settings);
  for (const ModeResult& result : conformance::judge(make, settings)) {
    ModeCount& count = modes_[result.mode];
    if (!result.refusal.empty()) refusals_.push_back(result.refusal);
    switch (result.outcome) {
      case ModeResult::Outcome::Passed:
        ++count.passed;
        break;
      case ModeResult::Outcome::Later:
        ++count.later;
        break;
      case ModeResult::Outcome::Failed: {
        ++count.failed;
        std::string text;
        for (const std::string& line : result.differences) text += "\n    " + line;
        ADD_FAILURE() << "mode " << result.mode << ":" << text;
        break;
      }
    }
  }
}

void Session::judge(const std::function<Inputs()>& inputs,
                    const std::function<Tensors(Tensors&)>& function, const Settings& settings) {
  judge([=] { return Program{inputs, function}; }, settings);
}

void Session::missing(const std::string& what) { throw std::logic_error("missing: " + what); }

}  // namespace tandem::conformance
