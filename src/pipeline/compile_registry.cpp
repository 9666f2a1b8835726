#include "pipeline/compile_registry.h"

#include "base/error.h"

#include <algorithm>

namespace tandem::pipeline {

namespace {

runtime::MemoryPattern pattern(std::span<const at::Tensor> closed_over,
                               const detail::Flat& arguments) {
  return {closed_over, {arguments.tensors.data(), arguments.tensors.size()}};
}

}  // namespace

bool CompileRegistry::Failure::concerns(const libtorch::ThreadState& thread,
                                        const detail::Flat& arguments) const {
  if (!key.hold(thread, arguments)) return false;
  std::vector<at::Tensor> alive;  // the others, undefined here, share memory with nobody
  for (const auto& tensor : closed_over) alive.emplace_back(tensor.lock());
  return pattern(alive, arguments) == memory;
}

CompileRegistry::Ticket::~Ticket() {
  if (!record_) return;
  {
    std::lock_guard lock(registry_->mutex_);
    record_->done = true;
    std::erase(registry_->under_way_, record_);
  }
  registry_->finished_.notify_all();
}

void CompileRegistry::Ticket::fail(std::exception_ptr error, const detail::Flat& arguments,
                                   std::span<const at::Tensor> closed_over) {
  auto made = std::make_shared<Failure>(Failure{record_->key, std::move(error)});
  for (const at::Tensor& tensor : closed_over)
    made->closed_over.emplace_back(tensor.getIntrusivePtr());
  made->memory = pattern(closed_over, arguments);
  std::shared_ptr<const Failure> failure = std::move(made);
  std::lock_guard lock(registry_->mutex_);
  if (record_->generation != registry_->generation_) return;
  registry_->failures_.push_back(failure);
  registry_->has_failures_.store(true, std::memory_order_release);
}

CompileRegistry::Ticket CompileRegistry::begin(const libtorch::ThreadState& thread,
                                               const detail::Flat& arguments, runtime::Guards key) {
  auto record = std::make_shared<UnderWay>(
      UnderWay{std::move(key), std::this_thread::get_id(), /*generation=*/0});
  for (;;) {
    std::vector<std::shared_ptr<UnderWay>> others;
    uint64_t seen = 0;
    {
      std::lock_guard lock(mutex_);
      others = under_way_;
      seen = additions_;
    }
    const auto same = std::find_if(others.begin(), others.end(), [&](const auto& other) {
      return other->key.hold(thread, arguments);
    });
    if (same != others.end()) {
      TANDEM_REQUIRE((*same)->owner != std::this_thread::get_id(), "call",
                     "the function is called while this thread compiles it for such a call",
                     "\n  cause:  on_event calls the compiled function",
                     "\n  remedy: call the function itself there");
      std::unique_lock lock(mutex_);
      finished_.wait(lock, [&] { return (*same)->done; });
      return {};
    }
    std::lock_guard lock(mutex_);
    if (additions_ != seen) continue;  // compare with the newcomers, too
    record->generation = generation_;
    under_way_.push_back(record);
    ++additions_;
    return {this, std::move(record)};
  }
}

std::exception_ptr CompileRegistry::failure(const libtorch::ThreadState& thread,
                                            const detail::Flat& arguments) const {
  if (!has_failures_.load(std::memory_order_acquire)) return nullptr;
  std::vector<std::shared_ptr<const Failure>> failures;
  {
    std::lock_guard lock(mutex_);
    failures = failures_;
  }
  for (const auto& failure : failures) {
    if (failure->concerns(thread, arguments)) return failure->error;
  }
  return nullptr;
}

void CompileRegistry::forget() {
  std::vector<std::shared_ptr<const Failure>> forgotten;  // may own the last handle of a module
  std::lock_guard lock(mutex_);
  failures_.swap(forgotten);
  has_failures_.store(false, std::memory_order_release);
  ++generation_;
}

}  // namespace tandem::pipeline
