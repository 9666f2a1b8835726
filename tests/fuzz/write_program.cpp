#include "fuzz/write_program.h"

#include "fuzz/changing_sizes.h"
#include "fuzz/custom_functions.h"
#include "fuzz/write_text.h"

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>

namespace tandem::fuzz {
namespace {

constexpr const char* kHead = R"(#include <tandem/tandem.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>
#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <iostream>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

using Tensors = std::vector<at::Tensor>;
namespace F = torch::nn::functional;

inline Tensors packed(at::Tensor tensor) { return {tensor}; }
inline Tensors packed(Tensors tensors) { return tensors; }
template <class... T>
Tensors packed(const std::tuple<T...>& tuple) {
  return std::apply([](const auto&... tensor) { return Tensors{tensor...}; }, tuple);
}
template <class Value>
void assign(std::vector<at::Tensor*> targets, const Value& value) {
  const Tensors list = packed(value);
  for (size_t i = 0; i < targets.size(); ++i) *targets[i] = i < list.size() ? list[i] : at::Tensor();
}
enum class Fill { Normal, Special, LargeMean };
inline at::Tensor leaf(std::vector<int64_t> sizes, at::ScalarType dtype, bool requires_grad,
                       Fill fill = Fill::Normal) {
  at::Tensor tensor;
  if (at::isIntegralType(dtype, true)) {
    tensor = torch::randint(0, dtype == at::kBool ? 2 : 4, sizes, dtype);
  } else if (fill == Fill::Special) {
    const at::Tensor values = torch::tensor(
        {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e30, -1e30, 3e38, 1e15, 1e-40, -1e-310, 1.0, -2.5},
        at::kDouble);
    tensor = values.index({torch::randint(0, values.numel(), sizes, at::kLong)}).to(dtype);
  } else {
    tensor = torch::randn(sizes, dtype);
    if (fill == Fill::LargeMean) tensor = tensor + 10000;
  }
  return tensor.set_requires_grad(requires_grad);
}
template <class Make>
at::Tensor in_inference_mode(const Make& make) {
  const c10::InferenceMode mode;
  return make();
}
inline at::Tensor apart(const at::Tensor& tensor) {
  return tensor.is_leaf() ? tensor.detach().clone().requires_grad_(tensor.requires_grad())
                          : tensor.clone();
}
/// To tensors that are no leaves, from one of the leaves, which come first.
inline void give_histories(const Tensors& tensors, size_t leaves) {
  for (at::Tensor tensor : tensors) {
    if (!tensor.defined() || !tensor.requires_grad() || tensor.is_leaf() || tensor.is_view()) continue;
    for (size_t i = 0; i < leaves; ++i) {
      if (!tensors[i].requires_grad() || tensors[i].is_complex() != tensor.is_complex()) continue;
      tensor.detach_();
      tensor.add_(tensors[i].flatten().slice(0, 0, 1).sum());
      break;
    }
  }
}
)";

constexpr const char* kTail = R"(
/// Everything that is compared, as text or as data.
struct Seen {
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::pair<std::string, at::Tensor>> data;
};

std::string error_text(const std::exception& error) {
  const auto* libtorch = dynamic_cast<const c10::Error*>(&error);
  return std::string(libtorch ? libtorch->what_without_backtrace() : error.what()).substr(0, 60);
}

void look(Seen& seen, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    seen.facts.push_back({name, "undefined"});
    return;
  }
  std::ostringstream facts;
  facts << tensor.scalar_type() << tensor.sizes() << tensor.strides() << " requires_grad "
        << tensor.requires_grad() << " is_leaf " << tensor.is_leaf() << " is_view "
        << tensor.is_view() << " inference " << tensor.is_inference();
  seen.facts.push_back({name, facts.str()});
  seen.data.push_back({name, tensor.detach().resolve_conj().resolve_neg().clone()});
}

