#include "signature/read_signature.h"

#include "support/run_trace.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::signature {
namespace {

using T = at::Tensor;
using test::Tensors;

ir::Signature signature_of(const Tensors& arguments,
                           const std::function<Tensors(const Tensors&)>& fn) {
  return read_signature(*test::run_trace(arguments, fn)).signature;
}

T leaf(at::IntArrayRef sizes) { return torch::ones(sizes).set_requires_grad(true); }

TEST(ReadSignature, NothingHappensToAnArgumentThatIsOnlyRead) {
  const ir::Signature s =
      signature_of({leaf({2})}, [](const Tensors& a) { return Tensors{a[0] * 2}; });
  EXPECT_FALSE(s.inputs[0].data_written || s.inputs[0].history_changed ||
               s.inputs[0].metadata_changed);
  EXPECT_EQ(s.inputs[0].version_delta, 0);
  EXPECT_EQ(s.outputs[0].kind, ir::OutputKind::Fresh);
  EXPECT_TRUE(s.outputs[0].requires_grad && !s.outputs[0].is_leaf);
}

// Data, version and history are independent facts: each program moves another set of them.
TEST(ReadSignature, WritesWithoutGrad) {
  const auto facts = [](const std::function<void(const T&)>& write, const T& x) {
    return signature_of({x},
                        [&](const Tensors& a) {
                          write(a[0]);
                          return Tensors{a[0] + 1};
                        })
        .inputs[0];
  };
  const auto plain = facts([](const T& x) { x.mul_(2).add_(1); }, torch::ones({2}));
  EXPECT_TRUE(plain.data_written && !plain.history_changed);
  EXPECT_EQ(plain.histories, 1);
  EXPECT_EQ(plain.version_delta, 2);

  const auto no_grad = facts(
      [](const T& x) {
        torch::NoGradGuard guard;
        x.add_(1);
      },
      leaf({2}));
  EXPECT_TRUE(no_grad.data_written && !no_grad.history_changed);
  EXPECT_EQ(no_grad.version_delta, 1);

  const auto detached = facts([](const T& x) { x.detach().mul_(2); }, leaf({2}));
  EXPECT_TRUE(detached.data_written && !detached.history_changed);
  EXPECT_EQ(detached.version_delta, 1);

  const auto data = facts([](const T& x) { x.data().mul_(2); }, leaf({2}));
  EXPECT_TRUE(data.data_written);
  EXPECT_EQ(data.version_delta, 0);

  const auto view = facts([](const T& x) { x.view(-1).slice(0, 0, 1).zero_(); }, torch::ones({2}));
  EXPECT_TRUE(view.data_written);
  EXPECT_EQ(view.version_delta, 1);
}

TEST(ReadSignature, BatchNormWritesItsStatisticsWithoutAVersion) {
  const ir::Signature s = signature_of(
      {torch::ones({4, 3}), torch::zeros({3}), torch::ones({3})}, [](const Tensors& a) {
        return Tensors{torch::batch_norm(a[0], {}, {}, a[1], a[2], true, 0.1, 1e-5, false)};
      });
  EXPECT_TRUE(s.inputs[1].data_written && s.inputs[2].data_written);
  EXPECT_EQ(s.inputs[1].version_delta, 0);
}

TEST(ReadSignature, KindsOfOutputs) {
  const ir::Signature s = signature_of({leaf({2, 2})}, [](const Tensors& a) {
    T y = a[0].exp();
    return Tensors{y, a[0], a[0].view(-1), y, T()};
  });
  const auto kinds = [&] {
    std::vector<ir::OutputKind> kinds;
    for (const auto& output : s.outputs) kinds.push_back(output.kind);
    return kinds;
  }();
  EXPECT_EQ(kinds, (std::vector{ir::OutputKind::Fresh, ir::OutputKind::IsInput,
                                ir::OutputKind::AliasOfInput, ir::OutputKind::SameAsOutput,
                                ir::OutputKind::Undefined}));
  EXPECT_EQ(s.outputs[3].source, 0);
}

TEST(ReadSignature, OneReplayPerInputAndOneSplitForItsParts) {
  const ir::Signature s = signature_of({leaf({4}), leaf({4})}, [](const Tensors& a) {
    auto parts = a[0].split(2);
    return Tensors{parts[0], parts[1], a[1].view({2, 2})};
  });
  ASSERT_EQ(s.replays.size(), 2u);
  EXPECT_EQ(s.replays[0].graph.node_count(), 1u);
  EXPECT_EQ(s.replays[0].graph.outputs().size(), 2u);
}

// What decides is the edge, the counter and the storage, each for itself.
TEST(ReadSignature, WritesThatAutogradSees) {
  const auto of = [](const std::function<void(T)>& write) {
    const T p = leaf({3});
    return signature_of({p * 1},
                        [&](const Tensors& a) {
                          write(a[0]);
                          return Tensors{a[0] + 1};
                        })
        .inputs[0];
  };
  const ir::InputFacts plain = of([](T x) { x.mul_(2).add_(1); });
  EXPECT_TRUE(plain.data_written && plain.history_changed);
  EXPECT_EQ(plain.version_delta, 2);
  const ir::InputFacts hidden = of([](T x) { x.data().mul_(2); });
  EXPECT_TRUE(hidden.data_written && !hidden.history_changed);
  EXPECT_EQ(hidden.version_delta, 0);
  const ir::InputFacts reshaped = of([](T x) { x.unsqueeze_(0); });
  EXPECT_TRUE(!reshaped.data_written && reshaped.history_changed && reshaped.metadata_changed);
  EXPECT_EQ(ir::to_string(*reshaped.type_after), "f32[1, 3]");
  EXPECT_EQ(plain.histories, 2);
  EXPECT_EQ(hidden.histories, 1);
  EXPECT_EQ(reshaped.histories, 2);
}

// libtorch makes the grad_fn of a view anew after any write to its memory.
TEST(ReadSignature, HistoriesOfAView) {
  const T p = leaf({3, 2});
  const auto histories = [&](const T& x, int writes) {
    return signature_of({x},
                        [&](const Tensors& a) {
                          T sum = a[0] + 1;
                          for (int i = 0; i < writes; ++i) {
                            a[0].detach().mul_(2);
                            sum = sum + a[0];
                          }
                          return Tensors{sum};
                        })
        .inputs[0]
        .histories;
  };
  EXPECT_EQ(histories(p * 1, 2), 1);
  EXPECT_EQ(histories((p * 1).narrow(0, 0, 2), 0), 1);
  EXPECT_EQ(histories((p * 1).narrow(0, 0, 2), 2), 2);
  // Of a base with other strides a trace can take no view: each write counts by itself.
  EXPECT_EQ(histories((p.t() * 1).narrow(0, 0, 1), 0), 1);
  EXPECT_EQ(histories((p.t() * 1).narrow(0, 0, 1), 2), 3);
}

TEST(ReadSignature, GroupsOfInputsThatAreWritten) {
  const T base = torch::ones({8});
  const Tensors views = {base.slice(0, 0, 5), base.slice(0, 3, 8), torch::ones({2})};
  const auto run = [&](bool write) {
    return signature_of(views, [&](const Tensors& a) {
      if (write) a[0].add_(1);
      return Tensors{a[1] * 2, a[2] * 2};
    });
  };
  const ir::Signature written = run(true);
  ASSERT_EQ(written.groups.size(), 1u);
  EXPECT_EQ(written.groups[0].members, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(written.groups[0].is_root);
  EXPECT_EQ(written.inputs[1].counter_of, 0);
  EXPECT_EQ(written.inputs[2].group, -1);
  EXPECT_TRUE(run(false).groups.empty());
}

TEST(ReadSignature, ViewsOfWhatTheCallMade) {
  const ir::Signature s = signature_of({leaf({2, 2})}, [](const Tensors& a) {
    const T hidden = a[0] * 2, shown = a[0] * 3;
    const T freed = shown.detach().requires_grad_();
    return Tensors{hidden.view(-1), shown.t(), shown, freed, freed.view(-1)};
  });
  ASSERT_EQ(s.bases.size(), 2u);
  EXPECT_EQ(s.bases[0].output, -1);
  EXPECT_EQ(s.bases[1].output, 2);
  EXPECT_EQ(s.outputs[0].kind, ir::OutputKind::AliasOfBase);
  EXPECT_EQ(s.outputs[1].kind, ir::OutputKind::AliasOfBase);
  EXPECT_EQ(s.outputs[2].kind, ir::OutputKind::Fresh);
  EXPECT_TRUE(s.outputs[3].made_leaf);
  EXPECT_EQ(s.outputs[4].kind, ir::OutputKind::AliasOfOutput);
  EXPECT_EQ(s.outputs[4].source, 3);
}

TEST(ReadSignature, LiftedTensorsComeFirst) {
  const T weight = leaf({2});
  const ir::Signature s =
      signature_of({torch::ones({2})}, [&](const Tensors& a) { return Tensors{a[0] * weight}; });
  ASSERT_EQ(s.inputs.size(), 2u);
  EXPECT_EQ(s.lifted_count, 1);
  EXPECT_EQ(s.inputs[0].role, ir::Descriptor::lifted(0));
  EXPECT_EQ(s.inputs[1].role, ir::Descriptor::user_input(0));
}

}  // namespace
}  // namespace tandem::signature
