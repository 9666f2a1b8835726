#pragma once

#include "tandem/ir/signature.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem::runtime {

/// One thing that a call does when its kernels have run. A call is a list of these and nothing
/// else: what it will do some day besides (to a gradient, to the state of an optimizer) is one more
/// row here, one case in run_actions and one place in list_actions.
struct Action {
  enum class Do : uint8_t {
    HoldInput,  // output `number`, which is saved, becomes a handle on `at` that nothing refers
                // back to
    // results and bases
    Take,         // `at` is output `number`
    Same,         // `at` is the very tensor at `source`
    ReplayViews,  // results that `CallPlan::replays[number]` makes
    // what autograd knows of inputs
    RequireGrad,  // requires_grad_() on a leaf
    StopGrad,     // requires_grad_(false)
    Detach,       // detach_()
    // nodes and edges
    MakeNodes,   // one per part of the backward
    AddSlot,     // the node of `part` takes one more gradient, of a tensor like output `number`, or
                 // if that is -1, like `at`
    TakeEdge,    // target `number` of the plan: where the gradient of a tensor goes now
    Connect,     // the node of `part` leads to its targets
    Attach,      // the node of `part` is the history of `at`, which the call has rewritten
    SetHistory,  // that of `at` is slot `number` of the node of `part`, or if that is -1, an end
    SetViewHistory,  // the same of a view, behind a node of its own
    MarkCustomView,  // eager refuses to write `at` in place
    // data, memory and geometry of inputs
    Write,            // the data of output `number` into `at`
    ReplaceStorage,   // `at` has the memory of output `number`
    SetStorage,       // `at` has the memory of the input that the signature names
    ResizeStorage,    // the storage of `at` has another size
    Grow,             // resize_() to the new sizes
    Restride,         // new sizes, strides and offset, below autograd
    RestrideAsAView,  // the same as an op with a gradient
    MoveVersion,      // the version counter of `at` by `number`
    RenewHistory,     // `at`, a view, makes its grad_fn anew when it is next asked for it
    // the end
    Save,         // what the backward reads is handed to the nodes
    AskHistory,   // `at`, if it is a view, makes its grad_fn now
    KeepHistory,  // the node of `part` remembers the history of `at`
    SetGradMode,
  };
  Do what;
  ir::CallTensor at{};
  ir::CallTensor source{};
  int64_t number = 0;
  size_t part = 0;

  friend bool operator==(const Action&, const Action&) = default;
};

/// `take output 0: 2`: the action, then those of its operands that mean something.
std::string to_string(const Action& action);

}  // namespace tandem::runtime