void differentiate(Seen& seen, const std::string& when, const Tensors& results,
                   const Tensors& wanted) {
  torch::manual_seed(7);
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& result = results[i];
    if (!result.defined() || !result.requires_grad() || wanted.empty()) continue;
    const std::string name = "gradient of result " + std::to_string(i) + when;
    const at::Tensor tangent = torch::randn(result.sizes(), result.options().requires_grad(kSecondOrder));
    try {
      const Tensors first =
          torch::autograd::grad({result}, wanted, {tangent}, true, kSecondOrder, true);
      for (size_t j = 0; j < first.size(); ++j) look(seen, name + " in " + std::to_string(j), first[j]);
      Tensors again, tangents;
      for (const at::Tensor& gradient : first) {
        if (!kSecondOrder || !gradient.defined() || !gradient.requires_grad()) continue;
        again.push_back(gradient);
        tangents.push_back(torch::randn(gradient.sizes(), gradient.options().requires_grad(false)));
      }
      if (again.empty()) continue;
      const Tensors second = torch::autograd::grad(again, wanted, tangents, true, false, true);
      for (size_t j = 0; j < second.size(); ++j) {
        look(seen, "second " + name + " in " + std::to_string(j), second[j]);
      }
    } catch (const std::exception& error) {
      seen.facts.push_back({name, error_text(error)});
    }
  }
}

Seen observe(Program& program, const std::function<Tensors(Tensors)>& call, int number) {
  Seen seen;
  set_host(number % 2 == 1 ? kOddHost : kEvenHost);
  program.new_data({}, number, false);
  torch::manual_seed(100 + number);
  Tensors all, arguments;
  program.arguments(all, arguments);
  all.insert(all.end(), program.closed.begin(), program.closed.end());
  torch::manual_seed(200 + number);
  std::vector<uint32_t> versions;
  for (const at::Tensor& tensor : all) versions.push_back(tensor._version());
  Tensors results, wanted;
  const at::AutoGradMode as_it_was(true);
  try {
    around([&] {
      results = call(arguments);
      seen.facts.push_back({"grad mode", at::GradMode::is_enabled() ? "on" : "off"});
    });
  } catch (const std::exception& error) {
    seen.facts.push_back({"the call", error_text(error)});
    return seen;
  }
  at::GradMode::set_enabled(true);
  seen.data.push_back({"default generator", at::detail::getDefaultCPUGenerator().get_state()});
  seen.data.push_back({"own generator", program.generator.get_state()});
  for (size_t i = 0; i < results.size(); ++i) look(seen, "result " + std::to_string(i), results[i]);
  for (size_t i = 0; i < all.size(); ++i) {
    look(seen, "input " + std::to_string(i), all[i]);
    seen.facts.push_back({"version of input " + std::to_string(i),
                          std::to_string(all[i]._version() - versions[i])});
    if (all[i].requires_grad()) wanted.push_back(all[i]);
  }
  std::string sharing;
  Tensors everything = all;
  everything.insert(everything.end(), results.begin(), results.end());
  for (size_t i = 0; i < everything.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!everything[i].defined() || !everything[j].defined()) continue;
      const bool same = everything[i].is_same(everything[j]);
      if (everything[i].is_alias_of(everything[j])) {
        sharing += std::to_string(i) + (same ? " is " : " shares with ") + std::to_string(j) + "; ";
      }
    }
  }
  seen.facts.push_back({"memory", sharing});
  if (kEvenHost != 0) set_host(0.5);
  program.new_data(all, number, true);
  differentiate(seen, "", results, wanted);
  try {
    Tensors parameters = arguments;
    parameters.insert(parameters.end(), results.begin(), results.end());
    const Tensors made = program.further(parameters);
    for (size_t i = 0; i < made.size(); ++i) look(seen, "next " + std::to_string(i), made[i]);
    differentiate(seen, " of what comes next", made, wanted);
  } catch (const std::exception& error) {
    seen.facts.push_back({"what comes next", error_text(error)});
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    const std::string when = " after result " + std::to_string(i) + " was written";
    try {
      results[i].add_(2);
    } catch (const std::exception& error) {
      seen.facts.push_back({"error" + when, error_text(error)});
    }
    for (size_t j = 0; j < everything.size(); ++j) {
      if (everything[j].defined()) look(seen, std::to_string(j) + when, everything[j]);
    }
  }
  differentiate(seen, " after the writes", results, wanted);
  return seen;
}

