#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

/// Ops of another library that do something besides computing: they write lines to a log.
namespace tandem::test {

/// What the ops have written since the last time it was asked for.
std::vector<std::string> taken_lines();

/// Registers the ops, once; unmarked.
void register_effect_ops();

void say(const std::string& text);         // `say(str text) -> ()`: a body only
at::Tensor tap(const at::Tensor& x);       // a copy; kernels for CPU and Meta
at::Tensor tap_grad(const at::Tensor& x);  // the same with an autograd kernel that taps, too
std::vector<at::Tensor> tap_two(const at::Tensor& x);
void note_sum(const at::Tensor& x);  // without result; kernel for CPU only
void require_positive(const at::Tensor& x);
at::Tensor twice(const at::Tensor& x);         // a body only, which says `inside`
void fill(const at::Tensor& x, double value);  // `(Tensor(a!) x, float value) -> ()`
at::Tensor bump(const at::Tensor& x);          // `(Tensor(a!) x) -> Tensor(a!)`
at::Tensor add_into(const at::Tensor& x, const at::Tensor& sum);  // writes sum, returns new memory
void fill_list(const std::vector<at::Tensor>& list);
void grow(const at::Tensor& x);  // writes, and resizes

}  // namespace tandem::test
