#pragma once

#include "conformance/judge.h"
#include "conformance/program.h"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tandem::conformance {

/// What has to be built before a case can pass.
enum class Feature {
  AutogradModes,
  DoubleBackward,
  RandomNumbers,
  Hooks,
  CustomFunctions,
  SymbolicShapes,
  MinCut,
  CommonSubexpressions,
  Checkpoint,
  Budgets,
  Cache,
  Export,
  Cuda,
};
const char* name_of(Feature feature);

/// How a case is expected to end.
struct Standing {
  enum class Kind { Passes, Later, Differs };
  Kind kind = Kind::Passes;
  Feature feature{};
  std::string words{};  // Later: part of the text of the refusal. Differs: why
};

/// The feature is missing, and what shows it is an error that contains these words: a refusal of
/// the library, or the error of the case itself where a named API does not exist.
inline Standing later(Feature feature, std::string words) {
  return {Standing::Kind::Later, feature, std::move(words)};
}
/// We do better or other on purpose, and why. The body checks what we do instead.
inline Standing differs(std::string why) { return {Standing::Kind::Differs, {}, std::move(why)}; }

/// What the body of a case works with. Its own EXPECT_ lines count, too.
class Session {
 public:
  using Take = std::function<void(const MakeProgram&, const Settings&)>;
  Session() = default;
  /// Judges nothing: the programs of the case are taken instead.
  explicit Session(Take take) : take_(std::move(take)) {}

  /// In all modes. What differs becomes failures of the case.
  void judge(const MakeProgram& make, const Settings& settings = {});
  /// The same of a program without closure.
  void judge(const std::function<Inputs()>& inputs,
             const std::function<Tensors(Tensors&)>& function, const Settings& settings = {});
  /// A named API does not exist, or not for this: ends a case that is `later`.
  [[noreturn]] void missing(const std::string& what);

  struct ModeCount {
    int passed = 0, failed = 0, later = 0;
  };
  const std::map<std::string, ModeCount>& modes() const { return modes_; }
  const std::vector<std::string>& refusals() const { return refusals_; }

 private:
  Take take_{};
  std::map<std::string, ModeCount> modes_;
  std::vector<std::string> refusals_;
};

struct Case {
  std::string name;  // the peer's, where the peer has one
  std::function<void(Session&)> body;
  Standing standing{};
};

struct Category {
  std::string name;
  std::vector<Case> cases;
};

/// Every category, in the order of the status page.
std::vector<Category> all_categories();

}  // namespace tandem::conformance