bool close(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (at::equal(a, b)) return !a.is_floating_point() || at::equal(a.signbit(), b.signbit());
  if (!a.is_floating_point() && !a.is_complex()) return false;
  return at::allclose(a, b, 1e-5, a.scalar_type() == at::kDouble ? 1e-10 : 1e-3, true);
}

int compare(const Seen& eager, const Seen& compiled, int call) {
  int differences = 0;
  const auto report = [&](const std::string& text) {
    std::cout << "call " << call << ": " << text << '\n';
    ++differences;
  };
  for (size_t i = 0; i < std::max(eager.facts.size(), compiled.facts.size()); ++i) {
    const auto none = std::make_pair(std::string("nothing"), std::string());
    const auto& a = i < eager.facts.size() ? eager.facts[i] : none;
    const auto& b = i < compiled.facts.size() ? compiled.facts[i] : none;
    // Of gradients the strides may be others; an error of eager is part of ours.
    if (a == b || (a.first == b.first && a.first.find("gradient") != std::string::npos &&
                   a.second.find('[') != std::string::npos && b.second.find('[') != std::string::npos)) {
      continue;
    }
    report("eager " + a.first + ": " + a.second + "; compiled " + b.first + ": " + b.second);
    if (a.first != b.first) break;
  }
  for (size_t i = 0; i < std::min(eager.data.size(), compiled.data.size()); ++i) {
    if (eager.data[i].first == compiled.data[i].first &&
        !close(eager.data[i].second, compiled.data[i].second)) {
      report("data of " + eager.data[i].first);
    }
  }
  return differences;
}

int main() {
  at::set_num_threads(1);
  Program eager(false), compiled(true);
  tandem::Options options{.backend = kBackend};
  options.mutations = kMutations;
  if (kHostChanges) {
    options.closes_over = {&host_tensor};
    options.guard_on = [] { return host_number; };
  }
  const auto handle = tandem::compile_boxed(
      std::function<Tensors(Tensors)>([&](Tensors list) { return compiled.function(list); }), options);
  int differences = 0;
  for (int call = 0; call < kCalls; ++call) {
@before the call@    varied = kApart ? call % 2 == kFirstApart : call == 2;
    const Seen expected = observe(eager, [&](Tensors list) { return eager.function(list); }, call);
    const Seen found = observe(compiled, [&](Tensors list) {
      Tensors results;
      std::exception_ptr error;
      const auto run = [&] {
        try {
          results = handle(list);
        } catch (...) {
          error = std::current_exception();
        }
      };
      if (kOtherThread) std::thread([&] { around(run); }).join();
      else run();
      if (error) std::rethrow_exception(error);
      return results;
    }, call);
    differences += compare(expected, found, call);
@after the call@  }
  std::cout << (differences ? "differs from eager\n" : "like eager\n");
  return differences ? 1 : 0;
}
)";

