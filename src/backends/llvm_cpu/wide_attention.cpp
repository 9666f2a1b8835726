#include "backends/llvm_cpu/wide_attention.h"

#include <c10/core/ScalarType.h>

#include <initializer_list>
#include <string_view>

namespace tandem::backends::llvm_cpu {
namespace {

using Results = std::vector<Expr>;
using Names = std::initializer_list<std::string_view>;

/// The same call with these tensors in f32; empty, which leaves it, if they are wide already.
Results widened(const OpCall& call, std::string_view op, Names tensors, Names others) {
  if (!c10::isReducedFloatingType(call.tensor("query").dtype())) return {};
  Builder::Operands operands;
  for (std::string_view name : tensors) operands.emplace_back(call.wide(name));
  for (std::string_view name : others) operands.push_back(call.operand(name));
  Builder::Named named{{"scale", call.operand("scale")}};
  if (call.has("attn_mask")) named.emplace_back("attn_mask", call.wide("attn_mask"));
  return call.builder().ops(op, operands, named);
}

Results forward(const OpCall& call) {
  return widened(call, "_scaled_dot_product_flash_attention_for_cpu", {"query", "key", "value"},
                 {"dropout_p", "is_causal"});
}

Results backward(const OpCall& call) {
  return widened(call, "_scaled_dot_product_flash_attention_for_cpu_backward",
                 {"grad_out", "query", "key", "value", "out", "logsumexp"},
                 {"dropout_p", "is_causal"});
}

}  // namespace

void add_wide_attention(Decompositions& table) {
  table.set("_scaled_dot_product_flash_attention_for_cpu", forward);
  table.set("_scaled_dot_product_flash_attention_for_cpu_backward", backward);
}

}  // namespace tandem::backends::llvm_cpu
