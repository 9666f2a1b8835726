#include "loops/rules/body_builder.h"

#include "base/error.h"

#include <bit>
#include <utility>

namespace tandem::loops {
namespace {

void put(std::string& key, int64_t number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string key_of(const Instruction& line) {
  std::string key;
  key.reserve(40);
  put(key, static_cast<int64_t>(line.op) * 256 + static_cast<int64_t>(line.dtype));
  put(key, (int64_t{line.a} << 32) | static_cast<uint32_t>(line.b));
  put(key, (int64_t{line.c} << 32) | static_cast<uint32_t>(line.slot));
  put(key, std::bit_cast<int64_t>(line.number));
  put(key, line.integer);
  return key;
}

}  // namespace

void BodyBuilder::begin_stage(int32_t stage, bool inner) {
  stage_ = stage;
  inner_ = inner;
  known_here_.clear();
}

bool BodyBuilder::varies(const Instruction& line) const {
  if (is_reduction(line.op)) return true;
  for (int32_t operand : {line.a, line.b, line.c}) {
    if (operand != kNone && lines_[static_cast<size_t>(operand)].varies &&
        !is_reduction(lines_[static_cast<size_t>(operand)].line.op))
      return true;
  }
  if (line.op == LoopOp::Index) return reduced_[static_cast<size_t>(line.slot)];
  if (line.op != LoopOp::Load && line.op != LoopOp::Store) return false;
  const Access& access = accesses_[static_cast<size_t>(line.slot)];
  for (size_t i = 0; i < access.strides.size(); ++i) {
    if (access.strides[i] != 0 && reduced_[i]) return true;
  }
  return false;
}

Val BodyBuilder::add(Instruction line, c10::ScalarType dtype) {
  const bool is_varying = varies(line);
  TANDEM_CHECK(inner_ || !is_varying, "lower", "a line of an outer part depends on a reduced loop");
  const bool shareable = line.op != LoopOp::Store;
  auto& known = is_varying ? known_here_ : known_;
  std::string key;
  if (shareable) {
    key = key_of(line);
    if (const auto found = known.find(key); found != known.end()) return {found->second, dtype};
  }
  const auto id = static_cast<int32_t>(lines_.size());
  lines_.push_back({line, 2 * stage_ + (is_varying ? 1 : 0), is_varying});
  if (shareable) known.emplace(std::move(key), id);
  return {id, dtype};
}

int32_t BodyBuilder::access_slot(const Access& access) {
  std::string key;
  put(key, access.buffer);
  put(key, access.offset);
  put(key, access.indirect_stride);
  for (int64_t stride : access.strides) put(key, stride);
  const auto [it, is_new] =
      slots_.try_emplace(std::move(key), static_cast<int32_t>(accesses_.size()));
  if (is_new) accesses_.push_back(access);
  return it->second;
}

Val BodyBuilder::constant(c10::ScalarType dtype, const Number& number) {
  // A number takes a 16-bit dtype by way of f32.
  const c10::ScalarType wide = compute_dtype(dtype);
  Instruction line{.op = LoopOp::Constant, .dtype = wide};
  if (wide == c10::ScalarType::Float) {
    line.number = static_cast<float>(number.as_double());
  } else if (wide == c10::ScalarType::Double) {
    line.number = number.as_double();
  } else if (wide == c10::ScalarType::Bool) {
    line.integer = number.as_double() != 0;
  } else {
    line.integer =
        number.kind == Number::Kind::Float ? static_cast<int64_t>(number.number) : number.integer;
  }
  const Val value = add(line, wide);
  return wide == dtype ? value : to(value, dtype);
}

Val BodyBuilder::index(int32_t loop) {
  return add({.op = LoopOp::Index, .dtype = c10::ScalarType::Long, .slot = loop},
             c10::ScalarType::Long);
}

Val BodyBuilder::load(const Access& access, c10::ScalarType stored, Val indirect, Val mask) {
  return add({.op = LoopOp::Load,
              .dtype = compute_dtype(stored),
              .a = indirect.id,
              .b = mask.id,
              .slot = access_slot(access)},
             stored);
}

void BodyBuilder::store(const Access& access, Val value) {
  add({.op = LoopOp::Store,
       .dtype = compute_dtype(value.dtype),
       .a = value.id,
       .slot = access_slot(access)},
      value.dtype);
}

Val BodyBuilder::check_index(Val index, int64_t bound) {
  const Instruction& line = lines_[static_cast<size_t>(index.id)].line;
  if (line.op == LoopOp::CheckIndex && line.integer <= bound) return index;
  return add(
      {.op = LoopOp::CheckIndex, .dtype = c10::ScalarType::Long, .a = index.id, .integer = bound},
      c10::ScalarType::Long);
}

Val BodyBuilder::unary(LoopOp op, Val a) {
  const c10::ScalarType dtype = compute_dtype(a.dtype);
  return add({.op = op, .dtype = dtype, .a = a.id}, dtype);
}

Val BodyBuilder::binary(LoopOp op, Val a, Val b) {
  const c10::ScalarType dtype = compute_dtype(a.dtype);
  TANDEM_CHECK(dtype == compute_dtype(b.dtype), "lower", "op ", to_string(op), " on ",
               c10::toString(a.dtype), " and ", c10::toString(b.dtype));
  return add({.op = op, .dtype = dtype, .a = a.id, .b = b.id}, dtype);
}

Val BodyBuilder::compare(LoopOp op, Val a, Val b) {
  TANDEM_CHECK(compute_dtype(a.dtype) == compute_dtype(b.dtype), "lower", "op ", to_string(op),
               " on ", c10::toString(a.dtype), " and ", c10::toString(b.dtype));
  return add({.op = op, .dtype = c10::ScalarType::Bool, .a = a.id, .b = b.id},
             c10::ScalarType::Bool);
}

Val BodyBuilder::select(Val condition, Val a, Val b) {
  return add({.op = LoopOp::Select,
              .dtype = compute_dtype(a.dtype),
              .a = condition.id,
              .b = a.id,
              .c = b.id},
             a.dtype == b.dtype ? a.dtype : compute_dtype(a.dtype));
}

Val BodyBuilder::fma(Val a, Val b, Val c) {
  const c10::ScalarType dtype = compute_dtype(a.dtype);
  return add({.op = LoopOp::Fma, .dtype = dtype, .a = a.id, .b = b.id, .c = c.id}, dtype);
}

Val BodyBuilder::is_nan(Val a) {
  return add({.op = LoopOp::IsNan, .dtype = c10::ScalarType::Bool, .a = a.id},
             c10::ScalarType::Bool);
}

Val BodyBuilder::logical_not(Val a) { return unary(LoopOp::Not, to(a, c10::ScalarType::Bool)); }

Val BodyBuilder::reduce(LoopOp op, Val a, Val index) {
  const bool is_arg = op == LoopOp::ReduceArgmax || op == LoopOp::ReduceArgmin;
  const c10::ScalarType dtype = is_arg ? c10::ScalarType::Long : compute_dtype(a.dtype);
  return add({.op = op, .dtype = dtype, .a = a.id, .b = index.id}, dtype);
}

Val BodyBuilder::to(Val value, c10::ScalarType dtype) {
  if (value.dtype == dtype) return value;
  const c10::ScalarType from = compute_dtype(value.dtype), wide = compute_dtype(dtype);
  Val out = value;
  if (from != wide) out = add({.op = LoopOp::Cast, .dtype = wide, .a = value.id}, wide);
  if (dtype == c10::ScalarType::BFloat16) {
    out = unary(LoopOp::RoundBF16, out);
  } else if (dtype == c10::ScalarType::Half) {
    out = unary(LoopOp::RoundF16, out);
  }
  return {out.id, dtype};
}

/// Rules write `binary(op, operand(0), operand(1))`, and C++ leaves it to the compiler which of the
/// two comes first. So lines follow from those that must happen, operands from left to right: a
/// kernel has one text, whoever compiled us. What no such line reads is left out.
std::vector<std::vector<int32_t>> BodyBuilder::ordered_parts() const {
  std::vector<std::vector<int32_t>> parts;
  std::vector<bool> placed(lines_.size());
  auto place = [&](auto&& self, int32_t id) -> void {
    if (id == kNone || placed[static_cast<size_t>(id)]) return;
    placed[static_cast<size_t>(id)] = true;
    const Line& line = lines_[static_cast<size_t>(id)];
    for (int32_t operand : {line.line.a, line.line.b, line.line.c}) self(self, operand);
    const auto part = static_cast<size_t>(line.part);
    if (part >= parts.size()) parts.resize(part + 1);
    parts[part].push_back(id);
  };
  for (size_t i = 0; i < lines_.size(); ++i) {
    const LoopOp op = lines_[i].line.op;
    if (op == LoopOp::Store || is_reduction(op)) place(place, static_cast<int32_t>(i));
  }
  return parts;
}

BodyBuilder::Finished BodyBuilder::finish() && {
  Finished out;
  std::vector<int32_t> now(lines_.size(), kNone), access_now(accesses_.size(), kNone);
  const std::vector<std::vector<int32_t>> parts = ordered_parts();
  for (size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].empty()) continue;
    Phase phase{.inner = part % 2 == 1, .begin = static_cast<int32_t>(out.body.size())};
    for (int32_t id : parts[part]) {
      Instruction line = lines_[static_cast<size_t>(id)].line;
      for (int32_t* operand : {&line.a, &line.b, &line.c}) {
        if (*operand != kNone) *operand = now[static_cast<size_t>(*operand)];
      }
      if (line.op == LoopOp::Load || line.op == LoopOp::Store) {
        int32_t& slot = access_now[static_cast<size_t>(line.slot)];
        if (slot == kNone) {
          slot = static_cast<int32_t>(out.accesses.size());
          out.accesses.push_back(accesses_[static_cast<size_t>(line.slot)]);
        }
        line.slot = slot;
      }
      now[static_cast<size_t>(id)] = static_cast<int32_t>(out.body.size());
      out.body.push_back(line);
    }
    phase.end = static_cast<int32_t>(out.body.size());
    out.phases.push_back(phase);
  }
  return out;
}

}  // namespace tandem::loops
