#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <ATen/native/Resize.h>
#include <gtest/gtest.h>

namespace tandem::conformance {
namespace {

void view_and_inplace_view(Session& session) {
  const Function program = [](Tensors& a) -> Tensors {
    a[0].transpose_(1, 0);
    return {a[1].view(a[1].sizes()), a[0].view(a[0].sizes())};
  };
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.kind(), EntryKind::inference)
        << "nothing is computed, so nothing has a backward";
  };
  session.judge(non_leaves({{3, 3}, {3, 3}}), program, settings);
  session.judge(plain({{3, 3}, {3, 3}}), program, settings);
}

/// Changes the size of a tensor's storage and nothing else. libtorch has no op for it in C++.
void resize_storage(const at::Tensor& tensor, size_t bytes) {
  at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), bytes);
}

void set_to_a_fresh_tensor(Session& session) {
  const Function program = [](Tensors& a) -> Tensors {
    at::Tensor b;
    {
      const torch::NoGradGuard no_grad;
      b = torch::arange(9, torch::kFloat).reshape({3, 3});
      a[0].set_(b);
    }
    return {a[0] * b};
  };
  session.judge(non_leaves({{3, 3}}), program);
  session.judge(plain({{3, 3}}), program);
}

/// A sharded parameter is freed after use, and brought back before the backward: what is saved is
/// the input itself, so the backward reads what it holds then.
void storage_resize_down(Session& session) {
  const Function program = [](Tensors& a) -> Tensors {
    at::Tensor out = a[0].sin();
    resize_storage(a[0], 0);
    return {out};
  };
  session.judge(plain({{3, 3}}), program);

  const auto gradient = [](const Function& call) {
    torch::manual_seed(1);
    at::Tensor p = leaf({3, 3}), x = p * 1.5;
    Tensors arguments = {x};
    const at::Tensor out = call(arguments)[0];
    EXPECT_EQ(x.storage().nbytes(), 0u);
    resize_storage(x, 36);
    x.data().fill_(0.25);  // counts no version, as a sharding library does it
    out.sum().backward();
    return p.grad();
  };
  const auto compiled =
      tandem::compile_boxed([&](Tensors arguments) { return program(arguments); });
  const at::Tensor expected = gradient(program);
  const at::Tensor found = gradient([&](Tensors& a) { return compiled(a); });
  EXPECT_TRUE(at::equal(expected, found));
}

/// Placeholder without memory, and the gathered tensor whose memory it takes over.
void storage_resize_down_and_set(Session& session) {
  const MakeInputs inputs = [] {
    at::Tensor placeholder = torch::empty({3, 3});
    resize_storage(placeholder, 0);
    return Inputs{{placeholder, torch::randn({3, 3})}};
  };
  session.judge(inputs, [](Tensors& a) -> Tensors {
    at::Tensor out;
    {
      const torch::NoGradGuard no_grad;
      a[0].set_(a[1]);
      out = a[0].sin();
    }
    resize_storage(a[0], 0);
    return {out};
  });
}

void storage_resize_before_set(Session& session) {
  session.judge(plain({{2}}), [](Tensors& a) -> Tensors {
    const torch::NoGradGuard no_grad;
    resize_storage(a[0], 0);
    a[0].set_(torch::ones({2}));
    return {};
  });
}

}  // namespace

Category input_mutation_metadata() {
  return {"Input mutation: metadata",
          {
              judged_both("test_input_mutation_metadata", {{3, 3}, {3, 3}},
                          [](Tensors& a) -> Tensors {
                            a[0].transpose_(1, 0);
                            return {a[0] + a[1]};
                          }),
              judged_both("test_input_mutation_metadata2", {{3, 3}},
                          [](Tensors& a) -> Tensors {
                            a[0].transpose_(1, 0);
                            a[0].mul_(2);
                            return {a[0] + 1};
                          }),
              {"test_view_and_inplace_view", view_and_inplace_view},
          }};
}

Category input_mutation_storage() {
  return {"Input mutation: set_ and storage resize",
          {
              {"test_input_mutation_set__input_mutation", set_to_a_fresh_tensor},
              {"test_input_mutation_storage_resize_down", storage_resize_down},
              {"test_input_mutation_storage_resize_down_and_set_", storage_resize_down_and_set},
              {"test_input_mutation_storage_resize_before_set_", storage_resize_before_set},
          }};
}

}  // namespace tandem::conformance
