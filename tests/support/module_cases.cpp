#include "support/module_cases.h"

#include "support/one_thread.h"
#include "support/same_bits.h"
#include "support/wide_run.h"

#include <ATen/autocast_mode.h>

namespace tandem::test {
namespace {

struct Variant {
  at::ScalarType dtype = at::kFloat;
  bool training = true;
  bool channels_last = false;
  bool autocast = false;
};

std::string text_of(const Variant& variant) {
  return std::string(c10::toString(variant.dtype)) + (variant.training ? " train" : " eval") +
         (variant.channels_last ? " channels_last" : "") + (variant.autocast ? " autocast" : "");
}

class AutocastRegion {
 public:
  explicit AutocastRegion(bool on) : on_(on) {
    if (!on_) return;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~AutocastRegion() {
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }

 private:
  bool on_;
};

at::Tensor in_channels_last(const at::Tensor& tensor) {
  if (tensor.dim() == 4) return tensor.contiguous(at::MemoryFormat::ChannelsLast);
  if (tensor.dim() == 5) return tensor.contiguous(at::MemoryFormat::ChannelsLast3d);
  return tensor;
}

ModuleRun prepare(const ModuleCase& test_case, const Variant& variant) {
  torch::manual_seed(1);
  ModuleRun run = test_case.make();
  if (run.module) {
    run.module->to(variant.dtype);
    run.module->train(variant.training);
    if (variant.channels_last) {
      for (at::Tensor& parameter : run.module->parameters()) {
        parameter.set_data(in_channels_last(parameter.data()));
      }
    }
  }
  for (Tensors* list : {&run.inputs, &run.targets}) {
    for (at::Tensor& tensor : *list) {
      if (tensor.is_floating_point()) tensor = tensor.to(variant.dtype);
      if (variant.channels_last) tensor = in_channels_last(tensor);
    }
  }
  return run;
}

/// What one call shows.
struct Outcome {
  std::string error;
  Tensors arguments, results, gradients;
  at::Tensor random;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Outcome call(const ModuleRun& run, const std::function<Tensors(Tensors)>& forward,
             const Variant& variant) {
  Outcome outcome;
  for (const at::Tensor& input : run.inputs) {
    outcome.arguments.push_back(
        input.detach().clone().set_requires_grad(input.is_floating_point() || input.is_complex()));
  }
  for (const at::Tensor& target : run.targets) outcome.arguments.push_back(target.clone());
  Tensors wanted;
  for (const at::Tensor& argument : outcome.arguments) {
    if (argument.requires_grad()) wanted.push_back(argument);
  }
  if (run.module) {
    for (const at::Tensor& parameter : run.module->parameters()) {
      if (parameter.requires_grad()) wanted.push_back(parameter);
    }
  }
  try {
    {
      AutocastRegion region(variant.autocast);
      outcome.results = forward(outcome.arguments);
    }
    outcome.random = at::detail::getDefaultCPUGenerator().get_state();
    Tensors roots, tangents;
    for (const at::Tensor& result : outcome.results) {
      if (!result.defined() || !result.requires_grad() || result.is_leaf()) continue;
      roots.push_back(result);
      // In the layout of the result, where eager's kernels and ours see the same strides.
      tangents.push_back(torch::randn_like(result.detach()));
    }
    if (!roots.empty() && !wanted.empty()) {
      outcome.gradients = torch::autograd::grad(roots, wanted, tangents, false, false, true);
    }
  } catch (const c10::Error& error) {
    outcome.error = first_line(error.what_without_backtrace());
  } catch (const std::exception& error) {
    outcome.error = first_line(error.what());
  }
  return outcome;
}

/// Within a few units of the last place.
bool close(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (!a.is_floating_point()) return at::equal(a, b);
  const double eps = a.scalar_type() == at::kDouble  ? 0x1p-52
                     : a.scalar_type() == at::kFloat ? 0x1p-23
                                                     : 0x1p-7;
  return a.scalar_type() == b.scalar_type() && at::allclose(a, b, 16 * eps, 16 * eps);
}

void expect_same(const Tensors& eager, const Tensors& compiled, const char* what, bool strides,
                 bool exact = true) {
  ASSERT_EQ(eager.size(), compiled.size()) << what;
  for (size_t i = 0; i < eager.size(); ++i) {
    if (exact || backend_rounds()) {  // the run in float64 knows what is close
      EXPECT_TRUE(same_bits(eager[i], compiled[i])) << what << " " << i;
    } else {
      EXPECT_TRUE(close(eager[i], compiled[i])) << what << " " << i;
    }
    if (strides && eager[i].defined() && compiled[i].defined()) {
      EXPECT_EQ(eager[i].strides(), compiled[i].strides()) << what << " " << i;
    }
  }
}

/// Which results share memory with which arguments.
std::vector<bool> sharing(const Outcome& outcome) {
  std::vector<bool> shares;
  for (const at::Tensor& result : outcome.results) {
    for (const at::Tensor& argument : outcome.arguments) {
      shares.push_back(result.defined() && result.is_alias_of(argument));
    }
  }
  return shares;
}

Options options_for(const ModuleRun& run) {
  Options options;
  if (run.module) options.modules = {run.module};
  return options;
}

void expect_variant_like_eager(const ModuleCase& test_case, const Variant& variant) {
  SCOPED_TRACE(text_of(variant));
  const ModuleRun eager = prepare(test_case, variant), twin = prepare(test_case, variant);
  WideRun wide_run;
  auto compiled = tandem::compile<Tensors(Tensors)>(twin.forward, options_for(twin));
  for (uint64_t round = 0; round < 2; ++round) {
    SCOPED_TRACE("call " + std::to_string(round));
    torch::manual_seed(round + 5);
    const Outcome expected = [&] {
      const WideRun::Scope scope(wide_run);
      return call(eager, eager.forward, variant);
    }();
    torch::manual_seed(round + 5);
    const Outcome outcome = call(twin, compiled, variant);
    // A limit of libtorch's kernel, which a backend that decomposes the op does not call.
    if (backend_rounds() && expected.error == "grad_input must be contiguous") return;
    ASSERT_EQ(expected.error, outcome.error);
    if (!expected.error.empty()) return;  // how far each got before the error is not compared
    EXPECT_TRUE(same_bits(expected.random, outcome.random)) << "random stream";
    expect_same(expected.results, outcome.results, "result", true, test_case.exact);
    EXPECT_EQ(sharing(expected), sharing(outcome));
    expect_same(expected.arguments, outcome.arguments, "argument", true);
    expect_same(expected.gradients, outcome.gradients, "gradient", false, test_case.exact);
    if (!eager.module) continue;
    expect_same(eager.module->parameters(), twin.module->parameters(), "parameter", true);
    expect_same(eager.module->buffers(), twin.module->buffers(), "buffer", true);
  }
  const Stats stats = compiled.stats();
  EXPECT_EQ(stats.traces, 1);
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.eager_calls, 0);
  EXPECT_EQ(stats.zero_fallbacks, 0) << ir::print(compiled.entries()[0].forward());
}

}  // namespace

void expect_module_like_eager(const ModuleCase& test_case) {
  OneThread one_thread;
  bool images = false;
  for (const at::Tensor& input : test_case.make().inputs) images |= input.dim() >= 4;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const bool training : {true, false}) {
      expect_variant_like_eager(test_case, {.dtype = dtype, .training = training});
    }
    if (images) expect_variant_like_eager(test_case, {.dtype = dtype, .channels_last = true});
  }
  if (test_case.autocast) expect_variant_like_eager(test_case, {.autocast = true});
}

void expect_module_refused(const ModuleCase& test_case, const std::string& words) {
  OneThread one_thread;
  const Variant variant;
  const ModuleRun run = prepare(test_case, variant), untouched = prepare(test_case, variant);
  auto compiled = tandem::compile<Tensors(Tensors)>(run.forward, options_for(run));
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  Tensors arguments = run.inputs;
  arguments.insert(arguments.end(), run.targets.begin(), run.targets.end());
  std::string text = "no error";
  try {
    compiled(arguments);
  } catch (const UnsupportedError& error) {
    text = error.what();
  }
  EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_NE(text.find("remedy"), std::string::npos) << text;
  EXPECT_TRUE(same_bits(before, at::detail::getDefaultCPUGenerator().get_state()));
  expect_same(untouched.inputs, run.inputs, "input", true);
  expect_same(untouched.targets, run.targets, "target", true);
  if (!run.module) return;
  expect_same(untouched.module->parameters(), run.module->parameters(), "parameter", true);
  expect_same(untouched.module->buffers(), run.module->buffers(), "buffer", true);
}

}  // namespace tandem::test
