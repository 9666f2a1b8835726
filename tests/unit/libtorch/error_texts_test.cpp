// libtorch's own code raises every text that Tandem matches, in the version that this was built
// for. Nothing of Tandem's hooks is on.
#include "libtorch/error_texts.h"

#include "libtorch/version.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <string_view>

namespace tandem::libtorch {
namespace {

namespace functionalization = at::functionalization::impl;
using T = at::Tensor;

T functional(const T& tensor) { return functionalization::to_functional_tensor(tensor); }

/// An op that writes its argument and that functionalization has never heard of.
void write_unfollowed() {
  static auto* const library = [] {
    auto* made = new torch::Library(torch::Library::DEF, "errortexts", std::nullopt, __FILE__, 1);
    made->def("fill(Tensor(a!) x) -> ()");
    made->impl("fill", torch::dispatch(c10::DispatchKey::CPU, [](const T& x) { x.fill_(1); }));
    return made;
  }();
  ASSERT_NE(library, nullptr);
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("errortexts::fill", "")
      .typed<void(const T&)>()
      .call(functional(torch::zeros({2})));
}

/// Per text of the table: what makes libtorch raise it.
const std::map<std::string_view, void (*)()>& provocations() {
  static const std::map<std::string_view, void (*)()> all{
      {"data is not allocated yet", [] { torch::empty({2}, at::kMeta).data_ptr<float>(); }},
      {"Cannot access data pointer",
       [] {
         at::sparse_coo_tensor(torch::zeros({1, 1}, at::kLong), torch::ones({1}), {3}).data_ptr();
       }},
      {"only support functionalizing operators", write_unfollowed},
      {"as_strided() is non-compositional",
       [] {
         const T x = functional(torch::zeros({4}));
         x.view({2, 2}).as_strided({2}, {1}, 0).add_(1);
         functionalization::sync(x);
       }},
      {"as_strided_scatter is currently only supported for contiguous",
       [] {
         const T x = torch::zeros({2, 3}).t().requires_grad_();
         at::as_strided_scatter(x, torch::ones({2}), {2}, {1}, 0);
       }},
      {"cannot mutate tensors with frozen storage",
       [] {
         const T x = functional(torch::zeros({4})), alias = x.view({2, 2});
         x.set_(functional(torch::ones({4})));
         alias.add_(1);
       }},
      {"Attempted to resize a view tensor to a larger size",
       [] {
         const T x = functional(torch::zeros({4})), alias = x.view({2, 2});
         x.resize_({10});
       }},
      {"\" not implemented for '", [] { at::threshold(torch::ones({2}, at::kBool), 0.5, 1); }},
      {"value cannot be converted to type",
       [] { torch::ones({2}, at::kLong).masked_fill_(torch::ones({2}, at::kBool), 1e39); }},
      {"are out of bounds for storage of size", [] { torch::ones({2}).as_strided({2}, {1}, 1); }},
      {"version_counter for inference tensor",
       [] {
         const c10::InferenceMode mode;
         torch::zeros({2}).unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));
       }},
  };
  return all;
}

TEST(ErrorTexts, LibtorchRaisesEachOfThem) {
  for (const ErrorText& text : error_texts()) {
    const auto provocation = provocations().find(text.words);
    ASSERT_NE(provocation, provocations().end()) << text.words;
    std::string raised;
    try {
      provocation->second();
    } catch (const c10::Error& error) {
      raised = error.what_without_backtrace();
    } catch (const std::runtime_error& error) {
      raised = error.what();
    }
    EXPECT_NE(raised.find(text.words), std::string::npos)
        << "libtorch " << running_version() << " does not say \"" << text.words << "\" but: \""
        << raised << "\"";
    EXPECT_EQ(meaning_of(raised), text.meaning) << raised;
  }
  EXPECT_EQ(provocations().size(), error_texts().size());
}

TEST(ErrorTexts, AnyOtherErrorMeansNothing) {
  EXPECT_EQ(meaning_of("mat1 and mat2 shapes cannot be multiplied"), std::nullopt);
  EXPECT_EQ(meaning_of(""), std::nullopt);
}

TEST(ErrorTexts, TheProcessRunsWhatThisWasBuiltFor) {
  EXPECT_EQ(running_version().rfind(built_version(), 0), 0u) << running_version();
}

}  // namespace
}  // namespace tandem::libtorch
