#include "fuzz/interpret.h"

#include "fuzz/chooser.h"
#include "fuzz/op.h"

#include <ATen/CPUGeneratorImpl.h>

namespace tandem::fuzz {

Interpreter::Interpreter(const ProgramSpec& program, bool compiled)
    : surroundings_{at::detail::createCPUGenerator(program.seed)} {
  for (const Function& function : program.inner) {
    Boxed body = [this, &function](Tensors parameters) {
      return call(function, std::move(parameters));
    };
    if (compiled) {
      inner_.push_back([handle = tandem::compile_boxed(body)](Tensors parameters) {
        return handle(std::move(parameters));
      });
    } else {
      inner_.push_back(std::move(body));
    }
  }
}

void Interpreter::run(const std::vector<Statement>& statements, Tensors& variables) const {
  for (const Statement& statement : statements) {
    switch (statement.kind) {
      case StatementKind::Op:
        run_op(statement, variables, surroundings_);
        break;
      case StatementKind::NoGrad: {
        const at::NoGradGuard mode;
        run(statement.body, variables);
        break;
      }
      case StatementKind::EnableGrad: {
        const at::AutoGradMode mode(true);
        run(statement.body, variables);
        break;
      }
      case StatementKind::Inference: {
        const c10::InferenceMode mode;
        run(statement.body, variables);
        break;
      }
      case StatementKind::Repeat:
        for (int64_t turn = 0; turn < statement.count; ++turn) run(statement.body, variables);
        break;
      case StatementKind::Call: {
        Tensors parameters;
        for (int operand : statement.operands) {
          parameters.push_back(variables[static_cast<size_t>(operand)]);
        }
        const Tensors results = inner_.at(statement.function)(std::move(parameters));
        for (size_t index = 0; index < statement.results.size(); ++index) {
          variables[static_cast<size_t>(statement.results[index])] = results.at(index);
        }
        break;
      }
    }
  }
}

Tensors Interpreter::call(const Function& function, Tensors parameters) const {
  Tensors variables = std::move(parameters);
  variables.resize(static_cast<size_t>(function.variables));
  run(function.statements, variables);
  Tensors results;
  for (int result : function.results) results.push_back(variables[static_cast<size_t>(result)]);
  return results;
}

Tensors Interpreter::make(const Origin& origin) const {
  Tensors variables;
  for (const Leaf& leaf : origin.leaves) {
    std::optional<c10::InferenceMode> mode;
    if (leaf.inference) mode.emplace();
    variables.push_back(fill(leaf).set_requires_grad(leaf.requires_grad));
  }
  size_t count = variables.size();
  for (const Statement& statement : origin.statements) {
    for (int result : statement.results) {
      count = std::max(count, static_cast<size_t>(result) + 1);
    }
  }
  variables.resize(count);
  run(origin.statements, variables);
  return variables;
}

at::Tensor fill(const Leaf& leaf) {
  if (at::isIntegralType(leaf.dtype, /*includeBool=*/true)) {
    return torch::randint(0, leaf.dtype == at::kBool ? 2 : 4, leaf.sizes, leaf.dtype);
  }
  if (leaf.fill == Fill::Special) {
    const at::Tensor values = torch::tensor(
        {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e30, -1e30, 3e38, 1e15, 1e-40, -1e-310, 1.0, -2.5},
        at::kDouble);
    const at::Tensor which = torch::randint(0, values.numel(), leaf.sizes, at::kLong);
    return values.index({which}).to(leaf.dtype);
  }
  const at::Tensor drawn = torch::randn(leaf.sizes, leaf.dtype);
  return leaf.fill == Fill::LargeMean ? drawn + 10000 : drawn;
}

at::Tensor apart(const at::Tensor& tensor) {
  return tensor.is_leaf() ? tensor.detach().clone().requires_grad_(tensor.requires_grad())
                          : tensor.clone();
}

Tensors given(const Origin& origin, const Tensors& variables) {
  Tensors list;
  for (int variable : origin.given) list.push_back(variables[static_cast<size_t>(variable)]);
  return list;
}

}  // namespace tandem::fuzz
