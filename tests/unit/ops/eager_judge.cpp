#include "unit/ops/eager_judge.h"

#include "ops/metadata/meta_tensor.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ops {
namespace {

constexpr int kCallsPerCase = 200;

std::string text_of(const std::vector<int64_t>& numbers) {
  std::ostringstream out;
  out << "[" << c10::Join(", ", numbers) << "]";
  return out.str();
}

/// Bytes of every tensor argument, and what else a query could disturb.
struct Snapshot {
  std::vector<std::string> bytes;
  at::Tensor generator;
  int threads = at::get_num_threads();
  bool grad = at::GradMode::is_enabled();
  caffe2::TypeMeta dtype = at::get_default_dtype();
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();

  explicit Snapshot(const Arguments& args) {
    for (const c10::IValue& arg : args) {
      if (!arg.isTensor() || !arg.toTensor().defined()) continue;
      const at::Storage& storage = arg.toTensor().storage();
      bytes.emplace_back(static_cast<const char*>(storage.data()), storage.nbytes());
    }
    generator = at::globalContext().defaultGenerator(at::kCPU).get_state();
  }

  void expect_same(const Snapshot& other) const {
    EXPECT_EQ(bytes, other.bytes) << "an operand was written";
    EXPECT_TRUE(at::equal(generator, other.generator)) << "the generator moved";
    EXPECT_EQ(threads, other.threads);
    EXPECT_EQ(grad, other.grad);
    EXPECT_EQ(dtype, other.dtype);
    EXPECT_EQ(keys.included_, other.keys.included_);
    EXPECT_EQ(keys.excluded_, other.keys.excluded_);
  }
};

/// Deep copies: some ops write what their schema calls read-only.
Arguments copies_of(const Arguments& args) {
  Arguments copies;
  for (const c10::IValue& arg : args) {
    if (!arg.isTensor() || !arg.toTensor().defined()) {
      copies.push_back(arg);
      continue;
    }
    const at::Tensor& tensor = arg.toTensor();
    at::Tensor whole = at::empty({0}, tensor.options()).set_(tensor.storage()).clone();
    at::Tensor copy = whole.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    copies.emplace_back(copy);
  }
  return copies;
}

std::string describe(const Case& test_case, const Arguments& args) {
  std::ostringstream out;
  out << test_case.op << "(";
  for (const c10::IValue& arg : args) {
    if (arg.isTensor() && arg.toTensor().defined()) {
      const at::Tensor& tensor = arg.toTensor();
      out << tensor.scalar_type() << tensor.sizes() << "/" << tensor.strides() << ", ";
    } else if (arg.isTensor()) {
      out << "undefined, ";
    } else {
      out << arg << ", ";
    }
  }
  out << ")";
  return out.str();
}

void compare(const MetaResult& said, const c10::IValue& real) {
  if (real.isTensor()) {
    ASSERT_EQ(said.tensors.size(), 1u);
    EXPECT_EQ(difference(said.tensors[0], real.toTensor()), "");
  } else if (real.isTensorList()) {
    std::vector<at::Tensor> tensors = real.toTensorVector();
    ASSERT_EQ(said.tensors.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(difference(said.tensors[i], tensors[i]), "");
  } else {
    EXPECT_EQ(said.other, real);
  }
}

}  // namespace

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.op;
  std::replace(name.begin(), name.end(), '.', '_');
  return name + "_" + std::to_string(info.index);
}

std::ostream& operator<<(std::ostream& out, const Case& test_case) { return out << test_case.op; }

c10::OperatorHandle find_op(const std::string& name) {
  size_t dot = name.find('.', 1);
  std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + name.substr(0, dot)).c_str(),
                                                        overload.c_str());
}

Arguments with_defaults(const c10::OperatorHandle& op, Arguments args) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = args.size(); i < arguments.size(); ++i) {
    EXPECT_TRUE(arguments[i].default_value())
        << op.operator_name() << " needs " << arguments[i].name();
    args.push_back(arguments[i].default_value().value_or(c10::IValue()));
  }
  return args;
}

TensorMeta meta_of(MetadataPropagator& propagator, const at::Tensor& tensor) {
  return propagator.meta_of(tensor);
}

int64_t Random::integer(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(engine_);
}

std::vector<int64_t> Random::sizes(int64_t rank, int64_t low) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t kind = integer(0, 9);
    sizes.push_back(kind == 0 ? low : kind == 1 ? 1 : integer(2, 5));
  }
  return sizes;
}

at::ScalarType Random::floating() {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16};
  return kTypes[integer(0, 2)];
}

