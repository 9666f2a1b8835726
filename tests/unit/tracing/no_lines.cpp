#include "no_lines.h"

[[gnu::noinline]] at::Tensor sine_without_lines(const at::Tensor& x) { return x.sin().abs(); }

tandem::detail::Flat sines_without_lines(const tandem::detail::Flat& arguments) {
  tandem::detail::Flat results;
  for (const at::Tensor& x : arguments.tensors) results.tensors.push_back(sine_without_lines(x));
  return results;
}
