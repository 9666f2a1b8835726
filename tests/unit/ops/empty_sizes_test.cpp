/// Sizes of zero, for every op: what eager computes, the propagator knows. libtorch's Meta kernels
/// are not what its other kernels are where there is nothing to look at.
#include "ops/metadata/meta_tensor.h"
#include "ops/op_table.h"
#include "unit/ops/eager_judge.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tandem::ops {
namespace {

constexpr int64_t kDim = 0;

/// Every tensor of the sizes, every index empty; nothing if an argument is of another kind.
std::optional<Arguments> arguments_of(const c10::FunctionSchema& schema,
                                      const std::vector<int64_t>& sizes) {
  Arguments args;
  for (const c10::Argument& argument : schema.arguments()) {
    const std::string& name = argument.name();
    const c10::TypePtr type = argument.real_type();
    if (type->kind() == c10::TypeKind::TensorType) {
      if (name == "index" || name == "indices") {
        args.emplace_back(at::empty({0}, at::kLong));
      } else if (name == "mask" || name == "condition") {
        args.emplace_back(at::zeros(sizes, at::kBool));
      } else {
        args.emplace_back(at::rand(sizes));
      }
    } else if (argument.default_value()) {
      args.push_back(*argument.default_value());
    } else if (*type == *c10::NumberType::get()) {
      args.emplace_back(2.0);
    } else if (*type == *c10::ListType::ofTensors()) {
      args.emplace_back(std::vector<at::Tensor>{at::rand(sizes), at::rand(sizes)});
    } else if (*type == *c10::ListType::ofInts()) {
      args.emplace_back(name == "size" || name == "shape" ? sizes : std::vector<int64_t>{kDim});
    } else if (type->kind() == c10::TypeKind::IntType ||
               type->kind() == c10::TypeKind::SymIntType) {
      args.emplace_back(name.find("dim") != std::string::npos ? kDim : int64_t{1});
    } else if (type->kind() == c10::TypeKind::FloatType) {
      args.emplace_back(0.5);
    } else if (type->kind() == c10::TypeKind::BoolType) {
      args.emplace_back(false);
    } else if (type->kind() == c10::TypeKind::OptionalType) {
      args.emplace_back();
    } else {
      return std::nullopt;
    }
  }
  return args;
}

/// Some kernels of libtorch end the process on sizes of zero. `cholesky` takes an empty vector,
/// which is no matrix: refused.
constexpr std::array<std::string_view, 7> kLeftOut = {"aten::_masked_softmax",
                                                      "aten::_masked_softmax_backward",
                                                      "aten::_pdist_backward",
                                                      "aten::_transform_bias_rescale_qkv",
                                                      "aten::_weight_norm_interface",
                                                      "aten::_weight_norm_interface_backward",
                                                      "aten::cholesky"};

bool is_asked_for(const c10::OperatorHandle& op) {
  const OpInfo& known = info(op);
  const std::string& name = op.operator_name().name;
  if (std::ranges::count(kLeftOut, name) > 0) return false;
  const bool dense = name.find("sparse") == std::string::npos &&
                     name.find("quantize") > name.size() && name.find("fbgemm") > name.size() &&
                     name.find("mkldnn") > name.size() && name.find("_to_copy") > name.size() &&
                     name.find("nested") > name.size();
  return name.starts_with("aten::") && dense && !op.schema().is_mutable() && !known.random &&
         !known.has_effect && !known.reads_data && !known.data_dependent_shape &&
         !known.hidden_writes && op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

TEST(EmptySizes, OfEveryOpAreThoseOfEager) {
  int compared = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !is_asked_for(*op)) continue;
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{0}, {0, 3}, {3, 0}, {0, 0}, {2, 0, 3}, {0, 3, 3}}) {
      const std::optional<Arguments> args = arguments_of(op->schema(), sizes);
      if (!args) break;
      torch::jit::Stack stack(*args);
      try {
        const KernelsOnly no_autograd;
        op->callBoxed(stack);
      } catch (const std::exception&) {
        continue;  // no such call
      }
      SCOPED_TRACE(c10::toString(name) + " of [" + c10::Join(", ", sizes) + "]");
      MetadataPropagator propagator;
      try {
        const std::vector<MetaResult>& results = propagator.propagate(*op, *args, meta_of);
        ASSERT_EQ(results.size(), stack.size());
        for (size_t i = 0; i < stack.size(); ++i) {
          if (stack[i].isTensor() && results[i].tensors.size() == 1)
            EXPECT_EQ(difference(results[i].tensors[0], stack[i].toTensor()), "");
        }
        ++compared;
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace tandem::ops
