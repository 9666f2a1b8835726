#include "support/effect_ops.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <mutex>
#include <utility>

namespace tandem::test {
namespace {

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
};
Log& the_log() {
  static Log log;
  return log;
}
void write_line(std::string line) {
  const std::lock_guard lock(the_log().mutex);
  the_log().lines.push_back(std::move(line));
}

template <class Signature>
auto find(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("logging::") + name).c_str(), "")
      .typed<Signature>();
}

at::Tensor tap_kernel(const at::Tensor& x) {
  write_line("tap");
  return x.clone();
}
at::Tensor like(const at::Tensor& x) { return at::empty_like(x); }

struct TapGrad : torch::autograd::Function<TapGrad> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return tap_grad(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {tap(grads[0]) * 3};
  }
};
at::Tensor tap_with_gradient(const at::Tensor& x) { return TapGrad::apply(x); }

std::vector<at::Tensor> tap_two_kernel(const at::Tensor& x) {
  write_line("tap_two");
  return {x + 1, x * 2};
}
std::vector<at::Tensor> two_like(const at::Tensor& x) {
  return {at::empty_like(x), at::empty_like(x)};
}
void note_sum_kernel(const at::Tensor& x) {
  write_line("sum " + std::to_string(x.sum().item<double>()));
}
void require_positive_kernel(const at::Tensor& x) {
  TORCH_CHECK((x > 0).all().item<bool>(), "a number is not positive");
}
at::Tensor twice_body(const at::Tensor& x) {
  say("inside");
  return x * 2;
}
void fill_kernel(at::Tensor x, double value) { x.fill_(value); }
at::Tensor bump_kernel(at::Tensor x) { return x.add_(1); }
at::Tensor add_into_kernel(const at::Tensor& x, at::Tensor sum) {
  sum.add_(x);
  return x.neg();
}
void fill_list_kernel(at::TensorList list) {
  for (size_t i = 0; i < list.size(); ++i) at::Tensor(list[i]).fill_(static_cast<double>(i));
}
void grow_kernel(at::Tensor x) { x.resize_({x.numel() + 1}).zero_(); }

}  // namespace

std::vector<std::string> taken_lines() {
  const std::lock_guard lock(the_log().mutex);
  return std::exchange(the_log().lines, {});
}

void register_effect_ops() {
  static const auto* const library = [] {
    auto* made =
        new torch::Library(torch::Library::DEF, "logging", std::nullopt, __FILE__, __LINE__);
    made->def("say(str text) -> ()", [](c10::string_view text) { write_line(std::string(text)); });
    for (const char* name : {"tap", "tap_grad"}) {
      made->def((std::string(name) + "(Tensor x) -> Tensor").c_str());
      made->impl(name, c10::DispatchKey::CPU, tap_kernel);
      made->impl(name, c10::DispatchKey::Meta, like);
    }
    made->impl("tap_grad", c10::DispatchKey::Autograd, tap_with_gradient);
    made->def("tap_two(Tensor x) -> Tensor[]");
    made->impl("tap_two", c10::DispatchKey::CPU, tap_two_kernel);
    made->impl("tap_two", c10::DispatchKey::Meta, two_like);
    made->def("note_sum(Tensor x) -> ()");
    made->impl("note_sum", c10::DispatchKey::CPU, note_sum_kernel);
    made->def("require_positive(Tensor x) -> ()");
    made->impl("require_positive", c10::DispatchKey::CPU, require_positive_kernel);
    made->def("twice(Tensor x) -> Tensor", twice_body);
    made->def("unmeasured(Tensor x) -> Tensor");
    made->impl("unmeasured", c10::DispatchKey::CPU, tap_kernel);
    made->def("whole(Tensor x) -> Tensor", [](const at::Tensor& x) { return x * 2; });
    made->def("fill(Tensor(a!) x, float value) -> ()");
    made->impl("fill", c10::DispatchKey::CPU, fill_kernel);
    made->def("bump(Tensor(a!) x) -> Tensor(a!)");
    made->impl("bump", c10::DispatchKey::CPU, bump_kernel);
    made->def("add_into(Tensor x, Tensor(a!) sum) -> Tensor");
    made->impl("add_into", c10::DispatchKey::CPU, add_into_kernel);
    made->def("fill_list(Tensor(a!)[] list) -> ()");
    made->impl("fill_list", c10::DispatchKey::CPU, fill_list_kernel);
    made->def("grow(Tensor(a!) x) -> ()");
    made->impl("grow", c10::DispatchKey::CPU, grow_kernel);
    made->def("half(Tensor(a) x) -> Tensor(a)");
    made->impl("half", c10::DispatchKey::CPU,
               [](const at::Tensor& x) { return x.narrow(0, 0, 1); });
    return made;
  }();
  TORCH_CHECK(library != nullptr);
}

void say(const std::string& text) { find<void(c10::string_view)>("say").call(text); }
at::Tensor tap(const at::Tensor& x) { return find<at::Tensor(const at::Tensor&)>("tap").call(x); }
at::Tensor tap_grad(const at::Tensor& x) {
  return find<at::Tensor(const at::Tensor&)>("tap_grad").call(x);
}
std::vector<at::Tensor> tap_two(const at::Tensor& x) {
  return find<std::vector<at::Tensor>(const at::Tensor&)>("tap_two").call(x);
}
void note_sum(const at::Tensor& x) { find<void(const at::Tensor&)>("note_sum").call(x); }
void require_positive(const at::Tensor& x) {
  find<void(const at::Tensor&)>("require_positive").call(x);
}
at::Tensor twice(const at::Tensor& x) {
  return find<at::Tensor(const at::Tensor&)>("twice").call(x);
}
void fill(const at::Tensor& x, double value) {
  find<void(at::Tensor, double)>("fill").call(x, value);
}
at::Tensor bump(const at::Tensor& x) { return find<at::Tensor(at::Tensor)>("bump").call(x); }
at::Tensor add_into(const at::Tensor& x, const at::Tensor& sum) {
  return find<at::Tensor(const at::Tensor&, at::Tensor)>("add_into").call(x, sum);
}
void fill_list(const std::vector<at::Tensor>& list) {
  find<void(at::TensorList)>("fill_list").call(list);
}
void grow(const at::Tensor& x) { find<void(at::Tensor)>("grow").call(x); }

}  // namespace tandem::test