/// Where each call has sizes of its own: before it, and after it. What is done to leaves outside
/// may not fit the sizes; and when eager raises it may have done something to what comes after.
constexpr std::string_view kBeforeCall = "@before the call@", kAfterCall = "@after the call@";
constexpr const char* kSizesBefore = R"(    current_call = call;
    try {
      Tensors all, arguments;
      eager.arguments(all, arguments);
    } catch (const std::exception&) {
      continue;
    }
    const int64_t compiles = handle.stats().compiles;
)";
constexpr const char* kSizesAfter = R"(    const bool alone = eager.closed.empty() && !kHostChanges;
    if (expected.facts.back().first == "the call") {
      if (alone && at::equal(eager.generator.get_state(), compiled.generator.get_state())) continue;
      break;
    }
    const std::vector<int64_t> now(kSizes[call], std::end(kSizes[call]));
    if (!served.insert(now).second && alone && handle.stats().compiles != compiles) {
      std::cout << "call " << call << ": a needless compile\n";
      ++differences;
    }
)";

std::string tail_of(const ProgramSpec& program) {
  const bool sizes_change = !program.sizes_of_calls.empty();
  std::string text = kTail;
  text.replace(text.find(kBeforeCall), kBeforeCall.size(), sizes_change ? kSizesBefore : "");
  text.replace(text.find(kAfterCall), kAfterCall.size(), sizes_change ? kSizesAfter : "");
  return text;
}

std::string variable(int number) { return "v" + std::to_string(number); }

std::string names(const std::vector<int>& variables, const char* before = "") {
  std::string text;
  for (int number : variables) {
    if (!text.empty()) text += ", ";
    text += before + variable(number);
  }
  return text;
}

void write(std::ostream& out, const std::vector<Statement>& statements, int depth) {
  const std::string indent(static_cast<size_t>(depth) * 2, ' ');
  for (const Statement& statement : statements) {
    switch (statement.kind) {
      case StatementKind::Op:
        out << indent << statement_text(statement) << '\n';
        continue;
      case StatementKind::Call:
        out << indent << "assign({" << names(statement.results, "&") << "}, inner_["
            << statement.function << "](Tensors{" << names(statement.operands) << "}));\n";
        continue;
      case StatementKind::NoGrad:
        out << indent << "{\n" << indent << "  const at::NoGradGuard mode;\n";
        break;
      case StatementKind::EnableGrad:
        out << indent << "{\n" << indent << "  const at::AutoGradMode mode(true);\n";
        break;
      case StatementKind::Inference:
        out << indent << "{\n" << indent << "  const c10::InferenceMode mode;\n";
        break;
      case StatementKind::Repeat:
        out << indent << "for (int turn = 0; turn < " << statement.count << "; ++turn) {\n";
        break;
    }
    write(out, statement.body, depth + 1);
    out << indent << "}\n";
  }
}

void write_function(std::ostream& out, const std::string& name, const Function& function,
                    size_t arguments) {
  out << "  Tensors " << name << "([[maybe_unused]] Tensors list) {\n";
  for (int number = 0; number < function.parameters; ++number) {
    const auto place = static_cast<size_t>(number);
    out << "    [[maybe_unused]] at::Tensor " << variable(number) << " = ";
    if (place < arguments) {
      out << "list[" << place << "];\n";
    } else {
      out << "closure[" << place - arguments << "];\n";
    }
  }
  for (int number = function.parameters; number < function.variables; ++number) {
    out << "    [[maybe_unused]] at::Tensor " << variable(number) << ";\n";
  }
  write(out, function.statements, 2);
  out << "    return {" << names(function.results) << "};\n  }\n";
}

std::string leaf_text(const ProgramSpec& program, const Leaf& leaf, const std::string& wider,
                      const std::string& requires_grad) {
  std::ostringstream out;
  out << (leaf.inference ? "in_inference_mode([&] { return " : "") << "leaf({";
  for (size_t dim = 0; dim < leaf.sizes.size(); ++dim) {
    out << (dim ? ", " : "") << size_text(program, leaf.sizes[dim]);
    if (dim == 0) out << wider;
  }
  out << "}, at::k" << c10::toString(leaf.dtype) << ", " << requires_grad
      << (leaf.fill == Fill::Special     ? ", Fill::Special"
          : leaf.fill == Fill::LargeMean ? ", Fill::LargeMean"
                                         : "")
      << ")" << (leaf.inference ? "; })" : "");
  return out.str();
}

