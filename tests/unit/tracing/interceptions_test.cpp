// Every row of the table of interceptions (src/tracing/hooks/interceptions.cpp) with a program that
// shows what it is there for, and the page that lists the rows. As long as the table: the programs
// stand in its order, and share what they are written with.
#include "base/error.h"
#include "ir/text/op_names.h"
#include "libtorch/thread_state.h"
#include "libtorch/version.h"
#include "ops/effect_marks.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/run_trace.h"
#include "tandem/ir/text.h"
#include "tracing/hooks/interception.h"
#include "tracing/inputs/lost_history.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/strides.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

namespace tandem::tracing {
namespace {

using T = at::Tensor;
using test::error_text;
using test::run_trace;
using test::Tensors;
using Ops = std::vector<std::string>;

T leaf(at::IntArrayRef sizes) { return torch::rand(sizes).requires_grad_(); }
T channels_last() { return torch::rand({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast); }

Ops ops_in(const ir::Graph& graph) {
  Ops ops;
  graph.for_each_node([&](const ir::Node& node) {
    ops.push_back(node.kind() == ir::NodeKind::Op ? ir::op_text(node.op()) : "constant");
  });
  return ops;
}

/// What is recorded of a function of one tensor.
Ops recorded(const T& x, const std::function<T(const T&)>& fn) {
  const auto trace = run_trace({x}, [&](const Tensors& in) { return Tensors{fn(in[0])}; });
  for (const StandIn& one : trace->stand_ins()) current_value(one.tensor);  // writes, too
  return ops_in(trace->recording().graph());
}

bool has(const Ops& ops, const std::string& op) { return std::ranges::count(ops, op) > 0; }

std::string libtorch_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "(no error)";
}

int notes = 0;

const T& factor() {
  static const T made = torch::full({2}, 3);
  return made;
}

/// Ops of another library: two made of other ops, one that writes.
void register_users_ops() {
  static const auto* const library = [] {
    auto* made = new torch::Library(torch::Library::DEF, "rows", std::nullopt, __FILE__, __LINE__);
    made->def("scale(Tensor x) -> Tensor", [](const T& x) { return x * factor(); });
    made->def("note(Tensor x) -> ()", [](const T&) { ++notes; });
    made->def("fill(Tensor(a!) x, float value) -> ()");
    made->impl("fill", torch::dispatch(c10::DispatchKey::CPU,
                                       [](const T& x, double value) { x.fill_(value); }));
    return made;
  }();
  TORCH_CHECK(library != nullptr);
}

template <class Signature>
auto users_op(const char* name) {
  register_users_ops();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

T scale(const T& x) { return users_op<T(const T&)>("rows::scale").call(x); }
void note(const T& x) { users_op<void(const T&)>("rows::note").call(x); }
void fill(const T& x, double value) {
  users_op<void(const T&, double)>("rows::fill").call(x, value);
}

/// A recording on this thread, as the recording hook finds it: no function, no functionalization.
class BelowFunctionalization {
 public:
  BelowFunctionalization() : scope_(&recording_), keys_(c10::DispatchKeySet{libtorch::kRecordKey}) {
    // The hooks are there from the first trace on.
    run_trace({}, [](const Tensors&) { return Tensors{}; });
  }
  /// An input of the graph.
  T traced(at::IntArrayRef sizes, at::IntArrayRef strides) {
    const T like = at::empty_strided(sizes, strides, at::TensorOptions(at::kMeta));
    ops::TensorMeta meta = recording_.metadata().meta_of(like);
    ir::TensorType type = *meta.type;
    type.device = at::kCPU;
    meta.type = recording_.metadata().intern(type);
    const ir::Value& value =
        recording_.graph().add_input(meta.type, ir::Descriptor::user_input(inputs_++), "x");
    return recording_.wrap(value.id(), meta);
  }
  T traced(at::IntArrayRef sizes) { return traced(sizes, c10::contiguous_strides(sizes)); }
  Recording& recording() { return recording_; }
  Ops ops() const { return ops_in(recording_.graph()); }

 private:
  Recording recording_;
  RecordingScope scope_;
  c10::impl::IncludeDispatchKeyGuard keys_;
  at::AutoDispatchBelowADInplaceOrView below_;
  int64_t inputs_ = 0;
};

// ---- first sight ----

void open_up_an_op_of_the_user() {
  const T& closed_over = factor();  // made outside
  const auto trace =
      run_trace({torch::ones({2})}, [](const Tensors& in) { return Tensors{scale(in[0])}; });
  EXPECT_EQ(ops_in(trace->recording().graph()), Ops{"aten.mul.Tensor"});
  EXPECT_TRUE(trace->inputs().find(closed_over).has_value()) << "the body closes over it";
}

// ---- lifting ----

void renew_histories_of_views() {
  // No member of a group, since the base is not contiguous.
  const T view = (leaf({2, 3}).t() * 2).select(0, 0);
  const auto trace = run_trace({view}, [](const Tensors& in) {
    at::_foreach_mul_({in[0].detach()}, 2);  // counts its writes when it is over
    return Tensors{in[0] + 1};
  });
  ASSERT_EQ(trace->stand_ins()[0].histories.size(), 2u);
  EXPECT_TRUE(trace->results().tensors[0].grad_fn()->next_edge(0) ==
              trace->stand_ins()[0].histories[1]);
}

void hand_on_a_number() {
  detail::Flat arguments;
  arguments.tensors.push_back(torch::full({}, 3, at::kLong));
  Trace trace(arguments, InputOptions{.names = {"argument"}});
  trace.recording().draw_data_sizes(0);
  const auto function = [](const detail::Flat& arguments) {
    const c10::SymInt size = arguments.tensors[0].item().toSymInt();
    detail::Flat results;
    results.tensors.push_back(at::zeros_symint({size}, at::TensorOptions()));
    return results;
  };
  trace.run(function);
  EXPECT_EQ(ops_in(trace.recording().graph()), (Ops{"tandem.as_size", "aten.zeros"}));
}

void memory_of_the_host() {
  const auto fill = [](const T& x) { return x + torch::tensor(std::vector<float>{3, 4}); };
  EXPECT_EQ(recorded(torch::ones({2}), fill), (Ops{"constant", "aten.add.Tensor"}));
}

void give_back() {
  EXPECT_EQ(recorded(torch::ones({2}), [](const T& x) { return at::lift(x); }), Ops{});
}

void resize_memory_of_the_host() {
  recorded(torch::ones({2}), [](const T& x) {
    T memory = torch::empty({2});
    memory.fill_(1);
    memory.resize_({4});
    EXPECT_EQ(memory.size(0), 4);
    memory.resize_as_(x);
    EXPECT_EQ(memory.size(0), 2);
    return memory;
  });
}

void lift_what_is_closed_over() {
  const T closed_over = torch::ones({2});
  const auto trace = run_trace({torch::ones({2})},
                               [&](const Tensors& in) { return Tensors{in[0] * closed_over}; });
  ASSERT_EQ(trace->stand_ins().size(), 2u);
  EXPECT_TRUE(trace->stand_ins()[1].real.is_same(closed_over));
}

void draw_in_order() {
  EXPECT_EQ(recorded(channels_last(), [](const T& x) { return at::bernoulli(x, 0.5); }),
            (Ops{"aten.clone", "aten.bernoulli.p"}));
}

void keep_a_marked_op_whole() {
  register_users_ops();
  ops::mark_effectful("rows::note");
  const Ops ops = recorded(torch::ones({2}), [](const T& x) {
    note(x);
    return x;
  });
  EXPECT_EQ(ops, Ops{"rows.note"});
  EXPECT_EQ(notes, 0) << "an effect while it was traced";
}

void keep_within_the_memory() {
  const auto strided = [](int64_t offset) {
    return [offset](const T& x) { return x.as_strided({2}, {1}, offset); };
  };
  const T part = torch::ones({10}).narrow(0, 4, 3);
  const std::string text = libtorch_error([&] { recorded(part, strided(9)); });
  EXPECT_NE(text.find("are out of bounds for storage of size 40"), std::string::npos) << text;
  // The memory goes on behind the argument.
  EXPECT_EQ(recorded(part, strided(8)), Ops{"aten.as_strided"});
}

void leave_out_an_offset() {
  const auto trace = run_trace({torch::ones({10}).narrow(0, 4, 3)}, [](const Tensors& in) {
    return Tensors{in[0].as_strided({2}, {1}, 4), in[0].as_strided({2}, {1}, 5)};
  });
  const std::string text = ir::print(trace->recording().graph());
  EXPECT_NE(text.find("aten.as_strided(%arg0, [2], [1], none)"), std::string::npos) << text;
  EXPECT_NE(text.find("aten.as_strided(%arg0, [2], [1], 5)"), std::string::npos) << text;
}

void follow_writes_of_the_users_op() {
  EXPECT_EQ(recorded(torch::ones({2}),
                     [](const T& x) {
                       fill(x, 3);
                       return x;
                     }),
            Ops{"tandem_functional.rows__fill"});
}

void check_what_is_written() {
  const std::string text = libtorch_error([] {
    recorded(torch::ones({8}),
             [](const T& x) { return x.narrow(0, 0, 4).add_(x.narrow(0, 1, 4)); });
  });
  EXPECT_EQ(text.rfind("unsupported operation: some elements of the input tensor", 0), 0u) << text;
}

void check_the_classes_in_the_graph() {
  const Ops ops = recorded(torch::tensor({0, 2}), [](const T& x) { return at::one_hot(x, 3); });
  EXPECT_TRUE(has(ops, "aten._assert_async.msg") && has(ops, "aten.scatter.value"));
  EXPECT_FALSE(
      has(recorded(torch::zeros({0}, at::kLong), [](const T& x) { return at::one_hot(x, 3); }),
          "aten._assert_async.msg"));
}

void refuse_unknown_classes() {
  const std::string text = error_text<UnsupportedError>(
      [] { recorded(torch::tensor({0, 2}), [](const T& x) { return at::one_hot(x); }); });
  EXPECT_NE(text.find("one_hot without num_classes"), std::string::npos) << text;
}

void refuse_written_numbers() {
  const auto raised = [](const std::function<void(const T&, T&)>& write) {
    return error_text<UnsupportedError>([&] {
      run_trace({torch::ones({2})}, [&](const Tensors& in) {
        T number = at::native::wrapped_scalar_tensor(0.75);
        write(in[0], number);
        return Tensors{in[0]};
      });
    });
  };
  const std::string expected = "is written in place";
  for (const std::string& text :
       {raised([](const T&, T& number) { number.add_(1); }),
        raised([](const T& x, T& number) { at::_foreach_add_({x, number}, 1); }),
        raised([](const T& x, T& number) { at::sum_out(number, x, at::IntArrayRef{0}); })})
    EXPECT_NE(text.find(expected), std::string::npos) << text;
}

void check_what_is_read_and_written() {
  const T x = torch::ones({2, 2});
  const auto run = [&](const std::function<void(T&)>& write) {
    run_trace({x}, [&](const Tensors& in) {
      T y = in[0] * 1;
      write(y);
      return Tensors{y};
    });
  };
  const std::string refused =
      error_text<UnsupportedError>([&] { run([](T& y) { y.addmm_(y, y); }); });
  EXPECT_NE(refused.find("writes into one of its operands"), std::string::npos) << refused;
  const std::string raised = libtorch_error(
      [&] { run([](T& y) { at::index_select_out(y, y, 0, torch::tensor({1, 0})); }); });
  EXPECT_NE(raised.find("refer to a single memory location"), std::string::npos) << raised;
  EXPECT_NO_THROW(run([&](T& y) { y.addmm_(x, x); }));
}

// Neither a sum nor zeros between the windows; and the base keeps its strides.
void every_element_in_its_place() {
  const T x = torch::ones({2, 4});
  const Ops filled = recorded(x, [](const T& y) { return y.expand({1, 2, 4}).fill_(2); });
  EXPECT_FALSE(has(filled, "aten.add.Tensor") || has(filled, "aten.sub.Tensor"));
  run_trace({x}, [](const Tensors& in) {
    const T turned = in[0].t(), windows = turned.unfold(0, 1, 1);
    const std::vector<int64_t> order = windows.strides().vec();
    windows.mul_(2);
    EXPECT_EQ(windows.strides(), order);
    EXPECT_EQ(turned.exp().strides(), turned.strides());
    EXPECT_EQ(turned.strides(), (std::vector<int64_t>{1, 4}));
    return Tensors{turned};
  });
}

void check_a_mask() {
  for (const bool scattered : {false, true}) {
    const std::string text = libtorch_error([&] {
      recorded(torch::ones({2}), [&](const T& x) {
        const T mask = torch::ones({2, 4}, at::kBool);
        return scattered ? x.masked_scatter_(mask, x) : x.masked_fill_(mask, 0.5);
      });
    });
    EXPECT_NE(text.find("tensor a (2) must match the size of tensor b (4)"), std::string::npos)
        << text;
  }
}

void check_what_is_filled() {
  const std::string text = libtorch_error([] {
    recorded(torch::ones({2}), [](const T& x) {
      T whole = torch::zeros({2}, at::kLong);
      return at::add_out(whole, x, x);
    });
  });
  EXPECT_NE(text.find("result type Float can't be cast"), std::string::npos) << text;
}

void count_writes_to_lists() {
  const auto trace = run_trace({torch::ones({2}), torch::ones({2})}, [](const Tensors& in) {
    at::_foreach_add_({in[0], in[1]}, 1);
    EXPECT_EQ(in[0]._version(), 1);
    return Tensors{};
  });
  const std::string text = error_text<UnsupportedError>([] {
    recorded(torch::ones({4}), [](const T& x) {
      at::_foreach_add_({x.narrow(0, 0, 3), x.narrow(0, 1, 3)}, 1);
      return x;
    });
  });
  EXPECT_NE(text.find("writes the same memory twice: tensors 0 and 1"), std::string::npos) << text;
}

void note_a_write() {
  const T closed_over = torch::ones({2}), weight = leaf({2});
  run_trace({weight}, [&](const Tensors& in) {
    closed_over.mul_(in[0]);
    EXPECT_TRUE(closed_over.requires_grad());
    return Tensors{};
  });
  EXPECT_FALSE(closed_over.requires_grad());
}

T inner_of(const T& tensor) {
  current_value(tensor);
  return at::functionalization::impl::from_functional_tensor(tensor);
}

void written_memory_stays_lazy_or_not() {
  const T plain = torch::ones({2}, at::kComplexFloat), lazy = torch::ones({2}, at::kComplexFloat);
  run_trace({plain, lazy.conj()}, [](const Tensors& in) {
    const T x = in[0] * 2;
    x.conj().mul_(3);
    EXPECT_FALSE(inner_of(x).is_conj());
    in[1].mul_(2);
    EXPECT_TRUE(inner_of(in[1]).is_conj());
    return Tensors{};
  });
}

void real_and_complex_numbers_within_a_write() {
  run_trace({torch::ones({2, 2}, at::kComplexFloat)}, [](const Tensors& in) {
    const T x = in[0] * 2;
    at::imag(x.conj().select(0, 0).conj()).add_(1);
    EXPECT_FALSE(inner_of(x).is_conj());
    EXPECT_ANY_THROW(at::view_as_real(x.conj()));
    return Tensors{};
  });
  const Ops written = recorded(torch::ones({2}, at::kComplexFloat), [](const T& x) {
    at::imag(x.conj()).round_();
    return x;
  });
  const auto back = std::ranges::find(written, "aten.view_as_complex");
  ASSERT_TRUE(back != written.end() && back != written.begin());
  EXPECT_EQ(*(back - 1), "aten.clone") << "of real numbers, which keeps the sign of a zero";
  const Ops read = recorded(torch::ones({2, 2}),
                            [](const T& x) { return at::view_as_complex(at::_neg_view(x)); });
  EXPECT_FALSE(has(read, "aten.clone")) << "eager negates the complex numbers here";
}

void keep_strides() {
  const T out = torch::zeros({3, 2}).t();
  run_trace({out, torch::ones({2, 2}), torch::ones({2, 3})}, [](const Tensors& in) {
    T filled = in[0];
    at::mm_out(filled, in[1], in[2]);
    EXPECT_EQ(filled.strides(), (std::vector<int64_t>{1, 2}));
    return Tensors{filled};
  });
}

void both_formulas_of_a_determinant() {
  for (const auto& det : {at::det, at::linalg_det}) {
    const Ops ops = recorded(leaf({3, 3}), [&](const T& x) {
      return torch::autograd::grad({det(x)}, {x}, {}, true, /*create_graph=*/true)[0];
    });
    EXPECT_TRUE(has(ops, "aten.where.self") && has(ops, "aten._linalg_svd"));
  }
}

/// The gradient of a leaf is switched off after a view of it was written.
void views_whose_base_may_give_up_its_gradient() {
  const auto trace = run_trace({leaf({4})}, [](const Tensors& in) {
    const T view = in[0].view({2, 2}).t();
    {
      const torch::NoGradGuard no_grad;
      view.mul_(2);
    }
    in[0].requires_grad_(false);
    EXPECT_TRUE(leads_nowhere(view));
    return Tensors{view * 2};
  });
  EXPECT_TRUE(trace->results().tensors[0].requires_grad()) << "as in eager";
  run_trace({leaf({4})}, [](const Tensors& in) {
    const T view = in[0].view({2, 2}).t();
    {
      const torch::NoGradGuard no_grad;
      view.mul_(2);
    }
    EXPECT_FALSE(leads_nowhere(view));
    return Tensors{};
  });
}

void copies_in_inference_mode() {
  const T x = torch::ones({2}, at::kComplexFloat);
  const auto two_rows = [](const T& of) { return at::atleast_2d(of.conj()); };
  EXPECT_FALSE(has(recorded(x, two_rows), "aten.clone"));
  const auto in_region = [&](const T& of) {
    const c10::InferenceMode region;
    return two_rows(of);
  };
  EXPECT_TRUE(has(recorded(x, in_region), "aten.clone"));
  const c10::InferenceMode region;
  EXPECT_TRUE(has(recorded(x, two_rows), "aten.clone"));
  EXPECT_FALSE(
      has(recorded(x, [](const T& of) { return of.conj().reshape({1, 2}); }), "aten.clone"));
}

void count_from_the_memory_that_came_in() {
  const auto trace = run_trace({torch::ones({10}).narrow(0, 4, 3)}, [](const Tensors& in) {
    const T before = in[0].as_strided({2}, {1}, 5);
    in[0].mul_(2);
    return Tensors{before * 1, in[0].as_strided({2}, {1}, 5) * 1};
  });
  const std::string text = ir::print(trace->recording().graph());
  EXPECT_EQ(text.find("[2], [1], 5)", text.find("aten.mul")), std::string::npos) << text;
  EXPECT_NE(text.find("[2], [1], 1)"), std::string::npos) << text;
}

void views_in_inference_mode() {
  const Ops ops = recorded(torch::ones({4}), [](const T& x) {
    const c10::InferenceMode mode;
    return x.view({2, 2});
  });
  EXPECT_TRUE(has(ops, "aten.view"));
}

void views_of_inference_tensors() {
  T x;
  {
    const c10::InferenceMode region;
    x = torch::ones({2, 3});
  }
  recorded(x, [](const T& inside) {
    EXPECT_TRUE(inside.is_inference());
    EXPECT_TRUE(inside.view({3, 2}).is_inference());
    EXPECT_TRUE(inside.t()[0].is_inference());
    EXPECT_TRUE(inside.reshape({-1}).is_inference());
    for (const T& part : inside.chunk(2, 1)) EXPECT_TRUE(part.is_inference());
    EXPECT_FALSE(inside.t().reshape({-1}).is_inference()) << "a copy";
    EXPECT_FALSE((inside * 2).view({-1}).is_inference());
    return inside.view({-1}) * 2;
  });
}

void fill_the_diagonal_as_a_view() {
  const Ops ops = recorded(torch::ones({2, 3}), [](const T& x) {
    T turned = x.t();
    return turned.fill_diagonal_(2);
  });
  EXPECT_TRUE(has(ops, "aten.diagonal") && !has(ops, "aten.fill_diagonal"));
}

// ---- functionalization ----

void running_statistics() {
  const T mean = torch::zeros({3}), var = torch::ones({3});
  const Ops ops = recorded(torch::rand({2, 3}), [&](const T& x) {
    return std::get<0>(at::native_batch_norm(x, {}, {}, mean, var, true, 0.1, 1e-5));
  });
  EXPECT_TRUE(has(ops, "aten._native_batch_norm_legit_functional"));
}

void the_users_op_in_its_functional_form() {
  const std::string text = error_text<UnsupportedError>([] {
    recorded(leaf({2}), [](const T& x) {
      const T y = x * 2;
      fill(y, 3);
      return y;
    });
  });
  EXPECT_NE(text.find("writes an argument, in grad mode and with an operand that requires grad"),
            std::string::npos)
      << text;
}

// ---- before recording ----

void decompose() {
  BelowFunctionalization below;
  const T x = below.traced({2, 2});
  at::matmul(x, x);
  at::silu_backward(x, x);  // a composite with a CPU kernel: what eager runs
  EXPECT_EQ(below.ops(), (Ops{"aten.mm", "aten.silu_backward"}));
}

void a_mask_as_an_index() {
  BelowFunctionalization below;
  below.recording().draw_data_sizes(0);
  const T x = below.traced({4, 2});
  const T taken = at::index(x, {at::gt(below.traced({4}), 0)});
  EXPECT_EQ(taken.dim(), 2);
  EXPECT_EQ(below.ops(),
            (Ops{"aten.gt.Scalar", "aten.nonzero", "aten.select.int", "aten.index.Tensor"}));
}

void a_view_of_what_is_written() {
  BelowFunctionalization below;
  const T x = below.traced({3, 2}, {1, 3});
  EXPECT_NE(libtorch_error([&] { x.view({6}); }), "(no error)");
  below.recording().set_writing(true);
  EXPECT_EQ(x.view({6}).size(0), 6);
  EXPECT_EQ(below.ops(), (Ops{"aten.clone", "aten.view"}));
}

// ---- recording ----

void no_part_of_the_program() {
  const T real = torch::ones({2});
  T old;
  {
    BelowFunctionalization below;
    old = below.traced({2});
    EXPECT_TRUE(at::add(real, 1).equal(at::add(real, real)));
    EXPECT_EQ(below.ops(), Ops{});
  }
  const std::string text = error_text<UserError>([&] { at::relu(old); });
  EXPECT_NE(text.find("was given a tensor that belongs to a trace which is over"),
            std::string::npos)
      << text;
}

void factories_asked_for_shapes() {
  BelowFunctionalization below;
  EXPECT_TRUE(at::zeros({2}, at::TensorOptions(at::kMeta)).is_meta());
  EXPECT_EQ(below.ops(), Ops{});
}

void no_look_for_nan() {
  const torch::autograd::DetectAnomalyGuard anomaly(/*check_nan=*/true);
  const Ops ops = recorded(
      leaf({2}), [](const T& x) { return torch::autograd::grad({(x * x).sum()}, {x})[0]; });
  EXPECT_FALSE(has(ops, "aten._local_scalar_dense"));
}

void refuse_writes() {
  BelowFunctionalization below;
  const T x = below.traced({2});
  const std::string text = error_text<UnsupportedError>([&] { x.add_(1); });
  EXPECT_NE(text.find("writes its arguments and has no functional form"), std::string::npos)
      << text;
}

void compare() {
  recorded(torch::ones({2}), [](const T& x) {
    EXPECT_TRUE(at::equal(x, x));
    EXPECT_FALSE(at::equal(x, torch::ones({3})));
    return x;
  });
}

void refuse_casts_inside() {
  const std::string text = error_text<UnsupportedError>([] {
    const libtorch::ThreadStateScope autocast(
        libtorch::ThreadState::now().with_autocast({.cpu = true, .cpu_dtype = at::kBFloat16}));
    recorded(torch::ones({2, 3}),
             [](const T& x) { return at::bilinear(x, x, torch::ones({4, 3, 3})); });
  });
  EXPECT_EQ(text.rfind("trace: autocast reaches into the kernel of aten._trilinear", 0), 0u)
      << text;
}

void zeros_stay_zeros() {
  BelowFunctionalization below;
  const T x = below.traced({});
  const T zeros = at::_efficientzerotensor({}, x.options());
  EXPECT_EQ(as_traced(at::mul(zeros, 2.5))->value(), as_traced(zeros)->value());
  EXPECT_NE(as_traced(at::mul(x, 2.5))->value(), as_traced(x)->value());
}

void shares_of_a_gradient() {
  for (const auto& [of, is_formula] : {std::pair{+[](const T& x) { return x.max(); }, true},
                                       {+[](const T& x) { return (x > 0) * x.sum(); }, false}}) {
    const Ops ops = recorded(leaf({3}), [&](const T& x) {
      return torch::autograd::grad({of(x).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    });
    EXPECT_EQ(has(ops, "aten.masked_fill.Tensor"), is_formula);
    EXPECT_EQ(has(ops, "aten.mul.Tensor"), !is_formula);
  }
}

void note_a_product_in_place() {
  BelowFunctionalization below;
  const T shape = at::ones({2}, at::kMeta);
  shape * 1.5;
  EXPECT_FALSE(below.recording().multiplies_in_place());
  shape.mul_(1.5);
  EXPECT_TRUE(below.recording().multiplies_in_place());
}

/// The graph of a function of one tensor, in bfloat16.
std::string text_in_bfloat16(const std::function<void(const T&)>& fn) {
  const auto trace = run_trace({torch::rand({2}).to(at::kBFloat16)}, [&](const Tensors& in) {
    fn(in[0]);
    return Tensors{};
  });
  return ir::print(trace->recording().graph());
}

bool mentions(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

void round_the_number_of_a_product_in_place() {
  EXPECT_TRUE(mentions(text_in_bfloat16([](const T& x) { x.mul_(1.1); }), ", 1.1015625)"));
  EXPECT_TRUE(mentions(text_in_bfloat16([](const T& x) { x.mul(1.1); }), ", 1.1)"));
  EXPECT_TRUE(mentions(text_in_bfloat16([](const T& x) { x.clone().mul_(257); }), ", 256.0)"))
      << text_in_bfloat16([](const T& x) { x.clone().mul_(257); });
}

void round_the_numbers_of_products_in_place() {
  const std::string text = text_in_bfloat16([](const T& x) {
    at::_foreach_mul_({x, x.to(at::kFloat)}, std::vector<at::Scalar>{1.1, 1.1});
  });
  EXPECT_TRUE(mentions(text, ", 1.1015625)")) << text;
  EXPECT_TRUE(mentions(text, ", 1.1)")) << text;
}

void an_index_of_nothing() {
  const auto add = [](const T& x) {
    return x.clone().index_add_(0, at::empty({0}, at::kLong), at::ones({0, 2}));
  };
  EXPECT_TRUE(has(recorded(torch::ones({3, 2}), add), "aten.index_add"));
  EXPECT_TRUE(has(recorded(torch::ones({0, 2}), add), "aten.index_add"));
}

void draw_into_gaps() {
  const auto draw = [](int64_t columns) {
    return recorded(torch::ones({4, 7}), [=](const T& x) {
      const T whole = x.clone();
      whole.narrow(1, 0, columns).normal_();
      return whole;
    });
  };
  EXPECT_TRUE(has(draw(4), "aten.t"));
  EXPECT_FALSE(has(draw(7), "aten.t"));  // no gaps
  EXPECT_FALSE(has(draw(3), "aten.t"));  // fewer than are drawn at once
}

void refuse_writes_to_one_place() {
  BelowFunctionalization below;
  const T memory = below.traced({12}), rows = below.traced({2, 4}), apart = below.traced({3, 4});
  EXPECT_NO_THROW(at::as_strided_scatter(memory, apart, {3, 4}, {1, 3}, 0));
  for (const std::vector<int64_t>& strides : {std::vector<int64_t>{0, 1}, {1, 1}, {2, 1}}) {
    EXPECT_NE(error_text<UnsupportedError>([&] {
                at::as_strided_scatter(memory, rows, {2, 4}, strides, 0);
              }).find("several of its elements lie at one place"),
              std::string::npos);
  }
  EXPECT_NO_THROW(at::as_strided_scatter(memory, rows, {2, 4}, {4, 1}, 0));
}

void draw_in_the_order_of_memory() {
  EXPECT_TRUE(has(recorded(channels_last(), [](const T& x) { return x.clone().bernoulli_(0.5); }),
                  "tandem.bernoulli_like"));
}

const std::map<std::string_view, void (*)()>& tests() {
  static const std::map<std::string_view, void (*)()> all{
      {"open up an op of the user", open_up_an_op_of_the_user},
      {"check the classes in the graph", check_the_classes_in_the_graph},
      {"refuse unknown classes", refuse_unknown_classes},
      {"renew histories of views", renew_histories_of_views},
      {"hand on a number", hand_on_a_number},
      {"memory of the host", memory_of_the_host},
      {"give back", give_back},
      {"resize memory of the host", resize_memory_of_the_host},
      {"lift", lift_what_is_closed_over},
      {"draw in order", draw_in_order},
      {"keep a marked op whole", keep_a_marked_op_whole},
      {"keep within the memory", keep_within_the_memory},
      {"leave out an offset", leave_out_an_offset},
      {"follow writes of the user's op", follow_writes_of_the_users_op},
      {"refuse written numbers", refuse_written_numbers},
      {"check what is written", check_what_is_written},
      {"every element in its place", every_element_in_its_place},
      {"check a mask", check_a_mask},
      {"check what is read and written", check_what_is_read_and_written},
      {"check what is filled", check_what_is_filled},
      {"count writes to lists", count_writes_to_lists},
      {"written memory stays lazy or not", written_memory_stays_lazy_or_not},
      {"note a write", note_a_write},
      {"keep strides", keep_strides},
      {"both formulas of a determinant", both_formulas_of_a_determinant},
      {"views whose base may give up its gradient", views_whose_base_may_give_up_its_gradient},
      {"copies in inference mode", copies_in_inference_mode},
      {"views in inference mode", views_in_inference_mode},
      {"views of inference tensors", views_of_inference_tensors},
      {"fill the diagonal as a view", fill_the_diagonal_as_a_view},
      {"running statistics", running_statistics},
      {"the user's op in its functional form", the_users_op_in_its_functional_form},
      {"decompose", decompose},
      {"a mask as an index", a_mask_as_an_index},
      {"a view of what is written", a_view_of_what_is_written},
      {"count from the memory that came in", count_from_the_memory_that_came_in},
      {"real and complex numbers within a write", real_and_complex_numbers_within_a_write},
      {"note a product in place", note_a_product_in_place},
      {"round the number of a product in place", round_the_number_of_a_product_in_place},
      {"round the numbers of products in place", round_the_numbers_of_products_in_place},
      {"shares of a gradient", shares_of_a_gradient},
      {"an index of nothing", an_index_of_nothing},
      {"draw into gaps", draw_into_gaps},
      {"no part of the program", no_part_of_the_program},
      {"factories asked for shapes", factories_asked_for_shapes},
      {"no look for NaN", no_look_for_nan},
      {"refuse writes", refuse_writes},
      {"refuse writes to one place", refuse_writes_to_one_place},
      {"compare", compare},
      {"refuse casts inside", refuse_casts_inside},
      {"zeros stay zeros", zeros_stay_zeros},
      {"draw in the order of memory", draw_in_the_order_of_memory},
  };
  return all;
}

class Row : public ::testing::TestWithParam<const Interception*> {};

TEST_P(Row, DoesWhatItIsThereFor) {
  const auto test = tests().find(GetParam()->name);
  ASSERT_NE(test, tests().end()) << "no test of this row";
  test->second();
}

std::vector<const Interception*> rows() {
  std::vector<const Interception*> all;
  for (const Interception& row : interceptions()) all.push_back(&row);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Interceptions, Row, ::testing::ValuesIn(rows()), [](const auto& info) {
  std::string name(info.param->name);
  for (char& letter : name)
    letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name;
});

TEST(Interceptions, AreInTheOrderOfTheStopsAndNamedOnce) {
  EXPECT_TRUE(std::ranges::is_sorted(interceptions(), {}, &Interception::stop));
  EXPECT_EQ(tests().size(), interceptions().size());
  for (const Interception& row : interceptions()) {
    EXPECT_TRUE(row.instead || row.before || row.after) << row.name;
    EXPECT_FALSE(row.instead && (row.before || row.after)) << row.name;
    EXPECT_FALSE(row.why.empty()) << row.name;
    for (std::string_view op : op_names(row)) {
      const std::string name(op);
      const size_t dot = std::min(name.find('.'), name.size());
      EXPECT_TRUE(c10::Dispatcher::singleton().findSchema(
          {name.substr(0, dot), name.substr(std::min(dot + 1, name.size()))}))
          << "libtorch has no op " << name;
    }
  }
}

// An op without rows of its own meets those of every op only.
TEST(Interceptions, AnOrdinaryOpMeetsFewRows) {
  const auto relu = c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", "");
  const OpRows rows(relu);
  EXPECT_EQ(rows.at(Stop::FirstSight).size(), 0u);
  EXPECT_EQ(rows.at(Stop::Lifting).size(), 3u);
  EXPECT_EQ(rows.at(Stop::Functionalization).size(), 0u);
  EXPECT_EQ(rows.at(Stop::BeforeRecording).size(), 0u);
  EXPECT_EQ(rows.at(Stop::Recording).size(), 1u);
}

// `__and__` ends like an in-place op; its result may be larger than its operand.
TEST(Interceptions, AWrittenInputStaysWhereItIs) {
  run_trace({torch::ones({10}).narrow(0, 4, 3)}, [](const Tensors& in) {
    in[0].mul_(2);
    EXPECT_EQ(in[0].storage_offset(), 4);
    in[0].view({3, 1}).mul_(2);
    const T read = in[0] * 2;
    EXPECT_EQ(in[0].storage_offset(), 4);
    EXPECT_EQ(read.storage_offset(), 0);
    return Tensors{};
  });
}

TEST(Interceptions, AnOperatorWithUnderscoresIsNotInPlace) {
  const T row = torch::ones({1, 2}, at::kBool), square = torch::ones({2, 2}, at::kBool);
  EXPECT_EQ(recorded(row, [&](const T& x) { return x.__and__(square); }),
            Ops{"aten.bitwise_and.Tensor"});
}

// ---- the walk ----

std::string walked;

std::any note_before(BoxedCall&) {
  walked += "before ";
  return 7;
}
void note_after(BoxedCall&, std::any& left) {
  walked += "after" + std::to_string(std::any_cast<int>(left)) + " ";
}
bool answer(BoxedCall&) {
  walked += "instead ";
  return true;
}
bool pass_by(BoxedCall&) { return false; }

TEST(Interceptions, RowsBelowAnAnswerSeeNothingAndRowsAboveItFinish) {
  const auto relu = c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", "");
  torch::jit::Stack stack{torch::ones({1})};
  BoxedCall call(relu, stack, nullptr);
  const Interception around{.before = note_before, .after = note_after};
  const Interception answers{.instead = answer}, passes{.instead = pass_by};
  const auto walk = [&](std::vector<const Interception*> rows) {
    walked.clear();
    pass(rows, call, [](BoxedCall&) { walked += "call "; });
    return walked;
  };
  EXPECT_EQ(walk({&around, &passes}), "before call after7 ");
  EXPECT_EQ(walk({&around, &answers, &around}), "before instead after7 ");
  EXPECT_EQ(walk({}), "call ");
}

// ---- the page ----

std::string page_text() {
  static constexpr const char* kStopNames[] = {"first sight", "lifting", "functionalization",
                                               "before recording", "recording"};
  std::ostringstream out;
  out << "| stop | row | ops | does | why |\n| --- | --- | --- | --- | --- |\n";
  for (const Interception& row : interceptions()) {
    std::string ops(row.ops);
    if (row.fits == nullptr) {
      ops.clear();
      for (std::string_view name : op_names(row))
        ops += (ops.empty() ? "`" : ", `") + std::string(name) + "`";
    }
    out << "| " << kStopNames[static_cast<size_t>(row.stop)] << " | " << row.name << " | " << ops
        << " | "
        << (row.instead               ? "instead"
            : row.before && row.after ? "before, after"
            : row.before              ? "before"
                                      : "after")
        << " | " << row.why << " |\n";
  }
  return out.str();
}

TEST(Interceptions, ThePageListsTheRows) {
  const std::string path = std::string(test::kTestsDir) + "/../docs/reference/interceptions.md";
  std::ostringstream read;
  read << std::ifstream(path).rdbuf();
  const std::string page = read.str(), table = page_text();
  const size_t at = page.find("| stop | row |");
  ASSERT_NE(at, std::string::npos) << path;
  if (std::getenv("TANDEM_UPDATE_GOLDEN") != nullptr)
    std::ofstream(path) << page.substr(0, at) << table;
  else
    EXPECT_EQ(page.substr(at), table) << "TANDEM_UPDATE_GOLDEN=1 writes the page";
}

}  // namespace
}  // namespace tandem::tracing
