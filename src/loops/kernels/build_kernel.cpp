#include "loops/kernels/build_kernel.h"

#include "base/error.h"
#include "loops/kernels/loop_order.h"
#include "shapes/reach.h"

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tandem::loops {
namespace {

using Loops = IndexSpace::Loops;

class KernelBuilder {
 public:
  KernelBuilder(const ir::Graph& graph, const FusionPlan& plan, const KernelGroup& group,
                const Views& views, const std::vector<std::string>& names, const Target& target)
      : graph_(graph),
        plan_(plan),
        group_(group),
        views_(views),
        names_(names),
        target_(target),
        loops_(group.space.leaves()),
        body_(reduced_flags()) {
    for (size_t i = 0; i < loops_.size(); ++i) loop_at_.emplace(loops_[i], static_cast<int32_t>(i));
    for (const Member& member : group.members) {
      for (ir::ValueId id : graph.node(member.node).results()) {
        if (id != ir::kNoValue) made_.emplace(id, &member);
      }
      last_stage_ = std::max(last_stage_, member.stage);
      if (member.rule->kind == RuleKind::Reduction)
        last_stage_ = std::max(last_stage_, member.stage + 1);
    }
    find_demands();
  }

  BuiltKernel run() && {
    for (int32_t stage = 0; stage <= last_stage_; ++stage) {
      stage_ = stage;
      body_.begin_stage(stage, false);
      for (const Member& member : group_.members) emit_outer(member);
      if (!group_.has_reduction) continue;
      body_.begin_stage(stage, true);
      here_.clear();
      for (const Member& member : group_.members) emit_inner(member);
    }
    return finish();
  }

 private:
  std::vector<bool> reduced_flags() const {
    std::vector<bool> flags;
    for (int32_t loop : loops_) flags.push_back(group_.space.reduced(loop));
    return flags;
  }

  // ---- who needs what, and when ----
  bool escapes(ir::ValueId id) const {
    const ir::Value& value = graph_.value(id);
    if (value.output_uses() > 0) return true;
    for (ir::NodeId user : value.users()) {
      const ir::Node& node = graph_.node(user);
      if (plan_.group_of[static_cast<size_t>(user)] >= 0) {
        if (!is_member(user)) return true;
        continue;
      }
      if (!views_.is_folded(node)) return true;
      for (ir::ValueId shown : node.results()) {
        if (escapes(shown)) return true;
      }
    }
    return false;
  }
  bool is_member(ir::NodeId id) const {
    return std::ranges::any_of(group_.members,
                               [&](const Member& member) { return member.node == id; });
  }

  void demand(ir::ValueId id, uint64_t stages) {
    const ir::ValueId base = views_.behind(id).value;
    if (made_.contains(base)) demands_[base] |= stages;
  }

  // Readers come after producers: one walk from the end.
  void find_demands() {
    TANDEM_CHECK(last_stage_ < 60, "lower", "a kernel of ", last_stage_, " stages");
    int64_t row = 1;
    for (int32_t loop : loops_) row *= group_.space.reduced(loop) ? group_.space.extent(loop) : 1;
    for (auto member = group_.members.rbegin(); member != group_.members.rend(); ++member) {
      const ir::Node& node = graph_.node(member->node);
      uint64_t stages = 0;
      for (ir::ValueId id : node.results()) {
        if (id == ir::kNoValue) continue;
        uint64_t& wanted = demands_[id];
        if (escapes(id)) {
          stored_.insert(id);
          wanted |= uint64_t{1} << first_stage(*member);
        }
        if (wanted == 0) continue;
        const bool repeats = member->inner && member->rule->kind != RuleKind::Reduction;
        if (!repeats) {
          stages |= uint64_t{1} << member->stage;
        } else if (stored_.contains(id)) {
          stages |= uint64_t{1} << member->stage;
        } else if (std::popcount(wanted) > 1 && member->rule->weight == Weight::Heavy &&
                   row * 8 <= target_.limits.kept_row_bytes) {
          kept_row_.insert(id);
          stages |= wanted & (~wanted + 1);
        } else {
          stages |= wanted;
        }
      }
      if (stages == 0) continue;
      for (const ir::Operand& operand : node.operands())
        operand.for_each_value([&](ir::ValueId id) { demand(id, stages); });
    }
  }
  /// When a result is there to be stored.
  static int32_t first_stage(const Member& member) {
    return member.rule->kind == RuleKind::Reduction ? member.stage + 1 : member.stage;
  }

  // ---- the parts of a stage ----
  void emit_outer(const Member& member) {
    const ir::Node& node = graph_.node(member.node);
    if (member.rule->kind == RuleKind::Reduction) {
      if (member.stage + 1 != stage_) return;
      for (size_t i = 0; i < node.results().size(); ++i) {
        const ir::ValueId id = node.results()[i];
        if (demands_[id] == 0) continue;
        NodeEmitter emitter(*this, member);
        lasting_[id] = member.rule->finish(emitter, reduced_.at(id), i);
        store_if_wanted(id, lasting_[id]);
      }
      return;
    }
    if (member.inner || member.stage != stage_) return;
    const ir::ValueId id = node.results()[0];
    if (demands_[id] == 0) return;
    NodeEmitter emitter(*this, member);
    lasting_[id] = member.rule->emit(emitter);
    store_if_wanted(id, lasting_[id]);
  }

  void emit_inner(const Member& member) {
    if (!member.inner) return;
    const ir::Node& node = graph_.node(member.node);
    if (member.rule->kind != RuleKind::Reduction) {
      const ir::ValueId id = node.results()[0];
      if (member.stage == stage_ && stored_.contains(id)) evaluate(id);
      return;
    }
    if (member.stage != stage_) return;
    for (size_t i = 0; i < node.results().size(); ++i) {
      const ir::ValueId id = node.results()[i];
      if (demands_[id] == 0) continue;
      NodeEmitter emitter(*this, member);
      reduced_[id] = member.rule->reduce(emitter, emitter.operand(0), i);
    }
  }

  void store_if_wanted(ir::ValueId id, Val value) {
    if (stored_.contains(id)) body_.store(access(id, group_.loops.at(id)), value);
  }

  /// The element of a member at the current index.
  Val evaluate(ir::ValueId id) {
    if (const auto it = lasting_.find(id); it != lasting_.end()) return it->second;
    if (const auto it = here_.find(id); it != here_.end()) return it->second;
    const Member& member = *made_.at(id);
    TANDEM_CHECK(member.rule->kind != RuleKind::Reduction && member.inner, "lower",
                 "a value is read before the phase that makes it");
    const ir::TensorType& type = *graph_.value(id).tensor_type();
    Val value;
    if (stored_.contains(id) && member.stage < stage_) {
      value = body_.load(access(id, group_.loops.at(id)), type.dtype);
    } else if (const auto row = rows_.find(id); row != rows_.end()) {
      value = body_.load(row->second, type.dtype);
    } else {
      NodeEmitter emitter(*this, member);
      value = member.rule->emit(emitter);
      if (stored_.contains(id)) {
        body_.store(access(id, group_.loops.at(id)), value);
      } else if (kept_row_.contains(id)) {
        const Access row_access = scratch_row(id, type.dtype);
        body_.store(row_access, value);
        rows_.emplace(id, row_access);
      }
    }
    here_[id] = value;
    return value;
  }

  // ---- memory ----
  int32_t buffer_of(ir::ValueId root, BufferRole role) {
    const auto [it, is_new] =
        buffer_at_.try_emplace(root, static_cast<int32_t>(out_.kernel.buffers.size()));
    if (is_new) {
      const ir::TensorType& type = *graph_.value(root).tensor_type();
      out_.kernel.buffers.push_back(
          {.name = "b_" + names_[static_cast<size_t>(root)],
           .role = role,
           .dtype = type.dtype,
           .elements = shapes::reach(type.static_sizes(), type.static_strides())});
      out_.buffers.push_back(root);
    }
    return it->second;
  }

  Access scratch_row(ir::ValueId id, c10::ScalarType dtype) {
    Access access{.buffer = static_cast<int32_t>(out_.kernel.buffers.size())};
    access.strides.resize(loops_.size());
    int64_t stride = 1;
    for (size_t i = loops_.size(); i-- > 0;) {
      if (!group_.space.reduced(loops_[i])) continue;
      access.strides[i] = stride;
      stride *= group_.space.extent(loops_[i]);
    }
    out_.kernel.buffers.push_back({.name = "row_" + names_[static_cast<size_t>(id)],
                                   .role = BufferRole::Scratch,
                                   .dtype = dtype,
                                   .elements = stride});
    out_.buffers.push_back(ir::kNoValue);
    return access;
  }

  /// Adds the index of one dim to an access.
  void add_dim(Access& access, const Loops& dim, int64_t stride) const {
    const Loops resolved = group_.space.resolve(dim);
    for (size_t i = resolved.size(); i-- > 0;) {
      access.strides[static_cast<size_t>(loop_at_.at(resolved[i]))] += stride;
      stride *= group_.space.extent(resolved[i]);
    }
  }

  Access access(ir::ValueId id, const DimLoops& loops) {
    const ir::TensorType& type = *graph_.value(id).tensor_type();
    const Address& address = views_.address(id);
    Access access{.buffer = buffer_of(address.root, made_.contains(address.root) ? BufferRole::Out
                                                                                 : BufferRole::In),
                  .offset = address.offset};
    access.strides.resize(loops_.size());
    for (size_t d = 0; d < type.sizes.size(); ++d) {
      TANDEM_CHECK(loops[d].has_value(), "lower", "dim ", d, " of %",
                   names_[static_cast<size_t>(id)], " has no loops");
      add_dim(access, *loops[d], type.strides[d].value());
    }
    return access;
  }

  /// A value at an index of these loops, wherever it comes from.
  Val value_at(ir::ValueId id, const DimLoops& loops) {
    const ir::ValueId base = views_.behind(id).value;
    if (made_.contains(base)) return evaluate(base);
    const ir::Value& value = graph_.value(base);
    if (!value.is_input()) {
      const ir::Node& node = graph_.node(value.producer());
      if (const Rule* source = plan_.source[static_cast<size_t>(node.id())]) {
        const Member made{.node = node.id(), .rule = source};
        NodeEmitter emitter(*this, made);
        return source->emit(emitter);
      }
      // What the host can read becomes a number in the kernel.
      if (node.kind() == ir::NodeKind::Constant && node.constant().dim() == 0 &&
          node.constant().device().is_cpu())
        return constant(node.constant());
    }
    return body_.load(access(id, loops), graph_.value(id).tensor_type()->dtype);
  }

  Val constant(const at::Tensor& tensor) {
    const c10::ScalarType dtype = tensor.scalar_type();
    const at::Scalar scalar = tensor.item();
    if (scalar.isFloatingPoint()) return body_.constant(dtype, Number::of(scalar.toDouble()));
    if (scalar.isBoolean())
      return body_.constant(dtype, Number{Number::Kind::Bool, scalar.toBool(), 0});
    return body_.constant(dtype, Number::of(scalar.toLong()));
  }

  class NodeEmitter final : public Emitter {
   public:
    NodeEmitter(KernelBuilder& builder, const Member& member)
        : Emitter(call_, builder.body_, builder.target_.eager),
          builder_(builder),
          member_(member),
          call_(builder.graph_, builder.graph_.node(member.node)) {}

    Val operand(size_t i) override {
      const ir::ValueId id = call_.value(i);
      return builder_.value_at(id, broadcast_loops(member_.loops, *call_.tensor(i)));
    }
    Val operand_at(size_t i, std::span<const int32_t> dims) override {
      DimLoops loops;
      for (int32_t dim : dims) loops.push_back(member_.loops[static_cast<size_t>(dim)]);
      return builder_.value_at(call_.value(i), loops);
    }
    Val dim_index(size_t dim) override {
      Val index;
      BodyBuilder& lines = builder_.body_;
      for (int32_t loop : builder_.group_.space.resolve(*member_.loops[dim])) {
        const Val part = lines.index(builder_.loop_at_.at(loop));
        const auto extent = Number::of(builder_.group_.space.extent(loop));
        index = !index.defined()
                    ? part
                    : lines.binary(LoopOp::Add,
                                   lines.binary(LoopOp::Mul, index,
                                                lines.constant(c10::ScalarType::Long, extent)),
                                   part);
      }
      return index.defined() ? index
                             : lines.constant(c10::ScalarType::Long, Number::of(int64_t{0}));
    }
    Val read(const Read& read) override {
      const ir::TensorType& type = *builder_.graph_.value(read.value).tensor_type();
      const Address& address = builder_.views_.address(read.value);
      Access access{.buffer = builder_.buffer_of(address.root, BufferRole::In),
                    .offset = address.offset};
      access.strides.resize(builder_.loops_.size());
      for (size_t d = 0; d < type.sizes.size(); ++d) {
        const DimIndex& dim = read.dims[d];
        int64_t stride = type.strides[d].value();
        access.offset += dim.shift * stride;
        if (dim.reversed) {
          access.offset += (type.sizes[d].value() - 1) * stride;
          stride = -stride;
        }
        if (dim.result_dim >= 0)
          builder_.add_dim(access, *member_.loops[static_cast<size_t>(dim.result_dim)], stride);
      }
      if (read.indirect.defined()) {
        access.indirect_stride = read.indirect_dim >= 0
                                     ? type.strides[static_cast<size_t>(read.indirect_dim)].value()
                                     : read.indirect_stride;
      }
      return builder_.body_.load(access, type.dtype, read.indirect, read.mask);
    }

   private:
    KernelBuilder& builder_;
    const Member& member_;
    Call call_;
  };

  BuiltKernel finish() {
    BodyBuilder::Finished lines = std::move(body_).finish();
    Kernel& kernel = out_.kernel;
    kernel.body = std::move(lines.body);
    kernel.phases = std::move(lines.phases);
    kernel.accesses = std::move(lines.accesses);
    order_buffers();
    std::vector<int64_t> extents;
    for (int32_t loop : loops_) extents.push_back(group_.space.extent(loop));
    order_loops(kernel, extents, reduced_flags());
    return std::move(out_);
  }

  /// Buffers stand as the lines use them: the order in which rules asked for them is the
  /// compiler's.
  void order_buffers() {
    std::vector<Buffer> buffers;
    std::vector<ir::ValueId> values;
    std::vector<int32_t> now(out_.kernel.buffers.size(), kNone);
    for (Access& access : out_.kernel.accesses) {
      const auto old = static_cast<size_t>(access.buffer);
      if (now[old] == kNone) {
        now[old] = static_cast<int32_t>(buffers.size());
        buffers.push_back(out_.kernel.buffers[old]);
        values.push_back(out_.buffers[old]);
        if (values.back() != ir::kNoValue) count(buffers.back().role, values.back());
      }
      access.buffer = now[old];
    }
    out_.kernel.buffers = std::move(buffers);
    out_.buffers = std::move(values);
  }
  void count(BufferRole role, ir::ValueId value) {
    const int64_t bytes = graph_.value(value).tensor_type()->bytes();
    (role == BufferRole::In ? out_.bytes_read : out_.bytes_written) += bytes;
    if (role == BufferRole::Out) out_.stored.push_back(value);
  }

  const ir::Graph& graph_;
  const FusionPlan& plan_;
  const KernelGroup& group_;
  const Views& views_;
  const std::vector<std::string>& names_;
  const Target& target_;
  Loops loops_;
  std::unordered_map<int32_t, int32_t> loop_at_;
  BodyBuilder body_;
  std::unordered_map<ir::ValueId, const Member*> made_;
  std::unordered_map<ir::ValueId, uint64_t> demands_;  // the stages that read a value
  std::unordered_set<ir::ValueId> stored_, kept_row_;
  std::unordered_map<ir::ValueId, int32_t> buffer_at_;
  std::unordered_map<ir::ValueId, Access> rows_;
  std::unordered_map<ir::ValueId, Val> lasting_;  // visible to the end
  std::unordered_map<ir::ValueId, Val> here_;     // in this inner part
  std::unordered_map<ir::ValueId, Val> reduced_;
  int32_t last_stage_ = 0, stage_ = 0;
  BuiltKernel out_;
};

}  // namespace

BuiltKernel build_kernel(const ir::Graph& graph, const FusionPlan& plan, const KernelGroup& group,
                         const Views& views, const std::vector<std::string>& names,
                         const Target& target) {
  return KernelBuilder(graph, plan, group, views, names, target).run();
}

}  // namespace tandem::loops
