#pragma once

#include "tandem/compiled.h"
#include "tandem/export.h"
#include "tandem/exported.h"
#include "tandem/flatten.h"
#include "tandem/function.h"
#include "tandem/options.h"
#include "tandem/stages.h"

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class SequentialImpl;
}
namespace torch::optim {
class Optimizer;
}

namespace tandem {

namespace detail {

// --- signatures: what a callable or a module's forward takes and gives
// ------------------------------------

template <class Member>
struct MemberSignature {};
#define TANDEM_DETAIL_MEMBER(qualifiers)              \
  template <class C, class R, class... P>             \
  struct MemberSignature<R (C::*)(P...) qualifiers> { \
    using type = R(P...);                             \
  };
TANDEM_DETAIL_MEMBER()
TANDEM_DETAIL_MEMBER(const)
TANDEM_DETAIL_MEMBER(&)
TANDEM_DETAIL_MEMBER(const&)
TANDEM_DETAIL_MEMBER(noexcept)
TANDEM_DETAIL_MEMBER(const noexcept)
TANDEM_DETAIL_MEMBER(& noexcept)
TANDEM_DETAIL_MEMBER(const& noexcept)
#undef TANDEM_DETAIL_MEMBER

template <class F>
struct CallableSignature {};
template <class F>
  requires requires { &F::operator(); }
struct CallableSignature<F> : MemberSignature<decltype(&F::operator())> {};
template <class R, class... P>
struct CallableSignature<R (*)(P...)> {
  using type = R(P...);
};
template <class R, class... P>
struct CallableSignature<R (*)(P...) noexcept> {
  using type = R(P...);
};
template <class F>
using signature_of = typename CallableSignature<std::decay_t<F>>::type;

template <class S>
concept FunctionType = std::is_function_v<S>;

// --- modules
// ------------------------------------------------------------------------------------------------

template <class T>
inline constexpr bool kIsModule = std::is_base_of_v<torch::nn::Module, T>;

template <class T>
struct ImplOf {
  using type = void;
};
template <class T>
  requires kIsModule<T>
struct ImplOf<T> {
  using type = T;
};
template <class T>
  requires kIsModule<T>
struct ImplOf<T*> {
  using type = std::remove_const_t<T>;
};
template <class T>
  requires(kIsModule<T> && !std::is_const_v<T>)
struct ImplOf<std::shared_ptr<T>> {
  using type = T;
};
template <class T>
  requires std::is_base_of_v<torch::detail::ModuleHolderIndicator, T>
struct ImplOf<T> {
  using type = typename T::ContainedType;
};
template <class T>
using impl_of = typename ImplOf<std::remove_cvref_t<T>>::type;

/// Whether T names an optimizer: itself, or a pointer to it.
template <class T>
inline constexpr bool kIsOptimizer =
    std::is_class_v<T> && std::is_base_of_v<torch::optim::Optimizer, T>;
template <class T>
inline constexpr bool kIsOptimizer<T*> = kIsOptimizer<std::remove_const_t<T>>;
template <class T>
inline constexpr bool kIsOptimizer<std::shared_ptr<T>> = kIsOptimizer<T>;
template <class T>
inline constexpr bool kIsOptimizer<std::unique_ptr<T>> = kIsOptimizer<T>;

template <class T>
struct IsModules : std::bool_constant<!std::is_void_v<impl_of<T>>> {};
template <class... T>
struct IsModules<std::tuple<T...>>
    : std::bool_constant<((!std::is_void_v<impl_of<T>> || kIsOptimizer<std::remove_cvref_t<T>>) &&
                          ...)> {};

/// A module: a holder, a shared_ptr, a pointer, or the module itself, which then outlives the
/// handle.
template <class T>
concept ModulePointer = !std::is_void_v<impl_of<T>>;
/// One, or a tuple of several; optimizers may be among them.
template <class T>
concept Modules = IsModules<std::remove_cvref_t<T>>::value;
/// Whatever else `compile` may be given as its function.
template <class F>
concept Callable =
    !FunctionType<F> && !Modules<F> && !std::same_as<std::remove_cvref_t<F>, Options>;

template <class Impl>
concept HasPlainForward = requires { typename MemberSignature<decltype(&Impl::forward)>::type; };
/// `forward` of a Sequential is a template; a subclass may have a plain one.
template <class Impl>
concept ForwardsLikeSequential =
    std::derived_from<Impl, torch::nn::SequentialImpl> && !HasPlainForward<Impl>;

template <class Impl>
struct ForwardSignature {};
template <HasPlainForward Impl>
struct ForwardSignature<Impl> : MemberSignature<decltype(&Impl::forward)> {};
template <ForwardsLikeSequential Impl>
struct ForwardSignature<Impl> {
  using type = at::Tensor(at::Tensor);
};
template <ModulePointer M>
using forward_signature = typename ForwardSignature<impl_of<M>>::type;

/// Where the program calls `compile`: the compiler fills it in.
struct CallSite {
  const char* file = __builtin_FILE();
  unsigned line = __builtin_LINE();
};
/// Options::name, if it is empty, becomes the class of the modules, or `file:line` of the call.
TANDEM_API Options with_name(Options options, CallSite site);

/// A UserError if a module is missing; `index` counts them.
TANDEM_API void require_module(const torch::nn::Module* module, size_t index, size_t count);
/// A UserError: a null function pointer, an empty std::function or an empty Compiled.
[[noreturn]] TANDEM_API void throw_empty_function(const char* kind);

/// What the handle only refers to. `T` as its owner passed it: a reference, or a value that dies.
template <class T>
constexpr bool lives_on() {
  using Plain = std::remove_cvref_t<T>;
  static_assert(!kIsModule<Plain> || std::is_lvalue_reference_v<T>,
                "tandem: a module that is named by reference must outlive the compiled function, "
                "and this one is a temporary or a copy. Remedy: give it a name (in a tuple: "
                "std::tie), or name its holder or shared_ptr, which the handle keeps");
  return true;
}

template <ModulePointer M>
std::shared_ptr<impl_of<M>> module_pointer(const M& module, size_t index = 0, size_t count = 1) {
  using Impl = impl_of<M>;
  std::shared_ptr<Impl> pointer;
  if constexpr (std::is_base_of_v<torch::detail::ModuleHolderIndicator, M>) {
    if (!module.is_empty())
      pointer = module.ptr();  // ptr() of an empty holder throws torch's own error
  } else if constexpr (kIsModule<M>) {
    pointer = {std::shared_ptr<void>(), const_cast<Impl*>(&module)};  // owns nothing
  } else if constexpr (std::is_pointer_v<M>) {
    pointer = {std::shared_ptr<void>(), const_cast<Impl*>(module)};
  } else {
    pointer = module;
  }
  require_module(pointer.get(), index, count);
  return pointer;
}

template <class T>
torch::optim::Optimizer* optimizer_pointer(const T& optimizer) {
  if constexpr (std::is_base_of_v<torch::optim::Optimizer, T>) {
    return const_cast<T*>(&optimizer);
  } else {
    return const_cast<std::remove_const_t<std::remove_reference_t<decltype(*optimizer)>>*>(
        &*optimizer);
  }
}

/// Puts the modules and optimizers of the call before those that the options name.
template <class M>
Options with_modules(M&& modules, Options options) {
  std::vector<std::shared_ptr<torch::nn::Module>> all;
  std::vector<torch::optim::Optimizer*> optimizers;
  const auto add = [&]<class T>(const T& one, size_t index, size_t count) {
    if constexpr (ModulePointer<T>) {
      all.push_back(module_pointer(one, index, count));
    } else {
      optimizers.push_back(optimizer_pointer(one));
    }
  };
  if constexpr (ModulePointer<M>) {
    static_assert(lives_on<M>());
    add(modules, 0, 1);
  } else {
    [&]<class... T>(const std::tuple<T...>& several) {
      static_assert((lives_on<T>() && ...));
      std::apply(
          [&](const auto&... one) {
            [[maybe_unused]] size_t index = 0;
            (add(one, index++, sizeof...(one)), ...);
          },
          several);
    }(modules);
  }
  all.insert(all.end(), options.modules.begin(), options.modules.end());
  options.modules = std::move(all);
  optimizers.insert(optimizers.end(), options.optimizers.begin(), options.optimizers.end());
  options.optimizers = std::move(optimizers);
  return options;
}

// --- from a function on C++ types to one on flat values
// -----------------------------------------------------

template <class F>
void require_function([[maybe_unused]] const F& fn) {
  if constexpr (std::is_pointer_v<F>) {
    if (fn == nullptr) throw_empty_function("a null function pointer");
  }
}
template <class S>
void require_function(const std::function<S>& fn) {
  if (!fn) throw_empty_function("an empty std::function");
}
template <class S>
void require_function(const Compiled<S>& fn) {
  if (!fn) throw_empty_function("an empty Compiled handle");
}

template <class P>
inline constexpr bool kWritableReference =
    std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>;

/// The types of one compiled function: `P` as its author wrote the parameters.
template <class S>
struct Typed;
template <class R, class... P>
struct Typed<R(P...) noexcept> : Typed<R(P...)> {};
template <class R, class... P>
struct Typed<R(P...)> {
  static_assert(
      !(kWritableReference<P> || ...),
      "tandem: a compiled function cannot have a parameter of type at::Tensor& (or another "
      "non-const "
      "reference): an assignment to it would rebind the caller's variable, which a compiled call "
      "neither sees nor repeats. Remedy: take const at::Tensor& or at::Tensor, on which in-place "
      "ops "
      "still reach the caller's tensor, and return what you would assign");
  using Result = std::remove_cvref_t<R>;
  using Handle = Compiled<Result(std::decay_t<P>...)>;

