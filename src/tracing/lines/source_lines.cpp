#include "tracing/lines/source_lines.h"

#include "base/log.h"
#include "tracing/lines/users_line.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>

namespace tandem::tracing {
namespace {

/// Enough for the frames of torch::nn's templates between an op and the user's line.
constexpr size_t kMostCalls = 16;

std::atomic<bool> noting{true};

/// Call sites of one op; the user's line among them is looked up when it is asked for.
class CallSites final : public ir::LineSource {
 public:
  CallSites(std::shared_ptr<const LoadedObjects> objects, std::span<const uintptr_t> chain,
            std::shared_ptr<const ir::LineSource> otherwise)
      : objects_(std::move(objects)),
        chain_(chain.begin(), chain.end()),
        otherwise_(std::move(otherwise)) {}

  const ir::SourceLine& find() const override {
    std::call_once(once_, [&] {
      line_ = users_line(*objects_, chain_);
      if (line_.file.empty() && otherwise_) line_ = otherwise_->find();
      if (line_.line == 0 && !line_.file.empty()) {
        base::warn_once(
            "source lines",
            "lines of the program are not known: it has no debug information. "
            "Build it with -g1 and install libdw1; TANDEM_SOURCE_LINES=off goes without");
      }
      found_.store(true, std::memory_order_release);
    });
    return line_;
  }
  bool found() const override { return found_.load(std::memory_order_acquire); }

  bool is(std::span<const uintptr_t> chain, const ir::LineSource* otherwise) const {
    return otherwise_.get() == otherwise && std::ranges::equal(chain_, chain);
  }

 private:
  const std::shared_ptr<const LoadedObjects> objects_;
  const std::vector<uintptr_t> chain_;
  const std::shared_ptr<const ir::LineSource> otherwise_;
  mutable std::once_flag once_;
  mutable std::atomic<bool> found_{false};
  mutable ir::SourceLine line_;
};

uint64_t hash_of(std::span<const uintptr_t> chain) {
  uint64_t hash = 0;
  for (uintptr_t address : chain) hash = (hash ^ address) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

/// Whether all code that runs with a node is libtorch's own: nothing to look for on the stack.
bool is_without_users_code(const LoadedObjects& objects, torch::autograd::Node& node) {
  if (!node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() ||
      !node.retains_grad_hooks().empty() || !node.post_hooks().empty()) {
    return false;
  }
  // Who wrote the class: its table of virtual functions, the first word of the object, tells.
  const auto* const* table = reinterpret_cast<const uintptr_t* const*>(&node);
  const LoadedObject* object = objects.find(**table);
  return object != nullptr && object->platform;
}

}  // namespace

bool source_lines() { return noting.load(std::memory_order_relaxed); }
void set_source_lines(bool on) { noting.store(on, std::memory_order_relaxed); }

SourceLines::SourceLines()
    : on_(source_lines()), objects_(on_ ? LoadedObjects::now() : nullptr), stack_(objects_) {}

SourceLines::PlacePtr SourceLines::place_of_call(const EntryFrame& frame, PlacePtr otherwise) {
  std::array<uintptr_t, kMostCalls> taken;
  const std::span<const uintptr_t> chain(taken.data(), stack_.take(frame, taken));
  if (chain.empty()) return otherwise;
  for (uint64_t key = hash_of(chain);; ++key) {
    PlacePtr& place = places_[key];
    if (!place) place = std::make_shared<const CallSites>(objects_, chain, otherwise);
    if (static_cast<const CallSites&>(*place).is(chain, otherwise.get())) return place;
  }
}

SourceLines::PlacePtr SourceLines::forward_place(uint64_t sequence) const {
  auto after = std::ranges::upper_bound(forward_, sequence, {}, &Op::first);
  if (after != forward_.begin() && sequence < (after - 1)->end) return (after - 1)->place;
  // Made outside of ops, as the node of a custom function is: just before its first op.
  return after != forward_.end() ? after->place : nullptr;
}

SourceLines::PlacePtr SourceLines::place_in_backward(const EntryFrame& frame) {
  const auto node = torch::autograd::get_current_node();
  if (!node) return place_of_call(frame, last_);
  PlacePtr forward = forward_place(node->sequence_nr());
  if (is_without_users_code(*objects_, *node)) return forward;
  return place_of_call(frame, std::move(forward));
}

OpLine::OpLine(SourceLines& lines, const EntryFrame& frame, ir::Phase phase)
    : lines_(lines), outer_(lines.current_), exceptions_(std::uncaught_exceptions()) {
  lines.entry_ = frame;
  if (!lines.on_) return;
  const bool forward = phase == ir::Phase::Forward;
  lines.current_ = forward ? lines.place_of_call(frame, nullptr) : lines.place_in_backward(frame);
  lines.last_ = lines.current_;
  if (!forward) return;
  const uint64_t next = at::sequence_number::peek();
  op_ = lines.forward_.size();
  lines.forward_.push_back({next, next, lines.current_});
}

OpLine::~OpLine() {
  if (!lines_.on_) return;
  if (op_ != SIZE_MAX) lines_.forward_[op_].end = at::sequence_number::peek();
  lines_.last_threw_ = std::uncaught_exceptions() > exceptions_;
  lines_.current_ = std::move(outer_);
}

}  // namespace tandem::tracing
