#include "fuzz/kinks.h"

#include "fuzz/op.h"

#include <exception>

namespace tandem::fuzz {
namespace {

/// Of the slope, and beside it. What bends gently changes its slope by less.
constexpr double kBend = 0.05, kLeastBend = 1e-3;

bool is_number(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
}

/// Another number for each element, from 1/2 to 1 and of either sign: no two move together.
at::Tensor waves(const at::Tensor& like, double phase) {
  const at::Tensor wave = at::arange(like.numel(), at::TensorOptions(at::kDouble)).add(phase).cos();
  return wave.add(wave.sign()).div(2).view(like.sizes()).to(like.scalar_type());
}

/// Tensors of one dimension.
at::Tensor joined(const Tensors& tensors) {
  Tensors flat;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const at::Tensor values = tensor.detach();
    flat.push_back((values.is_complex() ? at::view_as_real(values.resolve_conj()) : values)
                       .flatten()
                       .to(at::kDouble));
  }
  return flat.empty() ? at::empty({0}, at::TensorOptions(at::kDouble)) : at::cat(flat);
}

Tensors gradients_of(const Tensors& results, const Tensors& leaves, bool create_graph) {
  Tensors roots, tangents;
  for (const at::Tensor& result : results) {
    if (!result.defined() || !result.requires_grad()) continue;
    roots.push_back(result);
    tangents.push_back(waves(result, 0.5));
  }
  if (roots.empty()) return {};
  return torch::autograd::grad(roots, leaves, tangents, create_graph, create_graph,
                               /*allow_unused=*/true);
}

/// All slopes of the op with its operands moved by so many times what they may be off.
at::Tensor slopes(const Chooser& chooser, const Statement& statement,
                  const Surroundings& surroundings, const Aside& aside, double times) {
  Tensors variables = chooser.live, leaves;
  for (size_t index = 0; index < statement.operands.size(); ++index) {
    at::Tensor& operand = variables[static_cast<size_t>(statement.operands[index])];
    if (!is_number(operand) || operand.numel() == 0) continue;
    at::Tensor leaf = operand.detach().clone();
    leaf += waves(leaf, 2.5 * static_cast<double>(index)) * (times * aside.distance(operand));
    leaves.push_back(leaf.requires_grad_());
    operand = leaf * 1;  // which may be written
  }
  if (leaves.empty()) return joined({});
  Statement probe = statement;
  probe.results.clear();
  Tensors results;
  for (int index = 0; index < 4; ++index) {
    probe.results.push_back(static_cast<int>(variables.size()));
    variables.emplace_back();
  }
  run_op(probe, variables, surroundings);
  for (int result : probe.results) results.push_back(variables[static_cast<size_t>(result)]);
  if (statement.op->has(kInPlace)) {
    for (int operand : statement.operands)
      results.push_back(variables[static_cast<size_t>(operand)]);
  }
  Tensors gradients = gradients_of(results, leaves, aside.second_order);
  if (aside.second_order) {
    for (const at::Tensor& of : gradients_of(gradients, leaves, false)) gradients.push_back(of);
  }
  return joined(gradients);
}

}  // namespace

bool is_at_kink(const Chooser& chooser, const Statement& statement,
                const Surroundings& surroundings, const Aside& aside) {
  // What is drawn is drawn from its own numbers; views have no slopes of their own.
  if (statement.op->has(kRandom) || statement.op->has(kView)) return false;
  const at::AutoGradMode with_grad(true);
  try {
    const at::Tensor before = slopes(chooser, statement, surroundings, aside, -1);
    const at::Tensor after = slopes(chooser, statement, surroundings, aside, 1);
    if (before.sizes() != after.sizes()) return true;
    const at::Tensor bound = kBend * before.abs().maximum(after.abs()) + kLeastBend;
    // Where one of them is no number, nothing is said.
    return (before - after).abs().gt(bound).any().item<bool>();
  } catch (const std::exception&) {  // it has no derivative, or raises there
    return false;
  }
}

}  // namespace tandem::fuzz
