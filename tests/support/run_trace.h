#pragma once

#include "tracing/trace.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tandem::test {

using Tensors = std::vector<at::Tensor>;

/// The open trace of a function on a list of tensors, for tests of what reads it.
inline std::unique_ptr<tracing::Trace> run_trace(const Tensors& arguments,
                                                 const std::function<Tensors(const Tensors&)>& fn) {
  detail::Flat flat;
  flat.tensors.assign(arguments.begin(), arguments.end());
  auto trace = std::make_unique<tracing::Trace>(
      flat, tracing::InputOptions{.names = std::vector<std::string>(arguments.size(), "argument")});
  trace->run([&](const detail::Flat& in) {
    const Tensors results = fn(Tensors(in.tensors.begin(), in.tensors.end()));
    detail::Flat out;
    out.tensors.assign(results.begin(), results.end());
    return out;
  });
  return trace;
}

}  // namespace tandem::test
