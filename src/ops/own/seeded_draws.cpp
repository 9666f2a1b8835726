#include "ops/own/seeded_draws.h"

#include "base/philox.h"
#include "ops/own/bernoulli_like.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <cmath>
#include <mutex>
#include <vector>

namespace tandem::ops {
namespace {

// The operand says where: on the CPU, whose generator gives the seed whatever the device.
at::Tensor draw_seed(const at::Tensor& /*like*/) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  uint64_t seed = 0;
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    seed = at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
  }
  return at::scalar_tensor(at::Scalar(static_cast<int64_t>(seed)), at::kLong);
}

at::Tensor draw_seed_meta(const at::Tensor& like) {
  return at::empty({}, like.options().dtype(at::kLong));
}

// Counted in the order of the dimensions, wherever the elements lie.
at::Tensor bernoulli_from(const at::Tensor& like, const at::Tensor& seed, double p) {
  at::Tensor mask = at::empty(like.sizes(), like.options().dtype(at::kBool));
  const auto key = static_cast<uint64_t>(seed.item<int64_t>());
  const int64_t threshold = bernoulli_threshold(p);
  bool* data = mask.mutable_data_ptr<bool>();
  for (int64_t i = 0; i < mask.numel(); ++i) {
    const uint64_t bits = base::philox(static_cast<uint64_t>(i), key);
    data[i] = static_cast<int64_t>(bits & 0xffffffff) < threshold;
  }
  return at::empty_like(like).copy_(mask);
}

at::Tensor bernoulli_from_meta(const at::Tensor& like, const at::Tensor&, double) {
  return at::empty_like(like);
}

std::vector<Expr> drawn(const OpCall& call, std::string_view name) {
  const Expr x = call.tensor(name);
  // A generator of the user's own keeps its stream; so do devices with generators of their own.
  if (call.has("generator") || !x.type().device.is_cpu()) return {};
  Builder& builder = call.builder();
  const Expr seed = builder.op(kDrawSeed.name(), {x});
  return {builder.op(kBernoulliFrom.name(), {x, seed, call.number("p")})};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  using c10::DispatchKey;
  library.def("draw_seed(Tensor like) -> Tensor", {at::Tag::nondeterministic_seeded});
  library.impl("draw_seed",
               torch::dispatch(DispatchKey::CompositeExplicitAutograd, TORCH_FN(draw_seed)));
  library.impl("draw_seed", torch::dispatch(DispatchKey::Meta, TORCH_FN(draw_seed_meta)));
  library.def("bernoulli_from(Tensor like, Tensor seed, float p) -> Tensor", {at::Tag::pointwise});
  library.impl("bernoulli_from",
               torch::dispatch(DispatchKey::CompositeExplicitAutograd, TORCH_FN(bernoulli_from)));
  library.impl("bernoulli_from", torch::dispatch(DispatchKey::Meta, TORCH_FN(bernoulli_from_meta)));
}

constinit const OwnOp kDrawSeed{"tandem::draw_seed"};
constinit const OwnOp kBernoulliFrom{"tandem::bernoulli_from"};

int64_t bernoulli_threshold(double p) { return std::llround(p * 0x1p32); }

Decompositions seeded_draws() {
  Decompositions table;
  table.set("aten::bernoulli.p", [](const OpCall& call) { return drawn(call, "self"); });
  table.set(kBernoulliLike.name(), [](const OpCall& call) { return drawn(call, "x"); });
  return table;
}

}  // namespace tandem::ops
