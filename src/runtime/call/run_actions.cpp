#include "runtime/call/run_actions.h"

#include "base/error.h"
#include "libtorch/version.h"
#include "ops/memory/view_replay.h"
#include "runtime/backward/call_node.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;
using autograd::Edge;
using NodePtr = decltype(Edge::function);
using ir::CallTensor;

/// A node between a rewritten view and the node of its new data. libtorch asks the history of a
/// written view for the gradient of what the view showed before. It is zeros, since all of that was
/// overwritten. An undefined gradient would drop the gradient of the whole base.
struct OverwrittenView : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    return {gradients[0].defined() ? at::zeros_like(gradients[0]) : at::Tensor(), gradients[0]};
  }
  std::string name() const override { return "TandemOverwrittenView"; }
};

/// Hands on the gradient of one result.
struct ViewResult : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
  std::string name() const override { return "TandemBackward"; }
};

/// Another handle on the same memory and version counter, which autograd knows nothing of.
at::Tensor handle_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(),
                                                 /*allow_tensor_metadata_change=*/false));
}

/// Writes below the key that counts versions: the counter then moves by exactly what eager's would.
void copy_below_autograd(const at::Tensor& to, const at::Tensor& from) {
  at::AutoDispatchBelowADInplaceOrView below;
  // Of an expanded member of a group: its elements lie on top of each other, and hold the same.
  at::Tensor target = to, source = from;
  for (int64_t i = 0; i < to.dim(); ++i) {
    if (to.stride(i) != 0 || to.size(i) < 2) continue;
    target = target.narrow(i, 0, 1);
    source = source.narrow(i, 0, 1);
  }
  target.copy_(source);
}

void move_version(const at::Tensor& tensor, int64_t by) {
  if (tensor.is_inference()) return;
  for (int64_t n = 0; n < by; ++n) tensor.unsafeGetTensorImpl()->bump_version();
}

/// What the signature says of the version counter is all that moves it, whatever libtorch counts on
/// the way.
template <class Change>
void without_counting(const at::Tensor& tensor, const Change& change) {
  if (tensor.is_inference()) return change();
  const uint32_t version = tensor._version();
  change();
  c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
  counter.set_version(version);
}

/// A view makes a new grad_fn when its version has moved since it was last asked for one. In a
/// group the version moves once, for all writes, and members are asked in between.
void renew_when_asked(const at::Tensor& view) {
  if (!view.is_view() || view.is_inference()) return;
  auto* meta = autograd::impl::get_view_autograd_meta(view);
  if (meta != nullptr && meta->has_bw_view()) meta->set_attr_version(view._version() - 1);
}

/// Stands for a result that is not there yet.
at::Tensor sample_of(const ir::TensorType& type) {
  return at::empty({}, at::TensorOptions().dtype(type.dtype).device(type.device))
      .expand(type.static_sizes());
}

class Runner {
 public:
  Runner(const std::shared_ptr<const EntryState>& entry, const CallTensors& tensors,
         std::unique_ptr<Snapshot> snapshot)
      : entry_(entry),
        signature_(entry->signature()),
        plan_(entry->plan()),
        tensors_(tensors),
        bases_(signature_.bases.size()),
        edges_(plan_.taken_targets),
        snapshot_(std::move(snapshot)) {}

  /// The actions of a call that rewrites nothing come in runs of one kind, always in this order,
  /// and a loop goes through each. A jump through a table for each action would cost more than most
  /// of them do, where the processor does not foresee it: a fifth of a small call on a virtual
  /// machine.
  void run() {
    using enum Action::Do;
    const Action* next = plan_.actions.data();
    const Action* const end = next + plan_.actions.size();
    const auto while_it_is = [&](Action::Do what, const auto& act) {
      for (; next != end && next->what == what; ++next) act(*next);
    };
    while (next != end) {
      const Action* const first = next;
      while_it_is(Take, [&](const Action& action) { at(action.at) = std::move(output(action)); });
      while_it_is(MakeNodes, [&](const Action&) { make_nodes(); });
      while_it_is(AddSlot, [&](const Action& action) { add_slot(action); });
      while_it_is(TakeEdge, [&](const Action& action) {
        const auto target = static_cast<size_t>(action.number);
        edges_[target] = autograd::impl::gradient_edge(at(plan_.targets[target].tensor));
      });
      while_it_is(Connect, [&](const Action& action) {
        node(action.part).connect({edges_.data(), edges_.size()}, tensors_.inputs);
      });
      while_it_is(SetHistory, [&](const Action& action) {
        autograd::impl::set_gradient_edge(at(action.at), slot_of(action));
      });
      while_it_is(Save, [&](const Action&) { save(); });
      if (next == first) perform(*next++);
    }
  }

