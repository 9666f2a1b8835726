#pragma once

#include "tandem/error.h"
#include "tandem/ir/graph.h"

namespace tandem::ops {

/// A check that a trace wrote into the forward graph has failed: the compiled code took a branch
/// that the function would not take now. Nothing has been written yet; random draws may have been
/// made.
class CheckFailed : public UserError {
 public:
  using UserError::UserError;
};

/// `tandem::check_not_equal(Tensor a, Tensor b) -> ()`: raises CheckFailed if the two are equal.
inline constexpr const char* kCheckNotEqual = "tandem::check_not_equal";

bool has_run_time_checks(const ir::Graph& graph);

}  // namespace tandem::ops