  /// Calls `fn` on values read from a flat list, each passed on as the parameter that it was
  /// declared as.
  template <class F>
  static Flat call(F& fn, const Flat& arguments) {
    Reader reader(arguments);
    std::tuple<std::decay_t<P>...> args{Structure<std::decay_t<P>>::read(reader)...};
    reader.finish();
    auto invoke = [&fn](std::decay_t<P>&... arg) -> decltype(auto) {
      return std::invoke(fn, static_cast<P&&>(arg)...);
    };
    if constexpr (std::is_void_v<Result>) {
      std::apply(invoke, args);
      return Flat{};
    } else {
      static_assert(
          !Structure<Result>::kArgumentOnly,
          "tandem: at::TensorList, other views and at::Generator can be arguments, not results. "
          "Remedy: return std::vector<at::Tensor>");
      const Result& result = std::apply(invoke, args);
      return detail::flatten(result);  // qualified: at::flatten is one, too
    }
  }

  /// Copies of the flat function share `fn`: it may be move-only, and what a mutable lambda counts
  /// is counted once.
  template <class F>
  static FlatFunction flat_function(F&& fn) {
    require_function(fn);
    auto shared = std::make_shared<std::decay_t<F>>(std::forward<F>(fn));
    return FlatFunction([shared](const Flat& arguments) { return call(*shared, arguments); },
                        &tensor_paths<std::decay_t<P>...>);
  }

