#include "tracing/recording/data_sizes.h"

#include "tracing/lines/asker.h"
#include "tracing/lines/source_lines.h"

#include <c10/core/SymBool.h>
#include <c10/core/SymNodeImpl.h>

#include <algorithm>

namespace tandem::tracing {
namespace {

/// For what has no upper bound.
constexpr int64_t kLargest = 1000;

/// As good as random, and the same in every process.
uint64_t scrambled(uint64_t a, uint64_t b) {
  uint64_t z = (a + 1) * 0x9e3779b97f4a7c15u + (b + 1) * 0xd1b54a32d192ed03u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t number_of_run(size_t run, size_t index, int64_t min, int64_t max) {
  switch (run) {
    case 0:  // neither an end of the range nor 1, where there are others
      return std::clamp(min + (max - min + 1) / 2,
                        std::min<int64_t>(std::max<int64_t>(min, 2), max), max);
    case 1:
      return min;
    case 2:
      return std::clamp<int64_t>(1, min, max);
    case 3:
      return std::clamp<int64_t>(2, min, max);
    case 4:
      return max;
    default:
      break;
  }
  const uint64_t number = scrambled(run, index);
  const int64_t low = run % 4 == 0 ? min : std::clamp<int64_t>(2, min, max);
  return low + static_cast<int64_t>((number >> 8) % static_cast<uint64_t>(max - low + 1));
}

/// A number that follows from sizes of these values.
class SizeNode final : public c10::SymNodeImpl {
 public:
  SizeNode(std::shared_ptr<DataSizes> sizes, std::vector<ir::ValueId> of, int64_t number,
           bool truth)
      : sizes_(std::move(sizes)), of_(std::move(of)), number_(number), truth_(truth) {}

  int64_t number() const { return number_; }

  bool is_int() override { return !truth_; }
  bool is_bool() override { return truth_; }
  bool is_float() override { return false; }
  bool has_hint() override { return true; }
  std::string str() override { return "a size that depends on data"; }
  c10::SymNode clone() override { return node(number_, truth_); }
  c10::SymNode wrap_int(int64_t number) override { return node(number, false); }
  c10::SymNode wrap_bool(bool truth) override { return node(truth, true); }

  c10::SymNode add(const c10::SymNode& b) override { return with(b, number_ + of(b), false); }
  c10::SymNode sub(const c10::SymNode& b) override { return with(b, number_ - of(b), false); }
  c10::SymNode mul(const c10::SymNode& b) override { return with(b, number_ * of(b), false); }
  c10::SymNode floordiv(const c10::SymNode& b) override {
    return with(b, shapes::floordiv(shapes::Size(number_), shapes::Size(of(b))).value(), false);
  }
  c10::SymNode mod(const c10::SymNode& b) override {
    return with(b, shapes::mod(shapes::Size(number_), shapes::Size(of(b))).value(), false);
  }
  c10::SymNode neg() override { return node(-number_, false); }
  c10::SymNode sym_min(const c10::SymNode& b) override {
    return with(b, std::min(number_, of(b)), false);
  }
  c10::SymNode sym_max(const c10::SymNode& b) override {
    return with(b, std::max(number_, of(b)), false);
  }
  c10::SymNode eq(const c10::SymNode& b) override { return with(b, number_ == of(b), true); }
  c10::SymNode ne(const c10::SymNode& b) override { return with(b, number_ != of(b), true); }
  c10::SymNode lt(const c10::SymNode& b) override { return with(b, number_ < of(b), true); }
  c10::SymNode le(const c10::SymNode& b) override { return with(b, number_ <= of(b), true); }
  c10::SymNode gt(const c10::SymNode& b) override { return with(b, number_ > of(b), true); }
  c10::SymNode ge(const c10::SymNode& b) override { return with(b, number_ >= of(b), true); }
  c10::SymNode sym_and(const c10::SymNode& b) override {
    return with(b, number_ != 0 && truth_of(b), true);
  }
  c10::SymNode sym_or(const c10::SymNode& b) override {
    return with(b, number_ != 0 || truth_of(b), true);
  }
  c10::SymNode sym_not() override { return node(number_ == 0, true); }

  // Questions: libtorch is told the number of this run.
  __attribute__((noinline)) int64_t guard_int(const char*, int64_t) override {
    sizes_->note_reads(of_, {__builtin_frame_address(0), __builtin_return_address(0)});
    return number_;
  }
  __attribute__((noinline)) bool guard_bool(const char*, int64_t) override {
    sizes_->note_reads(of_, {__builtin_frame_address(0), __builtin_return_address(0)});
    return number_ != 0;
  }
  __attribute__((noinline)) bool guard_size_oblivious(const char*, int64_t) override {
    sizes_->note_reads(of_, {__builtin_frame_address(0), __builtin_return_address(0)});
    return number_ != 0;
  }
  __attribute__((noinline)) bool guard_or_false(const char*, int64_t) override {
    sizes_->note_reads(of_, {__builtin_frame_address(0), __builtin_return_address(0)});
    return number_ != 0;
  }
  __attribute__((noinline)) bool guard_or_true(const char*, int64_t) override {
    sizes_->note_reads(of_, {__builtin_frame_address(0), __builtin_return_address(0)});
    return number_ != 0;
  }
  __attribute__((noinline)) int64_t int_() override {
    sizes_->note_reads(of_, {__builtin_frame_address(0), __builtin_return_address(0)});
    return number_;
  }
  __attribute__((noinline)) bool bool_() override {
    sizes_->note_reads(of_, {__builtin_frame_address(0), __builtin_return_address(0)});
    return number_ != 0;
  }
  /// Whoever needs the number guards.
  std::optional<int64_t> maybe_as_int() override { return std::nullopt; }
  /// Nothing is known of it.
  bool statically_known_true(const char*, int64_t) override { return false; }
  /// The kernel checks it, whenever it runs.
  bool expect_true(const char*, int64_t) override { return number_ != 0; }

 private:
  static int64_t of(const c10::SymNode& other) {
    if (const auto* mine = dynamic_cast<const SizeNode*>(other.get())) return mine->number_;
    const std::optional<int64_t> constant = other->constant_int();
    TORCH_CHECK(constant.has_value(), "a size that depends on data meets another symbolic integer");
    return *constant;
  }
  static bool truth_of(const c10::SymNode& other) {
    if (const auto* mine = dynamic_cast<const SizeNode*>(other.get())) return mine->number_ != 0;
    return other->constant_bool().value_or(false);
  }
  c10::SymNode node(int64_t number, bool truth) const {
    return c10::make_intrusive<SizeNode>(sizes_, of_, number, truth);
  }
  c10::SymNode with(const c10::SymNode& other, int64_t number, bool truth) const {
    std::vector<ir::ValueId> all = of_;
    if (const auto* mine = dynamic_cast<const SizeNode*>(other.get()))
      all.insert(all.end(), mine->of_.begin(), mine->of_.end());
    return c10::make_intrusive<SizeNode>(sizes_, std::move(all), number, truth);
  }

  std::shared_ptr<DataSizes> sizes_;
  std::vector<ir::ValueId> of_;
  int64_t number_;
  bool truth_;
};

std::optional<int64_t> number_in(const c10::SymInt& size) {
  if (!size.is_heap_allocated()) return std::nullopt;
  const c10::SymNode node = size.toSymNode();
  const auto* mine = dynamic_cast<const SizeNode*>(node.get());
  return mine == nullptr ? std::nullopt : std::optional(mine->number());
}

}  // namespace

DataSizes::DataSizes(size_t run, SourceLines& lines) : run_(run), lines_(lines) {}

int64_t DataSizes::draw(Decider decider, int64_t min, std::optional<int64_t> max) {
  if (!decider.what.empty()) {
    const auto known = std::ranges::find(drawn_, decider, &Drawn::decider);
    if (known != drawn_.end()) return known->value;
  }
  const int64_t most = std::max(min, max.value_or(min + kLargest));
  const int64_t value = number_of_run(run_, drawn_.size(), min, most);
  drawn_.push_back({.decider = decider, .min = min, .max = max, .value = value});
  return value;
}

bool DataSizes::at_an_end() const {
  return std::ranges::any_of(drawn_, [](const Drawn& one) {
    return one.value <= std::max<int64_t>(one.min, 1) || one.value == one.max;
  });
}

bool DataSizes::is_asked(const EntryFrame& by) const {
  return running_ > 0 && ops_ == 0 && asked_by_user(by);
}

bool DataSizes::is_asked_by_op(const EntryFrame& by) const {
  // Between the op and whoever calls it lies libtorch's trampoline.
  const EntryFrame trampoline{static_cast<const char*>(by.frame) + 2 * sizeof(uintptr_t),
                              by.return_address};
  return running_ > 0 && ops_ == 1 && asked_by_user(trampoline);
}

void DataSizes::note_read(ir::ValueId value, const EntryFrame& by) {
  if (is_asked(by)) reads_.push_back({value, lines_.line_of_call(by)});
}

/// Of a symbolic integer, which ops are never given: whoever asks does it for the user's code.
void DataSizes::note_reads(const std::vector<ir::ValueId>& values, const EntryFrame& by) {
  if (running_ == 0 || ops_ > 0) return;
  const ir::Location line = lines_.line_of_call(by);
  for (ir::ValueId value : values) reads_.push_back({value, line});
}

void DataSizes::note_read_by_op(ir::ValueId value) {
  if (running_ > 0 && ops_ == 1) reads_.push_back({value, lines_.current()});
}

c10::SymInt size_for_user(std::shared_ptr<DataSizes> sizes, ir::ValueId value, int64_t number) {
  return c10::SymInt(c10::SymNode(c10::make_intrusive<SizeNode>(
      std::move(sizes), std::vector<ir::ValueId>{value}, number, /*truth=*/false)));
}

void take_numbers(c10::IValue& operand) {
  if (operand.isSymInt()) {
    if (const auto number = number_in(operand.toSymInt())) operand = *number;
  } else if (operand.isSymIntList()) {
    c10::List<int64_t> numbers;
    for (const c10::SymInt& size : operand.toSymIntVector()) {
      const std::optional<int64_t> number =
          size.is_heap_allocated() ? number_in(size) : size.maybe_as_int();
      if (!number) return;
      numbers.push_back(*number);
    }
    operand = std::move(numbers);
  }
}

}  // namespace tandem::tracing
