#include "fuzz/draft.h"

#include "fuzz/changing_sizes.h"
#include "support/same_bits.h"

namespace tandem::fuzz {

Draft::Draft(Random& random, uint64_t seed, const GenerateOptions& options)
    : random(random), bits_promised(!test::backend_rounds()) {
  const bool twice = random.percent(50);  // the same programs, with or without
  program.second_order = options.second_order && twice;
  program.seed = seed;
  program.patterns = patterns_of(seed, options.patterns);
  leave_sizes_to_others(program.patterns);
  for (const Op& op : all_ops()) {
    if (op.pattern && op.only_in && has(*op.only_in)) pattern_ops.push_back(&op);
  }
}

bool is_tame(const at::Tensor& tensor, const Limits& limits) {
  if (!tensor.defined()) return true;
  if (tensor.numel() > limits.numel) return false;
  if (tensor.numel() == 0) return limits.empty;
  if (limits.special) return true;
  if (!tensor.is_floating_point() && !tensor.is_complex()) return true;
  const at::NoGradGuard no_grad;
  const at::Tensor largest = tensor.detach().abs().max();
  return largest.item<double>() <= limits.largest;  // false for NaN, too
}

}  // namespace tandem::fuzz