at::Tensor Random::relaid(const at::Tensor& tensor) {
  int64_t rank = tensor.dim();
  switch (integer(0, 5)) {
    case 0:
    case 1:
      return tensor;
    case 2: {  // permuted: a random order of memory
      std::vector<int64_t> order(static_cast<size_t>(rank)), back(static_cast<size_t>(rank));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), engine_);
      for (size_t i = 0; i < order.size(); ++i)
        back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
      return tensor.permute(order).contiguous().permute(back);
    }
    case 3:
      if (rank == 4) return tensor.contiguous(at::MemoryFormat::ChannelsLast);
      if (rank == 5) return tensor.contiguous(at::MemoryFormat::ChannelsLast3d);
      return tensor;
    case 4: {  // every second element of a larger tensor
      if (rank == 0) return tensor;
      int64_t dim = integer(0, rank - 1);
      return at::stack({tensor, tensor}, dim + 1)
          .flatten(dim, dim + 1)
          .slice(dim, 0, std::nullopt, 2);
    }
    default: {  // expanded
      if (rank == 0 || tensor.numel() == 0) return tensor;
      int64_t dim = integer(0, rank - 1);
      return tensor.narrow(dim, 0, 1).expand_as(tensor);
    }
  }
}

at::Tensor Random::tensor(std::vector<int64_t> sizes, at::ScalarType dtype) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(engine_());
  if (dtype == at::kBool)
    return relaid(at::randint(0, 2, sizes, generator, at::kLong).to(at::kBool));
  if (at::isIntegralType(dtype, false))
    return relaid(at::randint(1, 5, sizes, generator, at::kLong).to(dtype));
  return relaid(at::rand(sizes, generator, at::kDouble).to(dtype));
}

at::Tensor Random::indices(std::vector<int64_t> sizes, int64_t limit) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(engine_());
  return at::randint(0, std::max<int64_t>(limit, 1), sizes, generator, at::kLong);
}

std::string difference(const TensorMeta& meta, const at::Tensor& tensor) {
  if (!tensor.defined())
    return meta.type ? "expected undefined, got " + ir::to_string(*meta.type) : "";
  if (!meta.type) return "expected a tensor, got undefined";
  const ir::TensorType& type = *meta.type;
  std::ostringstream out;
  if (type.dtype != tensor.scalar_type())
    out << "dtype " << type.dtype << " for " << tensor.scalar_type() << "; ";
  if (type.device != tensor.device())
    out << "device " << type.device << " for " << tensor.device() << "; ";
  std::vector<int64_t> sizes = type.static_sizes(), strides = type.static_strides();
  if (!tensor.sizes().equals(sizes)) {
    out << "sizes " << text_of(sizes) << " for " << text_of(tensor.sizes().vec()) << "; ";
  } else if (tensor.numel() > 0) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] <= 1 || strides[i] == tensor.strides()[i]) continue;
      out << "strides " << text_of(strides) << " for " << text_of(tensor.strides().vec()) << " of "
          << text_of(sizes) << "; ";
      break;
    }
  }
  return out.str();
}

void expect_eager_metadata(const Case& test_case) {
  c10::OperatorHandle op = find_op(test_case.op);
  MetadataPropagator propagator;
  int compared = 0, offered = 0;
  for (int i = 0; i < kCallsPerCase && !::testing::Test::HasFailure(); ++i) {
    Random random(static_cast<uint64_t>(i) * 7919 + 1);
    Arguments args = test_case.arguments(random);
    if (args.empty()) continue;
    args = with_defaults(op, std::move(args));
    ++offered;
    SCOPED_TRACE(describe(test_case, args));

    torch::jit::Stack stack = copies_of(args);
    try {
      KernelsOnly no_autograd;
      op.callBoxed(stack);
    } catch (const c10::Error&) {
      continue;  // not a legal call: nothing to be equal to
    }
    Snapshot before(args);
    MetadataCounts counts = propagator.counts();
    const std::vector<MetaResult>& results = propagator.propagate(op, args, meta_of);
    before.expect_same(Snapshot(args));
    bool fresh = propagator.counts().memo == counts.memo;
    EXPECT_EQ(propagator.counts().rules - counts.rules, fresh ? 1 : 0)
        << "not answered by our rule";
    ASSERT_EQ(results.size(), stack.size());
    for (size_t r = 0; r < stack.size(); ++r) {
      SCOPED_TRACE("result " + std::to_string(r));
      compare(results[r], stack[r]);
    }

    counts = propagator.counts();
    EXPECT_EQ(&propagator.propagate(op, args, meta_of), &results);
    EXPECT_EQ(propagator.counts().memo, counts.memo + 1);
    ++compared;
  }
  EXPECT_GE(compared, offered / 3) << test_case.op << ": too many calls were not legal";
  EXPECT_GE(compared, 1);
}

}  // namespace tandem::ops