 private:
  void perform(const Action& action) {
    using enum Action::Do;
    switch (action.what) {
      case Take:
      case TakeEdge:
      case MakeNodes:
      case Connect:
      case AddSlot:
      case SetHistory:
      case Save:
        break;  // see run()

      case HoldInput:
        output(action) = handle_of(at(action.at));
        return;

      case Same:
        at(action.at) = at(action.source);
        return;
      case ReplayViews:
        return replay_views(plan_.replays[static_cast<size_t>(action.number)]);

      case RequireGrad:
        at(action.at).set_requires_grad(true);
        return;
      case StopGrad:
        at(action.at).set_requires_grad(false);
        return;
      case Detach:
        return without_counting(at(action.at), [&] { at(action.at).detach_(); });

      case Attach:
        return attach(at(action.at), Edge(nodes_[action.part], 0));
      case SetViewHistory: {
        // A view that may be written has to be the only result of its node.
        auto only = libtorch::make_node<ViewResult>();
        only->add_next_edge(slot_of(action));
        only->add_input_metadata(at(action.at));
        return autograd::impl::set_gradient_edge(at(action.at), Edge(std::move(only), 0));
      }
      case MarkCustomView:
        if (at(action.at).is_view()) {
          autograd::impl::get_view_autograd_meta(at(action.at))
              ->set_creation_meta(autograd::CreationMeta::IN_CUSTOM_FUNCTION);
        }
        return;

      case Write:
        return copy_below_autograd(at(action.at), output(action));
      case ReplaceStorage:
      case SetStorage:
      case ResizeStorage:
      case Grow:
      case Restride:
      case RestrideAsAView:
        return without_counting(at(action.at), [&] { change_geometry(action, at(action.at)); });
      case MoveVersion:
        return move_version(at(action.at), action.number);
      case RenewHistory:
        return renew_when_asked(at(action.at));

      case AskHistory:
        // In eager it has one by now; is_leaf() does not ask for it. Not in inference mode, where
        // libtorch cannot make it.
        if (at(action.at).is_view() && !c10::InferenceMode::is_enabled()) at(action.at).grad_fn();
        return;
      case KeepHistory:
        return node(action.part).keep_history(at(action.at));
      case SetGradMode:
        // Last: what is left to do for the call does not depend on it, the caller does.
        return c10::GradMode::set_enabled(action.number != 0);
    }
    TANDEM_CHECK(false, "call", "no such action");
  }

  at::Tensor& output(const Action& action) const {
    return tensors_.outputs[static_cast<size_t>(action.number)];
  }

  at::Tensor& at(const CallTensor& tensor) {
    const auto index = static_cast<size_t>(tensor.index);
    if (tensor.kind == CallTensor::Kind::Output) return tensors_.results[index];
    switch (tensor.kind) {
      case CallTensor::Kind::Input:
        return tensors_.inputs[index];
      case CallTensor::Kind::Group:
        return tensors_.inputs[signature_.inputs.size() + index];
      case CallTensor::Kind::Base:
        return bases_[index];
      case CallTensor::Kind::Output:
        break;  // above: in a plain call nothing else is asked for
    }
    TANDEM_CHECK(false, "call", "no such tensor");
  }

  CallNode& node(size_t part) const { return static_cast<CallNode&>(*nodes_[part]); }

  void make_nodes() {
    if (plan_.parts.size() == 1) {
      nodes_.push_back(libtorch::make_node<CallNode>(entry_));
      return;
    }
    const auto kept = std::make_shared<KeptValues>();
    for (size_t part = 0; part < plan_.parts.size(); ++part)
      nodes_.push_back(libtorch::make_node<CallNode>(entry_, part, kept));
  }

