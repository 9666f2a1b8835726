#include "fuzz/sizes_check.h"

#include "support/same_bits.h"

#include <sstream>
#include <utility>

namespace tandem::fuzz {
namespace {

/// How many entries calls with so many different sets of sizes may need. As long as each set has
/// an entry of its own, one each; this is the place for a tighter bound.
int64_t most_compiles(int64_t different_states) { return different_states; }

}  // namespace

Tensors SizesCheck::call(const std::function<Tensors()>& body, const std::function<Stats()>& stats,
                         int number) {
  const std::string before_call = state(number);
  states_.insert(before_call);  // what raises may have been compiled before
  const Stats before = stats();
  Tensors results = body();
  const Stats after = stats();
  const auto [first, is_new] = served_.try_emplace(before_call, number);
  std::ostringstream out;
  const auto note = [&](const char* what, int64_t from, int64_t to) {
    out << "sizes " << at::IntArrayRef(program_.sizes_of_calls[static_cast<size_t>(number)])
        << " were served in call " << first->second << ": " << what << " went from " << from
        << " to " << to;
    if (!after.misses.empty()) out << " because " << after.misses.back().reason;
    out << "; ";
  };
  if (!is_new) {
    if (after.hits != before.hits + 1) note("hits", before.hits, after.hits);
    if (after.traces != before.traces) note("traces", before.traces, after.traces);
    if (after.compiles != before.compiles) note("compiles", before.compiles, after.compiles);
  }
  const int64_t most = most_compiles(static_cast<int64_t>(states_.size()));
  if (after.compiles > most) {
    out << after.compiles << " compiles for " << states_.size() << " sets of sizes";
  }
  if (difference_.empty() && !out.str().empty()) difference_ = "a needless compile: " + out.str();
  return results;
}

/// All that may make another entry right: sizes, host state, and what guards see of closed-over
/// tensors.
std::string SizesCheck::state(int number) const {
  std::ostringstream out;
  out << at::IntArrayRef(program_.sizes_of_calls[static_cast<size_t>(number)]);
  // Each change of the host makes a tensor of its own.
  if (program_.host_changes) out << " call " << number;
  for (const at::Tensor& tensor : closure_) {
    out << "; " << tensor.scalar_type() << tensor.sizes() << tensor.strides() << ' '
        << tensor.storage_offset() << tensor.requires_grad() << tensor.is_leaf() << tensor.is_view()
        << tensor.is_conj() << tensor.is_neg() << ' ' << tensor.unsafeGetTensorImpl() << ' '
        << tensor.storage().unsafeGetStorageImpl();
  }
  return out.str();
}

bool are_left_alike(const Tensors& a, const Tensors& b, const at::Generator& a_draws,
                    const at::Generator& b_draws) {
  if (!test::same_bits(a_draws.get_state(), b_draws.get_state())) return false;
  for (size_t index = 0; index < a.size(); ++index) {
    const at::Tensor &x = a[index], &y = b[index];
    if (x.is_inference() != y.is_inference() || x.strides() != y.strides() ||
        (x.grad_fn() == nullptr) != (y.grad_fn() == nullptr)) {
      return false;
    }
    if (!x.is_inference() && x._version() != y._version()) return false;
    if (!test::same_bits(x, y)) return false;
  }
  return true;
}

}  // namespace tandem::fuzz
