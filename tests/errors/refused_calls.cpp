// Programs that no form of compile fits. static_asserts_test.py expects for every "expect:" the
// text after it and a mention of the line below, and at most ten lines for each of them.
#include "tandem/tandem.h"

#include <torch/torch.h>

#include <functional>

using T = at::Tensor;

T two(const T& a, const T& b) { return a + b; }

struct Net : torch::nn::Module {
  T forward(const T& x) { return x; }
};

struct Overloaded : torch::nn::Module {
  T forward(const T& x) { return x; }
  T forward(const T& x, const T& y) { return x + y; }
};

void programs(torch::nn::Linear net, const T& w) {
  // expect: the types of the parameters of this function are not known. Remedy: write them out
  auto generic = tandem::compile([](auto x) { return x; });
  // expect: name them: compile<at::Tensor(at::Tensor)>(net, fn)
  auto with_net = tandem::compile(net, [&](auto x) { return net(x); });
  // expect: of std::bind and member functions make a lambda
  auto bound = tandem::compile(std::bind(two, std::placeholders::_1, w));
  // expect: of std::bind and member functions make a lambda
  auto member = tandem::compile(&Net::forward);
  // expect: forward() of this module is overloaded, a template or not there. Remedy: name its
  auto overloaded = tandem::compile(std::make_shared<Overloaded>());
  // expect: an option is misspelt, out of order or of another type
  auto misspelt = tandem::compile([](const T& x) { return x; }, {.bakend = "llvm"});
  // expect: compare it with the fields of tandem::Options, which come last
  auto another_type = tandem::compile([](const T& x) { return x; }, {.max_entries = "many"});
  // expect: an option is misspelt, out of order or of another type
  auto after_net = tandem::compile(net, [&](const T& x) { return net(x); }, {.bakend = "llvm"});
  // expect: an option is misspelt, out of order or of another type
  auto named = tandem::compile<T(T)>([](auto x) { return x; }, {.bakend = "llvm"});
  // What is made of a refused call is no error of its own.
  generic(w).sum().backward();
}
