#pragma once

// What the programs of this folder include when they are built as eager's twin: `compile` gives the
// function back as it is. Everything else in them is the same.

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <string>
#include <utility>

#define TANDEM_STRUCT(...)

namespace tandem {

struct Options {
  const char* backend = "";
  int64_t max_entries = 16;
};

template <class F>
  requires requires { &F::operator(); }
auto compile(F fn, const Options& = {}) {
  return fn;
}

template <class M>
  requires(!requires { &M::operator(); })
auto compile(M net, const Options& = {}) {
  return [net]<class... A>(A&&... arguments) mutable {
    return net->forward(std::forward<A>(arguments)...);
  };
}

template <class M, class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Options>)
auto compile(M&&, F fn, const Options& = {}) {
  return fn;
}

}  // namespace tandem
