#include "signature/input_checks.h"

#include "base/error.h"
#include "libtorch/slot_watch.h"
#include "ops/memory/shares_memory.h"
#include "tracing/inputs/gradient_slots.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <unordered_map>

namespace tandem::signature {
namespace {

using tracing::StandIn;

/// What a set_() or a resize of the storage cannot be combined with.
void check_storage(const tracing::Trace& trace, const StandIn& stand_in,
                   const ir::InputFacts& facts) {
  if (facts.storage == ir::StorageChange::None) return;
  const std::string name = trace.name_of(stand_in);
  const char* what = facts.storage == ir::StorageChange::Replaced ? "gets other memory by set_()"
                     : facts.storage == ir::StorageChange::Grown  ? "grows by resize_()"
                                                                  : "has its storage resized";
  if (facts.history_changed) {
    TANDEM_UNSUPPORTED("signature", name, " ", what,
                       " and is written in place by a differentiable operation, too",
                       base::detail_line("at", trace.line_of(stand_in.tensor)),
                       "\n  remedy: do one of the two outside the compiled function, or write "
                       "under torch::NoGradGuard");
  }
  if (facts.storage == ir::StorageChange::Resized && !stand_in.real.is_cpu()) {
    TANDEM_UNSUPPORTED("signature", name, " ", what, ", and it lies on ", stand_in.real.device(),
                       "\n  remedy: resize its storage outside the compiled function");
  }
  if (facts.group >= 0) {
    TANDEM_UNSUPPORTED("signature", name, " ", what,
                       " and shares memory that the function writes with another input",
                       base::detail_line("at", trace.line_of(stand_in.tensor)),
                       "\n  remedy: do one of the two outside the compiled function, or clone() "
                       "the other input");
  }
}

/// Gradients that the function has not asked for by `.grad()`: the program has kept one, or an
/// unnamed optimizer has shown it to an op.
void check_gradients(const tracing::Trace& trace) {
  // By storage: optimizers reach gradients through `.data()`, which is another tensor on the same
  // memory.
  std::unordered_map<const c10::StorageImpl*, const StandIn*> owner_of_grad;
  for (const StandIn& stand_in : trace.stand_ins()) {
    const at::Tensor& grad = libtorch::noted_gradient(stand_in.real);
    if (stand_in.real.is_leaf() && grad.defined() && grad.has_storage())
      owner_of_grad.emplace(grad.storage().unsafeGetStorageImpl(), &stand_in);
  }
  for (const StandIn& stand_in : trace.stand_ins()) {
    const auto it = owner_of_grad.find(stand_in.real.storage().unsafeGetStorageImpl());
    if (it == owner_of_grad.end()) continue;
    if (trace.recording().graph().input_role(stand_in.input).role == ir::Role::UserInput) continue;
    throw UnsupportedError("trace", tracing::gradient_refusal(trace.name_of(*it->second), {}));
  }
}

/// A lifted tensor that nobody else holds was made while the function ran, by means that no hook
/// sees, or the function let go of it: the next call would mean another tensor, and this one would
/// be stale.
void check_held(const tracing::Trace& trace) {
  for (size_t i = trace.argument_count(); i < trace.stand_ins().size(); ++i) {
    const StandIn& stand_in = trace.stand_ins()[i];
    if (stand_in.real.use_count() > 1 || stand_in.real.storage().use_count() > 1) continue;
    TANDEM_UNSUPPORTED(
        "trace", trace.name_of(stand_in), " exists only while the function runs",
        "\n  cause:  it wraps memory of the program (torch::from_blob), or the function "
        "replaced a tensor that it closes over",
        "\n  remedy: make it outside and pass it as an argument; return new state instead "
        "of assigning it");
  }
}

/// Why the trace could not give them one base.
std::string overlap_cause(const tracing::Trace& trace, const StandIn& a, const StandIn& b) {
  const std::vector<at::Tensor> both = {a.real, b.real};
  if (std::string cause = tracing::cannot_be_group(both); !cause.empty()) return cause;
  std::vector<at::Tensor> all;
  for (const StandIn& one : trace.stand_ins()) {
    if (one.duplicate_of < 0 && one.real.storage().is_alias_of(a.real.storage()))
      all.push_back(one.real);
  }
  const std::string cause = tracing::cannot_be_group(all);
  return cause.empty() ? "the function reaches one of them only in some runs"
                       : "other inputs lie there, too: " + cause;
}

/// Elements that lie on top of each other are one element; their stand-ins are many. In a group
/// they are views of one stretch of memory.
void check_expanded(const tracing::Trace& trace, const StandIn& stand_in,
                    const ir::InputFacts& facts) {
  if (!facts.data_written || facts.group >= 0 || facts.storage != ir::StorageChange::None) return;
  for (int64_t i = 0; i < stand_in.real.dim(); ++i) {
    if (stand_in.real.stride(i) != 0 || stand_in.real.size(i) < 2) continue;
    TANDEM_UNSUPPORTED("signature", trace.name_of(stand_in),
                       " is written through a view, and several of its elements lie at one place",
                       base::detail_line("at", trace.line_of(stand_in.tensor)),
                       "\n  sizes:  ", stand_in.real.sizes(),
                       "\n  strides: ", stand_in.real.strides(),
                       "\n  remedy: pass what it was expanded from, or clone() it");
  }
}

/// Related, but in no group together. The write of a view that has its base to itself is recorded
/// on the base, where others find it that are no view of it in the trace.
bool stand_apart(const tracing::Trace& trace, const StandIn& written, const StandIn& other) {
  if (ops::shares_memory(written.real, other.real)) return true;
  return trace.inputs().are_related(written, other) && (written.group < 0 || other.group >= 0);
}

/// A write through one input must be seen through another that shares its memory, and in the
/// history of another view of the same tensor. Stand-ins see to it within a group; a tensor that a
/// trace meets late for the second time is in none.
void check_overlap(const tracing::Trace& trace, const ir::Signature& signature,
                   const std::vector<size_t>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (!signature.inputs[i].data_written || signature.inputs[i].duplicate_of >= 0) continue;
    const StandIn& written = trace.stand_ins()[order[i]];
    for (size_t j = 0; j < order.size(); ++j) {
      if (signature.inputs[j].duplicate_of >= 0) continue;  // the first of them says it all
      const StandIn& other = trace.stand_ins()[order[j]];
      if (i == j || (signature.inputs[i].group >= 0 &&
                     signature.inputs[i].group == signature.inputs[j].group)) {
        continue;
      }
      if (!stand_apart(trace, written, other)) continue;
      TANDEM_UNSUPPORTED("signature", trace.name_of(written),
                         ops::shares_memory(written.real, other.real)
                             ? " is written and shares memory with "
                             : " is written and is a view of the same tensor as ",
                         trace.name_of(other),
                         base::detail_line("at", trace.line_of(written.tensor)),
                         base::detail_line("cause", overlap_cause(trace, written, other)),
                         "\n  remedy: pass tensors that do not overlap, or clone() one of them");
    }
  }
}

}  // namespace

void check_inputs(const tracing::Trace& trace, const ir::Signature& signature,
                  const std::vector<size_t>& order) {
  check_held(trace);
  check_gradients(trace);
  for (size_t i = 0; i < order.size(); ++i) {
    check_storage(trace, trace.stand_ins()[order[i]], signature.inputs[i]);
    check_expanded(trace, trace.stand_ins()[order[i]], signature.inputs[i]);
  }
  check_overlap(trace, signature, order);
}

}  // namespace tandem::signature
