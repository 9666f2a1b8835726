#include "ops/metadata/metadata.h"

#include "ops/metadata/kernel_answers.h"
#include "ops/metadata/meta_tensor.h"
#include "ops/op_table.h"
#include "tandem/error.h"
#include "unit/ops/eager_judge.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ops {
namespace {

const std::vector<MetaResult>& ask(MetadataPropagator& propagator, const std::string& name,
                                   Arguments args) {
  c10::OperatorHandle op = find_op(name);
  return propagator.propagate(op, with_defaults(op, std::move(args)), meta_of);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UnsupportedError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MetadataPropagator, RemembersACall) {
  MetadataPropagator propagator;
  at::Tensor x = at::rand({2, 3}), y = at::rand({2, 3});
  const auto& first = ask(propagator, "add.Tensor", {x, y});
  const auto& second = ask(propagator, "add.Tensor", {y, x});  // same metadata, other data
  EXPECT_EQ(&first, &second);
  EXPECT_EQ(propagator.counts().meta_kernels, 1);
  EXPECT_EQ(propagator.counts().memo, 1);
}

TEST(MetadataPropagator, DistinguishesEveryKindOfArgument) {
  MetadataPropagator propagator;
  at::Tensor x = at::rand({4, 4});
  auto fresh = [&](const std::string& name, Arguments args) {
    int64_t before = propagator.counts().memo;
    ask(propagator, name, std::move(args));
    return propagator.counts().memo == before;
  };
  EXPECT_TRUE(fresh("sum.dim_IntList", {x, std::vector<int64_t>{0}}));
  EXPECT_TRUE(fresh("sum.dim_IntList", {x, std::vector<int64_t>{1}}));
  EXPECT_TRUE(fresh("sum.dim_IntList", {x, std::vector<int64_t>{0, 1}}));
  EXPECT_TRUE(fresh("sum.dim_IntList", {x, std::vector<int64_t>{0}, true}));
  EXPECT_TRUE(fresh("sum.dim_IntList", {x, std::vector<int64_t>{0}, false, at::kDouble}));
  EXPECT_TRUE(fresh("sum.dim_IntList", {x.t(), std::vector<int64_t>{0}}));
  EXPECT_TRUE(fresh("sum.dim_IntList", {x.to(at::kDouble), std::vector<int64_t>{0}}));
  EXPECT_FALSE(fresh("sum.dim_IntList", {x, std::vector<int64_t>{0}}));
  EXPECT_TRUE(fresh("mul.Scalar", {x, 2.0}));
  EXPECT_TRUE(fresh("mul.Scalar", {x, 2}));
  EXPECT_TRUE(fresh("mul.Scalar", {x, true}));
  EXPECT_TRUE(fresh("mul.Scalar", {x, c10::complex<double>(2, 0)}));
  EXPECT_TRUE(fresh("div.Tensor_mode", {x, x, "floor"}));
  EXPECT_TRUE(fresh("div.Tensor_mode", {x, x, "trunc"}));
  EXPECT_TRUE(fresh("div.Tensor_mode", {x, x, c10::IValue()}));
  EXPECT_TRUE(fresh("slice.Tensor", {x, 0, 0, 2}));
  EXPECT_TRUE(fresh("slice.Tensor", {x.slice(0, 2), 0, 0, 2}));  // starts elsewhere in its storage
}

TEST(MetadataPropagator, FollowsTheDefaultDtype) {
  MetadataPropagator propagator;
  at::Tensor x = at::ones({2}, at::kLong);
  EXPECT_EQ(ask(propagator, "sqrt", {x})[0].tensors[0].type->dtype, at::kFloat);
  at::set_default_dtype(caffe2::TypeMeta::Make<double>());
  at::ScalarType dtype = ask(propagator, "sqrt", {x})[0].tensors[0].type->dtype;
  at::set_default_dtype(caffe2::TypeMeta::Make<float>());
  EXPECT_EQ(dtype, at::kDouble);
}

TEST(MetadataPropagator, InternsTypes) {
  MetadataPropagator propagator;
  ir::TypePtr a = propagator.intern(ir::TensorType::contiguous(at::kFloat, {2, 3}));
  EXPECT_EQ(a, propagator.intern(ir::TensorType::contiguous(at::kFloat, {2, 3})));
  EXPECT_NE(a, propagator.intern(ir::TensorType::contiguous(at::kFloat, {3, 2})));
  EXPECT_EQ(a, propagator.meta_of(at::rand({2, 3})).type);
  EXPECT_EQ(a, ask(propagator, "relu", {at::rand({2, 3})})[0].tensors[0].type);
}

TEST(MetadataPropagator, TellsWhereAViewStarts) {
  MetadataPropagator propagator;
  at::Tensor x = at::rand({4, 6}).slice(0, 1);
  const auto& results = ask(propagator, "slice.Tensor", {x, 1, 2, 6});
  at::Tensor view = x.slice(1, 2, 6);
  EXPECT_EQ(difference(results[0].tensors[0], view), "");
  EXPECT_EQ(results[0].tensors[0].offset, view.storage_offset());
}

// The metadata of a view does not tell how far its storage reaches.
TEST(MetadataPropagator, LetsAsStridedReachBeyondItsOperand) {
  MetadataPropagator propagator;
  at::Tensor x = at::rand({10}).slice(0, 5);
  std::vector<int64_t> sizes{10}, strides{1};
  EXPECT_EQ(ask(propagator, "as_strided", {x, sizes, strides, 0})[0].tensors[0].offset, 0);
}

TEST(MetadataPropagator, AnswersListsOfTensors) {
  MetadataPropagator propagator;
  at::Tensor x = at::rand({5, 2});
  const auto& results = ask(propagator, "split.Tensor", {x, 2, 0});
  std::vector<at::Tensor> pieces = x.split(2, 0);
  ASSERT_EQ(results.size(), 1u);
  ASSERT_EQ(results[0].tensors.size(), pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(difference(results[0].tensors[i], pieces[i]), "");
    EXPECT_EQ(results[0].tensors[i].offset, pieces[i].storage_offset());
  }
  c10::List<at::Tensor> list({x, x, x});
  EXPECT_EQ(difference(ask(propagator, "cat", {list, 1})[0].tensors[0], at::cat({x, x, x}, 1)), "");
}

TEST(MetadataPropagator, PutsFactoriesOnTheDeviceThatWasAskedFor) {
  MetadataPropagator propagator;
  std::vector<int64_t> sizes{2, 3};
  EXPECT_TRUE(ask(propagator, "full", {sizes, 1.0})[0].tensors[0].type->device.is_cpu());
  EXPECT_EQ(difference(ask(propagator, "arange", {5})[0].tensors[0], at::arange(5)), "");
  at::Device cuda(at::kCUDA, 0);
  const auto& results = ask(propagator, "zeros", {sizes, at::kFloat, c10::IValue(), cuda});
  EXPECT_EQ(results[0].tensors[0].type->device, cuda);
}

TEST(MetadataPropagator, PromotesWrappedNumbersAsNumbers) {
  MetadataPropagator propagator;
  at::Tensor x = at::rand({2}, at::kFloat), two = at::scalar_tensor(2.0, at::kDouble);
  EXPECT_EQ(ask(propagator, "mul.Tensor", {at::ones({2}, at::kInt), two})[0].tensors[0].type->dtype,
            at::kDouble);
  two.unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_EQ(ask(propagator, "mul.Tensor", {at::ones({2}, at::kInt), two})[0].tensors[0].type->dtype,
            at::kFloat);
}

TEST(MetadataPropagator, RunsAKernelOnZerosWhereNothingElseAnswers) {
  MetadataPropagator propagator;
  at::Tensor x = at::rand({4, 5}), y = at::rand({3, 5}), distance = at::cdist(x, y);
  Arguments args{distance, x, y, 2.0, distance};
  const auto& results = ask(propagator, "_cdist_backward", args);
  EXPECT_EQ(difference(results[0].tensors[0], at::_cdist_backward(distance, x, y, 2.0, distance)),
            "");
  EXPECT_EQ(propagator.counts().zeros, 1);
  ask(propagator, "_cdist_backward", args);
  EXPECT_EQ(propagator.counts().zeros, 1);
  EXPECT_EQ(propagator.counts().memo, 1);
}

// Only oneDNN knows how large the workspace of its recurrent layers is.
TEST(MetadataPropagator, LearnsTheWorkspaceOfARecurrentLayer) {
  MetadataPropagator propagator;
  c10::OperatorHandle op = find_op("mkldnn_rnn_layer");
  at::Tensor state = at::rand({3, 6});
  Arguments args{at::rand({7, 3, 5}),
                 at::rand({24, 5}),
                 at::rand({24, 6}),
                 at::rand({24}),
                 at::rand({24}),
                 state,
                 state,
                 false,
                 std::vector<int64_t>{},
                 2,
                 6,
                 1,
                 true,
                 false,
                 false,
                 true};
  torch::jit::Stack stack = args;
  {
    KernelsOnly no_autograd;
    op.callBoxed(stack);
  }
  const auto& results = propagator.propagate(op, args, meta_of);
  EXPECT_EQ(propagator.counts().rules, 1);
  EXPECT_EQ(propagator.counts().zeros, 0);
  ASSERT_EQ(results.size(), stack.size());
  for (size_t i = 0; i < stack.size(); ++i)
    EXPECT_EQ(difference(results[i].tensors[0], stack[i].toTensor()), "");
}

TEST(MetadataPropagator, PutsTheGeneratorBackAfterADrawOnZeros) {
  c10::OperatorHandle op = find_op("normal_functional");
  MetadataPropagator propagator;
  std::vector<MetaArg> args;
  for (const c10::IValue& value : with_defaults(op, {at::zeros({8})})) {
    args.push_back(
        to_meta_arg(value, op.schema().arguments()[args.size()].type(),
                    [&](const at::Tensor& tensor) { return propagator.meta_of(tensor); }));
  }
  at::manual_seed(7);
  at::Tensor before = at::globalContext().defaultGenerator(at::kCPU).get_state();
  std::vector<MetaResult> results = ask_kernel_on_zeros({op, args});
  EXPECT_TRUE(at::equal(before, at::globalContext().defaultGenerator(at::kCPU).get_state()));
  EXPECT_EQ(difference(results[0].tensors[0], at::zeros({8})), "");
}

TEST(MetadataPropagator, RaisesEagersOwnErrors) {
  MetadataPropagator propagator;
  EXPECT_THROW(ask(propagator, "mm", {at::rand({2, 3}), at::rand({2, 3})}), c10::Error);
  // Our rule does not apply, so the kernel is asked, and says what is wrong.
  try {
    ask(propagator, "native_layer_norm",
        {at::rand({2, 3}), std::vector<int64_t>{4}, c10::IValue(), c10::IValue(), 1e-5});
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("normalized_shape"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(ask(propagator, "convolution",
                   {at::rand({1, 3, 8, 8}), at::rand({4, 5, 3, 3}), c10::IValue(),
                    std::vector<int64_t>{1, 1}, std::vector<int64_t>{0, 0},
                    std::vector<int64_t>{1, 1}, false, std::vector<int64_t>{0, 0}, 1}),
               c10::Error);
}

TEST(MetadataPropagator, RefusesSizesThatDependOnData) {
  MetadataPropagator propagator;
  EXPECT_EQ(error_of([&] { ask(propagator, "nonzero", {at::zeros({4})}); }),
            "trace: aten.nonzero has a result whose size depends on data\n"
            "  operands: f32[4]\n"
            "  remedy:   use a form with a fixed size (torch::where, masked_fill, a mask that "
            "multiplies), or call it outside the compiled function");
  c10::List<std::optional<at::Tensor>> mask({at::ones({4}, at::kBool)});
  EXPECT_EQ(error_of([&] { ask(propagator, "index.Tensor", {at::zeros({4}), mask}); }),
            "trace: aten.index.Tensor with a mask has a result whose size depends on data\n"
            "  operands: f32[4], bool[4]\n"
            "  remedy:   keep the full size and use where or masked_fill");
  c10::List<std::optional<at::Tensor>> numbers({at::ones({3}, at::kLong)});
  EXPECT_EQ(difference(ask(propagator, "index.Tensor", {at::zeros({4}), numbers})[0].tensors[0],
                       at::zeros({3})),
            "");
  EXPECT_EQ(propagator.counts().zeros, 0);
}

TEST(MetadataPropagator, RefusesValuesThatDependOnData) {
  MetadataPropagator propagator;
  EXPECT_EQ(
      error_of([&] { ask(propagator, "equal", {at::zeros({4}), at::zeros({4})}); }),
      "trace: aten.equal reads the value of a tensor, which a trace does not have\n"
      "  operands: f32[4], f32[4]\n"
      "  remedy:   read it outside the compiled function and pass the number as an argument, or "
      "keep the computation on tensors (torch::where instead of if)");
}

TEST(MetadataPropagator, RefusesToRunLargeKernelsOnZeros) {
  MetadataPropagator propagator;
  std::vector<int64_t> sizes{int64_t{1} << 25, 1}, strides{1, 1};
  at::Tensor large(at::detail::empty_strided_cpu(sizes, strides, at::kFloat));
  EXPECT_EQ(error_of([&] {
              ask(propagator, "_cdist_backward", {large, large, at::zeros({1, 1}), 2.0, large});
            }),
            "trace: aten._cdist_backward has no metadata rule, and its operands are too large to "
            "run its kernel on zeros: 402653188 bytes, at most 268435456\n"
            "  operands: f32[33554432, 1], f32[33554432, 1], f32[1, 1], f32[33554432, 1]\n"
            "  remedy:   call it outside the compiled function");
}

// ---- libtorch's own functionalization needs Meta kernels that only Python brings ----

at::Tensor functionalized(const at::Tensor& tensor) {
  return at::functionalization::impl::to_functional_tensor(tensor);
}

class Functionalizing {
 public:
  Functionalizing() {
    c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Functionalize, true);
  }
  ~Functionalizing() {
    c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Functionalize, false);
  }
};

TEST(RegisteredMetaKernels, LetInplaceOpsFunctionalize) {
  register_missing_meta_kernels();
  register_missing_meta_kernels();  // the second time does nothing
  at::NoGradGuard no_grad;
  at::Tensor x = functionalized(at::rand({3})), flag = functionalized(at::ones({3}, at::kBool));
  Functionalizing on;
  EXPECT_NO_THROW(x.abs_());
  EXPECT_NO_THROW(x.nan_to_num_());
  EXPECT_NO_THROW(x.floor_divide_(2.0));
  EXPECT_NO_THROW(at::hardswish_(x));
  EXPECT_NO_THROW(at::hardtanh_(x));
  EXPECT_NO_THROW(x.relu_());
  EXPECT_NO_THROW(flag.logical_not_());
  EXPECT_NO_THROW(flag.logical_and_(flag));
  EXPECT_NO_THROW(flag.logical_or_(flag));
  EXPECT_NO_THROW(flag.logical_xor_(flag));
}

// The check that an in-place result keeps its size is why functionalization calls Meta kernels at
// all.
TEST(RegisteredMetaKernels, KeepTheSizeCheckOfInplaceOps) {
  register_missing_meta_kernels();
  at::NoGradGuard no_grad;
  at::Tensor narrow = functionalized(at::ones({3}, at::kBool)),
             wide = functionalized(at::ones({2, 3}, at::kBool));
  Functionalizing on;
  EXPECT_THROW(narrow.logical_and_(wide), c10::Error);
  EXPECT_EQ(narrow.dim(), 1);
}

TEST(RegisteredMetaKernels, MakeCompositesOfTheseLeavesExact) {
  register_missing_meta_kernels();
  at::TensorOptions meta = at::TensorOptions().device(at::kMeta);
  at::Tensor x = at::empty({2, 4, 3, 3}, meta).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(at::abs(x).strides(), x.strides());
  EXPECT_EQ(at::rot90(x, 1, {2, 3}).sizes(), x.sizes());
  EXPECT_EQ(at::logsumexp(x, {1}).sizes(), (std::vector<int64_t>{2, 3, 3}));
  EXPECT_EQ(at::embedding(at::empty({5, 2}, meta), at::empty({3}, meta.dtype(at::kLong))).sizes(),
            (std::vector<int64_t>{3, 2}));
  auto [values, indices] = at::cummax(x, 1);
  EXPECT_EQ(indices.scalar_type(), at::kLong);
  EXPECT_EQ(values.sizes(), x.sizes());
}

}  // namespace
}  // namespace tandem::ops
