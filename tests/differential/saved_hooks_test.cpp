/// Default saved-tensor hooks. Only Python's engine offers them; one of our own does the same here.
#include "support/same_bits.h"
#include "tandem/tandem.h"

#include <ATen/SavedTensorHooks.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

using at::Tensor;
using Lines = std::vector<std::string>;

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

/// What the hooks have seen, and which of them raise.
struct Seen {
  Lines lines;
  bool pack_raises = false, unpack_raises = false;
};
Seen& seen() {
  static Seen one;
  return one;
}

/// Keeps twice the tensor, as an offloading hook keeps a copy elsewhere.
struct DoublingHooks : torch::autograd::SavedVariableHooks {
  void call_pack_hook(const Tensor& tensor) override {
    EXPECT_TRUE(tensor.has_storage()) << "a traced tensor";
    TORCH_CHECK(!seen().pack_raises, "no room to pack");
    seen().lines.push_back("pack " + c10::str(tensor.sizes()));
    packed = tensor.detach() * 2;
  }
  Tensor call_unpack_hook() override {
    TORCH_CHECK(!seen().unpack_raises, "nothing to unpack");
    seen().lines.push_back("unpack " + c10::str(packed.sizes()));
    return packed / 2;
  }
  std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> retrieve_unpack_hook_data()
      const override {
    return std::nullopt;
  }
  Tensor packed;
};

class EngineWithHooks : public torch::autograd::Engine {
 public:
  static Engine& get() {
    static auto* const engine = new EngineWithHooks;
    return *engine;
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (!at::SavedTensorDefaultHooks::get_hooks()) return nullptr;
    return std::make_unique<DoublingHooks>();
  }
};

class SavedHooks : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::autograd::set_default_engine_stub(&EngineWithHooks::get);
    seen() = {};
  }
  void TearDown() override {
    torch::autograd::set_default_engine_stub(&torch::autograd::Engine::get_base_engine);
  }
};

/// Hooks on for a scope.
class Hooks {
 public:
  Hooks() {
    at::SavedTensorDefaultHooks::lazy_initialize();
    at::SavedTensorDefaultHooks::push_hooks(c10::SafePyObject(nullptr, nullptr),
                                            c10::SafePyObject(nullptr, nullptr));
  }
  ~Hooks() { at::SavedTensorDefaultHooks::pop_hooks(); }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;
};

Tensor program(const Tensor& x, const Tensor& w) { return (x * w).exp().sum(); }

TEST_F(SavedHooks, EachValueIsPackedOnceInTheCallAndUnpackedOnceInTheBackward) {
  const Tensor x = leaf({3}), w = leaf({3});
  const auto compiled = tandem::compile(program);
  for (int i = 0; i < 2; ++i) {  // the first call compiles: a trace packs nothing
    seen().lines.clear();
    Tensor y;
    {
      const Hooks hooks;
      y = compiled(x, w);
    }
    EXPECT_EQ(seen().lines, (Lines{"pack [3]", "pack [3]", "pack [3]"}));
    seen().lines.clear();
    const auto found = torch::autograd::grad({y}, {x, w});
    EXPECT_EQ(seen().lines, (Lines{"unpack [3]", "unpack [3]", "unpack [3]"}));
    const auto expected = torch::autograd::grad({program(x, w)}, {x, w});
    for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(same_bits(found[k], expected[k]));
  }
  // Eager saves the same three values.
  seen().lines.clear();
  const Hooks hooks;
  program(x, w);
  EXPECT_EQ(seen().lines, (Lines{"pack [3]", "pack [3]", "pack [3]"}));
}

TEST_F(SavedHooks, AKeptGraphUnpacksAgainInEachBackward) {
  const Tensor x = leaf({3}), w = leaf({3});
  const auto compiled = tandem::compile(program);
  Tensor y;
  {
    const Hooks hooks;
    y = compiled(x, w);
  }
  seen().lines.clear();
  for (int i = 0; i < 2; ++i) torch::autograd::grad({y}, {x, w}, {}, /*retain_graph=*/true);
  EXPECT_EQ(seen().lines.size(), 6);
  torch::autograd::grad({y}, {x, w});
  EXPECT_ANY_THROW(torch::autograd::grad({y}, {x, w})) << "the graph was released";
}

TEST_F(SavedHooks, AnUnpackHookThatRaisesLeavesTheGraphAsItWas) {
  const Tensor x = leaf({3}), w = leaf({3});
  const auto compiled = tandem::compile(program);
  Tensor y;
  {
    const Hooks hooks;
    y = compiled(x, w);
  }
  seen().unpack_raises = true;
  EXPECT_THROW(y.backward(), c10::Error);
  EXPECT_FALSE(x.grad().defined());
  seen().unpack_raises = false;
  y.backward();
  EXPECT_TRUE(same_bits(x.grad(), torch::autograd::grad({program(x, w)}, {x})[0]));
}

TEST_F(SavedHooks, APackHookThatRaisesEndsTheCall) {
  const Tensor x = leaf({3}), w = leaf({3});
  const auto compiled = tandem::compile(program);
  compiled.prepare(x, w);
  {
    const Hooks hooks;
    seen().pack_raises = true;
    EXPECT_THROW(program(x, w), c10::Error);
    EXPECT_THROW(compiled(x, w), c10::Error);
    seen().pack_raises = false;
  }
  compiled(x, w).backward();
  EXPECT_TRUE(same_bits(x.grad(), torch::autograd::grad({program(x, w)}, {x})[0]));
}

// Pushed around the backward only, hooks have nothing to do.
TEST_F(SavedHooks, HooksOfTheBackwardSeeNothing) {
  const Tensor x = leaf({3}), w = leaf({3});
  const auto compiled = tandem::compile(program);
  const Tensor y = compiled(x, w);
  const Hooks hooks;
  y.backward();
  EXPECT_EQ(seen().lines, Lines{});
}

}  // namespace
}  // namespace tandem::test