  void add_slot(const Action& action) {
    autograd::Node& node = *nodes_[action.part];
    if (action.number >= 0) {
      node.add_input_metadata(output(action));
    } else if (at(action.at).defined()) {
      node.add_input_metadata(at(action.at));
    } else {
      node.add_input_metadata(
          sample_of(*signature_.outputs[static_cast<size_t>(action.at.index)].type));
    }
  }

  Edge slot_of(const Action& action) {
    if (action.number < 0) return dead_end_of(at(action.at));
    return Edge(nodes_[action.part], static_cast<uint32_t>(action.number));
  }

  static void attach(const at::Tensor& tensor, Edge to) {
    if (tensor.is_view()) {
      auto between = libtorch::make_node<OverwrittenView>();
      between->add_next_edge(tensor.requires_grad() ? autograd::impl::gradient_edge(tensor)
                                                    : Edge());
      between->add_next_edge(std::move(to));
      between->add_input_metadata(tensor);
      to = Edge(std::move(between), 0);
    }
    autograd::impl::rebase_history(tensor, std::move(to));
  }

  void change_geometry(const Action& action, const at::Tensor& input) {
    const ir::InputFacts& facts = signature_.inputs[static_cast<size_t>(action.at.index)];
    if (action.what == Action::Do::ResizeStorage) {
      at::native::resize_bytes_cpu(input.storage().unsafeGetStorageImpl(),
                                   static_cast<size_t>(facts.bytes_after));
      return;
    }
    if (action.what == Action::Do::ReplaceStorage) {
      const at::Tensor& data = output(action);
      at::AutoDispatchBelowADInplaceOrView below;
      input.set_(data.storage(), data.storage_offset(), data.sizes(), data.strides());
      return;
    }
    const std::vector<int64_t> sizes = facts.type_after->static_sizes();
    const std::vector<int64_t> strides = facts.type_after->static_strides();
    if (action.what == Action::Do::RestrideAsAView) {
      at::AutoGradMode grad_mode(true);
      input.as_strided_(sizes, strides, facts.offset_after);
      return;
    }
    at::AutoDispatchBelowADInplaceOrView below;
    if (action.what == Action::Do::Grow) {
      input.resize_(sizes);
    } else if (action.what == Action::Do::SetStorage) {
      const at::Tensor& source = tensors_.inputs[static_cast<size_t>(facts.set_to)];
      input.set_(source.storage(), facts.offset_after, sizes, strides);
    } else {
      input.as_strided_(sizes, strides, facts.offset_after);
    }
  }

  void replay_views(const CallPlan::Replay& planned) {
    const ir::ViewReplay& replay = signature_.replays[planned.replay];
    const at::Tensor& source = at(replay.source);
    std::vector<at::Tensor> views = ops::replay_views(
        replay, replay.detached ? source.variable_data() : source, planned.grad_modes);
    for (size_t i : planned.made) {
      const int64_t result = replay.graph.outputs()[i].role.index;
      tensors_.results[static_cast<size_t>(result)] = std::move(views[i]);
    }
  }

  void save() {
    KeptValues& kept = node(0).kept();
    if (snapshot_) kept.keep(std::move(snapshot_));
    kept.save(*entry_, tensors_.inputs.first(signature_.inputs.size()), tensors_.outputs,
              tensors_.results, {bases_.data(), bases_.size()});
  }

  const std::shared_ptr<const EntryState>& entry_;
  const ir::Signature& signature_;
  const CallPlan& plan_;
  const CallTensors& tensors_;
  // None, or one or two, in nearly every call: in line.
  c10::SmallVector<at::Tensor, 2> bases_;  // by base of the signature
  c10::SmallVector<NodePtr, 2> nodes_;     // by part
  c10::SmallVector<Edge, 4> edges_;        // by taken target of the plan
  std::unique_ptr<Snapshot> snapshot_;
};

}  // namespace

void run_actions(const std::shared_ptr<const EntryState>& entry, const CallTensors& tensors,
                 std::unique_ptr<Snapshot> snapshot) {
  Runner(entry, tensors, std::move(snapshot)).run();
}

}  // namespace tandem::runtime
