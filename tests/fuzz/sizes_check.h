#pragma once

#include "fuzz/program.h"
#include "tandem/tandem.h"

#include <ATen/core/Generator.h>

#include <functional>
#include <map>
#include <set>
#include <string>

namespace tandem::fuzz {

/// What the entries of a compiled function must do in calls of changing sizes: a call whose sizes,
/// and all else that guards look at, were there before finds an entry and compiles nothing.
class SizesCheck {
 public:
  /// `closure` are the tensors that the compiled function closes over.
  SizesCheck(const ProgramSpec& program, const Tensors& closure)
      : program_(program), closure_(closure) {}

  /// Makes the call. What it raises goes through.
  Tensors call(const std::function<Tensors()>& body, const std::function<Stats()>& stats,
               int number);

  /// What was compiled or traced though it was not needed; empty: nothing.
  const std::string& difference() const { return difference_; }

 private:
  std::string state(int number) const;

  const ProgramSpec& program_;
  const Tensors& closure_;
  std::map<std::string, int> served_{};  // state before a call, and the first call that had it
  std::set<std::string> states_{};
  std::string difference_{};
};

/// Whether two runs have left what they close over in the same state: after an error they have not
/// if eager had done something before it.
bool are_left_alike(const Tensors& a, const Tensors& b, const at::Generator& a_draws,
                    const at::Generator& b_draws);

}  // namespace tandem::fuzz
