#pragma once

#include "ops/own/own_op.h"
#include "tandem/error.h"

namespace tandem::ops {

/// A check that a trace wrote into the forward graph has failed: the compiled code took a branch
/// that the function would not take now. Nothing has been written yet; random draws may have been
/// made.
class CheckFailed : public UserError {
 public:
  using UserError::UserError;
};

/// `tandem::check_not_equal(Tensor a, Tensor b) -> ()`: raises CheckFailed if the two are equal.
extern const OwnOp kCheckNotEqual;

/// Whether the graph has such a check.
bool has_run_time_checks(const ir::Graph& graph);

}  // namespace tandem::ops
