// Programs that must not compile. static_asserts_test.py expects for every "expect:" the text after
// it, and a mention of the line below.
#include "tandem/tandem.h"

#include <torch/nn/module.h>

#include <memory>
#include <tuple>
#include <vector>

using T = at::Tensor;

struct Undescribed {
  T x;
};

struct Net : torch::nn::Module {};
struct OtherNet : torch::nn::Module {};

namespace shop {
struct NoDefault {
  explicit NoDefault(T tensor) : x(tensor) {}
  T x;
};
TANDEM_STRUCT(NoDefault, x)
}  // namespace shop

void programs(const T& x) {
  // expect: a compiled function cannot have a parameter of type at::Tensor&
  tandem::compile([](T& y) { y = y + 1; });
  // expect: a compiled function cannot have a parameter of type at::Tensor&
  tandem::compile<T(std::vector<T>&)>([](auto&& y) { return y[0]; });
  // expect: TANDEM_STRUCT(Type, field, ...) beside it, in its namespace
  tandem::compile([](const Undescribed& y) { return y.x; });
  // expect: can be arguments, not results. Remedy: return std::vector<at::Tensor>
  tandem::compile([](at::TensorList y) { return y; });
  // expect: a TANDEM_STRUCT type needs a default constructor
  tandem::compile([](const shop::NoDefault& y) { return y.x; });
  // expect: Compiled names plain types. Remedy: write Compiled<at::Tensor(at::Tensor)>
  tandem::Compiled<T(const T&)> handle;
  // expect: export_joint needs one value in the tuple for each parameter of the function
  tandem::export_joint([](const T& a, const T& b) { return a + b; }, std::tuple{x});
  // expect: must outlive the compiled function, and this one is a temporary or a copy
  tandem::compile(Net(), [](const T& y) { return y; });
  OtherNet net;
  // expect: Remedy: give it a name (in a tuple: std::tie), or name its holder or shared_ptr
  tandem::compile(std::make_tuple(net), [](const T& y) { return y; });
}