  template <class F>
  static Handle compile(F&& fn, Options options, CallSite site) {
    return Handle(CompiledFunction::create(flat_function(std::forward<F>(fn)),
                                           with_name(std::move(options), site)));
  }
};
template <class S>
using compiled_of = typename Typed<S>::Handle;

/// `impl->forward`, as a callable that owns the module.
template <class R, class Impl>
auto forward_of(std::shared_ptr<Impl> impl) {
  return [impl = std::move(impl)]<class... Args>(Args&&... args) -> decltype(auto) {
    if constexpr (ForwardsLikeSequential<Impl> && !std::is_void_v<R>) {
      return impl->template forward<R>(std::forward<Args>(args)...);
    } else {
      return impl->forward(std::forward<Args>(args)...);
    }
  };
}

template <class S, class M>
compiled_of<S> compile_module(M&& net, Options options, CallSite site) {
  return Typed<S>::compile(forward_of<typename Typed<S>::Result>(module_pointer(net)),
                           with_modules(std::forward<M>(net), std::move(options)), site);
}

}  // namespace detail

// --- compile
// ------------------------------------------------------------------------------------------------

/// Compiles any callable whose parameter types are known: a lambda, a function, a std::function, a
/// Compiled. Nothing runs until the first call. Tensors that it closes over are found; modules are
/// better named.
template <detail::Callable F>
auto compile(F&& fn, Options options = {}, detail::CallSite site = {})
    -> detail::compiled_of<detail::signature_of<F>> {
  return detail::Typed<detail::signature_of<F>>::compile(std::forward<F>(fn), std::move(options),
                                                         site);
}

/// Compiles `net->forward`. Of a holder or a shared_ptr the handle owns the module; a module on the
/// stack or behind a pointer must outlive it.
template <detail::ModulePointer M>
auto compile(M&& net, Options options = {}, detail::CallSite site = {})
    -> detail::compiled_of<detail::forward_signature<M>> {
  return detail::compile_module<detail::forward_signature<M>>(std::forward<M>(net),
                                                              std::move(options), site);
}

/// Compiles a function that uses a module, or several in a tuple (`std::tie(encoder, decoder)`):
/// their parameters and buffers are known by name, and `train()`, `eval()` are guarded. Inside a
/// module `*this` names it.
template <detail::Modules M, detail::Callable F>
auto compile(M&& modules, F&& fn, Options options = {}, detail::CallSite site = {})
    -> detail::compiled_of<detail::signature_of<F>> {
  return detail::Typed<detail::signature_of<F>>::compile(
      std::forward<F>(fn), detail::with_modules(std::forward<M>(modules), std::move(options)),
      site);
}

/// The same with the signature named, for generic lambdas: `compile<at::Tensor(at::Tensor,
/// int64_t)>(fn)`.
template <detail::FunctionType S, detail::Callable F>
  requires(!detail::FunctionType<std::remove_reference_t<F>>)
auto compile(F&& fn, Options options = {}, detail::CallSite site = {}) -> detail::compiled_of<S> {
  return detail::Typed<S>::compile(std::forward<F>(fn), std::move(options), site);
}

/// Picks one function of an overload set.
template <detail::FunctionType S>
auto compile(S* fn, Options options = {}, detail::CallSite site = {}) -> detail::compiled_of<S> {
  return detail::Typed<S>::compile(fn, std::move(options), site);
}

/// For an overloaded, templated or defaulted `forward`; C++ fills arguments that the signature
/// leaves out.
template <detail::FunctionType S, detail::ModulePointer M>
auto compile(M&& net, Options options = {}, detail::CallSite site = {}) -> detail::compiled_of<S> {
  return detail::compile_module<S>(std::forward<M>(net), std::move(options), site);
}

template <detail::FunctionType S, detail::Modules M, detail::Callable F>
auto compile(M&& modules, F&& fn, Options options = {}, detail::CallSite site = {})
    -> detail::compiled_of<S> {
  return detail::Typed<S>::compile(
      std::forward<F>(fn), detail::with_modules(std::forward<M>(modules), std::move(options)),
      site);
}

/// For bindings: the number of tensors is known at run time only.
TANDEM_API Compiled<std::vector<at::Tensor>(std::vector<at::Tensor>)> compile_boxed(
    Boxed fn, Options options = {}, detail::CallSite site = {});

// --- what cannot be compiled
// ---------------------------------------------------------------------------------

// A concept that asks whether something can be compiled gets the answer no. A program that compiles
// it gets one sentence: clang++ prints that of the attribute, g++ the line of the declaration.
#if defined(__clang__)
#define TANDEM_DETAIL_REFUSED(text) __attribute__((unavailable(text)))
#define TANDEM_DETAIL_DELETED
#else
#define TANDEM_DETAIL_REFUSED(text)
#define TANDEM_DETAIL_DELETED = delete
#endif

namespace detail {
template <class F>
concept HasSignature = requires { typename signature_of<F>; };
template <class M>
concept HasForward = requires { typename forward_signature<M>; };
/// Takes any argument, but with a worse conversion than a form of `compile` that fits.
struct Anything {
  template <class T>
  Anything(T&&);  // NOLINT
};
/// Behaves like a handle, so that nothing but the refusal is an error.
struct Refused {
  at::Tensor operator()(const auto&...) const;
};
}  // namespace detail

// clang-format off
template <detail::Callable F>
  requires(!detail::HasSignature<F>)
TANDEM_DETAIL_REFUSED("tandem: the types of the parameters of this function are not known. Remedy: write them out, or name them: compile<at::Tensor(at::Tensor)>(fn); of std::bind and member functions make a lambda") detail::Refused compile(F&&, Options = {}) TANDEM_DETAIL_DELETED;
template <detail::Modules M, detail::Callable F>
  requires(!detail::HasSignature<F>)
TANDEM_DETAIL_REFUSED("tandem: the types of the parameters of this function are not known. Remedy: write them out, or name them: compile<at::Tensor(at::Tensor)>(net, fn); of std::bind and member functions make a lambda") detail::Refused compile(M&&, F&&, Options = {}) TANDEM_DETAIL_DELETED;
template <detail::ModulePointer M>
  requires(!detail::HasForward<M>)
TANDEM_DETAIL_REFUSED("tandem: forward() of this module is overloaded, a template or not there. Remedy: name its signature: compile<at::Tensor(at::Tensor)>(net)") detail::Refused compile(M&&, Options = {}) TANDEM_DETAIL_DELETED;
template <class Signature = void>
TANDEM_DETAIL_REFUSED("tandem: compile() cannot be called like this: an option is misspelt, out of order or of another type. Remedy: compare it with the fields of tandem::Options, which come last") detail::Refused compile(detail::Anything, ...) TANDEM_DETAIL_DELETED;
template <class Signature = void>
TANDEM_DETAIL_REFUSED("tandem: compile() cannot be called like this: an option is misspelt, out of order or of another type. Remedy: compare it with the fields of tandem::Options, which come last") detail::Refused compile(detail::Anything, detail::Anything, ...) TANDEM_DETAIL_DELETED;
template <class Signature = void>
TANDEM_DETAIL_REFUSED("tandem: compile() cannot tell which function is meant: the name of several functions, or of a template. Remedy: name the signature: compile<at::Tensor(at::Tensor)>(fn)") detail::Refused compile(...) TANDEM_DETAIL_DELETED;
// clang-format on
#undef TANDEM_DETAIL_REFUSED
#undef TANDEM_DETAIL_DELETED

// --- stage by stage
// -----------------------------------------------------------------------------------------

namespace detail {

template <class S, class F, class... A>
Joint export_joint_as(F&& fn, std::tuple<A...>& arguments, const Options& options) {
  return [&]<class R, class... P>(std::type_identity<R(P...)>) {
    static_assert(
        sizeof...(P) == sizeof...(A),
        "tandem: export_joint needs one value in the tuple for each parameter of the function");
    const Flat flat = std::apply(
        [](const A&... argument) { return detail::flatten<std::decay_t<P>...>(argument...); },
        arguments);
    return detail::export_joint(Typed<R(P...)>::flat_function(std::forward<F>(fn)), flat, options);
  }(std::type_identity<S>{});
}

}  // namespace detail

/// Captures `fn` on these arguments: forward and backward in one graph, nothing compiled, nothing
/// run on data. A generic callable gets the types of the tuple.
template <detail::Callable F, class... A>
Joint export_joint(F&& fn, std::tuple<A...> arguments, const Options& options = {}) {
  if constexpr (requires { typename detail::signature_of<F>; }) {
    return detail::export_joint_as<detail::signature_of<F>>(std::forward<F>(fn), arguments,
                                                            options);
  } else {
    using R = std::invoke_result_t<std::decay_t<F>&, A...>;
    return detail::export_joint_as<R(A...)>(std::forward<F>(fn), arguments, options);
  }
}

/// The same of `net->forward`.
template <detail::ModulePointer M, class... A>
Joint export_joint(const M& net, std::tuple<A...> arguments, const Options& options = {}) {
  auto fn = detail::forward_of<at::Tensor>(detail::module_pointer(net));
  using R = std::invoke_result_t<decltype(fn)&, A...>;
  return detail::export_joint_as<R(A...)>(std::move(fn), arguments,
                                          detail::with_modules(net, options));
}

/// Cuts the joint graph into forward, backward and saved values, with `options.partitioner`.
TANDEM_API Split split(const Joint& joint, const Options& options = {});

/// Makes both halves callable: lifted tensors first, then the arguments. The results carry an
/// autograd node.
TANDEM_API Boxed lower(const Split& parts, std::shared_ptr<Backend> backend);

/// Captures `net->forward` on these arguments as one graph over all parameters and buffers of the
/// module: for inference, or with `joint` forward and the backward of a loss. What it does to
/// anything that is not registered in the module cannot be exported: an error that names it.
template <detail::ModulePointer M, class... A>
Exported export_module(const M& net, std::tuple<A...> arguments,
                       const ExportOptions& options = {}) {
  const auto module = detail::module_pointer(net);
  auto fn = detail::forward_of<at::Tensor>(module);
  using R = std::invoke_result_t<decltype(fn)&, A...>;
  const detail::Flat flat = std::apply(
      [](const A&... argument) { return detail::flatten<A...>(argument...); }, arguments);
  return detail::export_module(detail::Typed<R(A...)>::flat_function(std::move(fn)), flat, *module,
                               options);
}

/// Of this library: `0.1.0`.
TANDEM_API std::string version();

}  // namespace tandem