void write_new_data(std::ostream& out, const ProgramSpec& program) {
  out << "  void new_data([[maybe_unused]] const Tensors& all, [[maybe_unused]] int number,\n"
      << "                [[maybe_unused]] bool after_call) {\n";
  for (const NewData& data : program.new_data) {
    const Origin& origin = data.closed_over ? program.closure : program.arguments;
    const Leaf& leaf = origin.leaves[data.leaf];
    out << "    if (" << (data.after_call ? "after_call" : "!after_call && number > 0") << ") {\n"
        << "      torch::manual_seed(300 + " << (data.after_call ? "10" : "number") << ");\n      "
        << (data.closed_over ? "closed" : "all") << '[' << data.leaf << "].set_data("
        << leaf_text(program, leaf, data.wider ? " + 1" : "", "false") << ");\n    }\n";
  }
  if (program.new_histories) {
    out << "    if (!after_call && number > 0) give_histories(closed, "
        << program.closure.leaves.size() << ");\n";
  }
  out << "  }\n";
}

void write_origin(std::ostream& out, const ProgramSpec& program, const Origin& origin,
                  Variation variation) {
  int count = static_cast<int>(origin.leaves.size());
  for (int number = 0; number < count; ++number) {
    const Leaf& leaf = origin.leaves[static_cast<size_t>(number)];
    const bool wider = variation == Variation::Wider && number == 0;
    const bool flips = variation == Variation::FlipGrad && !leaf.inference &&
                       (at::isFloatingType(leaf.dtype) || at::isComplexType(leaf.dtype));
    out << "    at::Tensor " << variable(number) << " = "
        << leaf_text(
               program, leaf, wider ? " + (varied ? 1 : 0)" : "",
               std::string(leaf.requires_grad ? "true" : "false") + (flips ? " != varied" : ""))
        << ";\n";
  }
  std::vector<int> all;
  for (int number = 0; number < count; ++number) all.push_back(number);
  for (const Statement& statement : origin.statements) {
    for (int result : statement.results) {
      out << "    at::Tensor " << variable(result) << ";\n";
      all.push_back(result);
    }
  }
  write(out, origin.statements, 2);
  out << "    all = {" << names(all) << "};\n    given = {" << names(origin.given) << "};\n";
  if (variation == Variation::Apart) {
    out << "    for (at::Tensor& tensor : given) {\n      if (varied) tensor = apart(tensor);\n    "
           "}\n";
  }
}

/// On which the program has run, and runs again.
std::string chosen_backend() {
  const char* backend = std::getenv("TANDEM_BACKEND");
  return backend == nullptr ? "eager" : backend;
}

}  // namespace

std::string write_program(const ProgramSpec& program, const std::vector<std::string>& why) {
  std::ostringstream out;
  out << "// Written by tandem_fuzz, seed " << program.seed
      << ". Builds with find_package(tandem) and tandem::tandem.\n";
  for (const std::string& text : why) {
    out << "//   " << text.substr(0, text.find('\n')).substr(0, 160) << '\n';
  }
  out << kHead << (program.sizes_of_calls.empty() ? "" : "#include <set>\n") << '\n'
      << kCustomFunctions << "\n\n";
  out << "constexpr bool kSecondOrder = " << (program.second_order ? "true" : "false") << ";\n";
  out << "constexpr bool kOtherThread = "
      << (program.mode == CallMode::OtherThread ? "true" : "false") << ";\n";
  out << "constexpr auto kMutations = tandem::Mutations::"
      << (program.mode == CallMode::Epilogue ? "epilogue" : "in_graph") << ";\n";
  out << "constexpr bool kHostChanges = " << (program.host_changes ? "true" : "false") << ";\n"
      << "constexpr double kEvenHost = " << program.host_number(0)
      << ", kOddHost = " << (std::signbit(program.host_number(1)) ? "-0.0" : "2") << ";\n"
      << "double host_number = 1.5;\n"
      << "at::Tensor host_tensor = at::scalar_tensor(0.75, at::kDouble);\n"
      << "void set_host(double number) {\n  if (!kHostChanges) return;\n"
      << "  if (number != host_number) host_tensor = at::scalar_tensor(number / 2, at::kDouble);\n"
      << "  host_number = number;\n}\n";
  const bool apart = program.variation == Variation::Apart;
  out << "constexpr bool kApart = " << (apart ? "true" : "false") << ";\n"
      << "constexpr int kFirstApart = " << (program.seed % 2 == 1 ? 0 : 1) << ";\n"
      << "constexpr const char* kBackend = \"" << chosen_backend() << "\";\n"
      << "constexpr int kCalls = "
      << (!program.sizes_of_calls.empty()        ? program.sizes_of_calls.size()
          : apart                                ? 4
          : program.variation == Variation::None ? 2
                                                 : 3)
      << ";\n"
      << "bool varied = false;  // the third call, or every other one\n";
  if (!program.sizes_of_calls.empty()) {
    out << "constexpr int64_t kSizes[kCalls][" << kChangingSizes.size() << "] = {";
    for (const auto& sizes : program.sizes_of_calls) {
      out << (&sizes == program.sizes_of_calls.data() ? "{" : ", {") << sizes[0] << ", " << sizes[1]
          << "}";
    }
    out << "};\nint current_call = 0;\nstd::set<std::vector<int64_t>> served;\n";
  }
  out << "void around(const std::function<void()>& body) {\n";
  if (program.around == Around::NoGrad) out << "  const at::NoGradGuard mode;\n";
  if (program.around == Around::Inference) out << "  const c10::InferenceMode mode;\n";
  if (program.variation == Variation::NoGrad) {
    out << "  std::optional<at::NoGradGuard> no_grad;\n  if (varied) no_grad.emplace();\n";
  }
  out << "  body();\n}\n\n";

  out << "struct Program {\n  explicit Program([[maybe_unused]] bool compiled) {\n"
      << "    torch::manual_seed(1);\n    make_closure(closed, closure);\n";
  for (size_t index = 0; index < program.inner.size(); ++index) {
    const std::string body =
        "[this](Tensors list) { return inner" + std::to_string(index) + "(std::move(list)); }";
    out << "    std::function<Tensors(Tensors)> body" << index << " = " << body << ";\n"
        << "    if (compiled) body" << index << " = [handle = tandem::compile_boxed(body" << index
        << ", tandem::Options{.backend = kBackend})](Tensors list) { return "
           "handle(std::move(list)); };\n"
        << "    inner_.push_back(body" << index << ");\n";
  }
  out << "  }\n\n  void arguments(Tensors& all, Tensors& given) {\n";
  if (!program.sizes_of_calls.empty()) {
    out << "    const auto& sizes = kSizes[current_call];\n";
  }
  write_origin(out, program, program.arguments, program.variation);
  out << "  }\n  void make_closure(Tensors& all, Tensors& given) {\n";
  write_origin(out, program, program.closure, Variation::None);
  out << "  }\n";
  for (size_t index = 0; index < program.inner.size(); ++index) {
    const Function& function = program.inner[index];
    write_function(out, "inner" + std::to_string(index), function,
                   static_cast<size_t>(function.parameters));
  }
  write_function(out, "function", program.function, program.arguments.given.size());
  write_new_data(out, program);
  write_function(out, "further", program.further, static_cast<size_t>(program.further.parameters));
  out << "\n  at::Generator generator = at::detail::createCPUGenerator(" << program.seed << ");\n"
      << "  Tensors closed, closure;\n  std::vector<std::function<Tensors(Tensors)>> inner_;\n};\n";
  out << tail_of(program);
  return out.str();
}

}  // namespace tandem::fuzz
