#include "ir/text/cursor.h"
#include "loops/ir/loop_ir.h"
#include "loops/ir/loop_op_table.h"
#include "tandem/ir/type.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <unordered_map>

namespace tandem::loops {
namespace {

std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;  // shortest that reads back
  return {text, end};
}

std::string_view role_word(BufferRole role) {
  switch (role) {
    case BufferRole::In:
      return "in";
    case BufferRole::Out:
      return "out";
    case BufferRole::Scratch:
      return "scratch";
  }
  return "?";
}

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel) {}

  std::string text() {
    out_ << "kernel " << kernel_.name << " {\n";
    for (const Buffer& buffer : kernel_.buffers) {
      out_ << "  " << role_word(buffer.role) << ' ' << buffer.name << ": "
           << ir::dtype_name(buffer.dtype) << '[' << buffer.elements << "]\n";
    }
    for (size_t i = 0; i < kernel_.dims.size(); ++i) {
      out_ << "  " << (i < static_cast<size_t>(kernel_.kept) ? "kept " : "reduced ")
           << kernel_.dims[i].name << ": " << kernel_.dims[i].extent << '\n';
    }
    for (const Phase& phase : kernel_.phases) {
      out_ << "  " << (phase.inner ? "inner" : "outer") << " {\n";
      for (int32_t at = phase.begin; at < phase.end; ++at) line(at);
      out_ << "  }\n";
    }
    out_ << "}\n";
    return out_.str();
  }

 private:
  void line(int32_t at) {
    const Instruction& it = kernel_.body[static_cast<size_t>(at)];
    out_ << "    ";
    if (it.op == LoopOp::Store) {
      out_ << "store " << place(it) << ", v" << it.a << '\n';
      return;
    }
    out_ << 'v' << at << ": " << ir::dtype_name(it.dtype) << " = " << to_string(it.op);
    switch (it.op) {
      case LoopOp::Constant:
        if (c10::isFloatingType(it.dtype)) {
          out_ << ' ' << number_text(it.number);
        } else {
          out_ << ' ' << it.integer;
        }
        break;
      case LoopOp::Index:
        out_ << ' ' << kernel_.dims[static_cast<size_t>(it.slot)].name;
        break;
      case LoopOp::Load:
        out_ << ' ' << place(it);
        if (it.b != kNone) out_ << " if v" << it.b;
        break;
      case LoopOp::CheckIndex:
        out_ << " v" << it.a << ", " << it.integer;
        break;
      default: {
        const int32_t operands[] = {it.a, it.b, it.c};
        for (int i = 0; i < operand_count(it.op); ++i)
          out_ << (i == 0 ? " v" : ", v") << operands[i];
      }
    }
    out_ << '\n';
  }

  std::string place(const Instruction& it) const {
    const Access& access = kernel_.accesses[static_cast<size_t>(it.slot)];
    std::ostringstream index;
    auto term = [&](int64_t factor, const std::string& name) {
      if (index.tellp() > 0) index << " + ";
      if (factor != 1) index << factor << '*';
      index << name;
    };
    for (size_t i = 0; i < access.strides.size(); ++i) {
      if (access.strides[i] != 0) term(access.strides[i], kernel_.dims[i].name);
    }
    if (it.op == LoopOp::Load && it.a != kNone)
      term(access.indirect_stride, "v" + std::to_string(it.a));
    if (access.offset != 0 || index.tellp() == 0) {
      if (index.tellp() > 0) index << " + ";
      index << access.offset;
    }
    return kernel_.buffers[static_cast<size_t>(access.buffer)].name + '[' + index.str() + ']';
  }

  const Kernel& kernel_;
  std::ostringstream out_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : at_(text) {}

  Kernel kernel() {
    at_.expect_word("kernel");
    kernel_.name = at_.expect_name("a kernel");
    at_.expect('{');
    while (head_line()) {
    }
    while (at_.peek() != '}') phase();
    at_.expect('}');
    if (!at_.at_end()) at_.fail_expected("the end of the text");
    return std::move(kernel_);
  }

 private:
  bool head_line() {
    for (BufferRole role : {BufferRole::In, BufferRole::Out, BufferRole::Scratch}) {
      if (!at_.take_word(role_word(role))) continue;
      Buffer buffer{.name = std::string(at_.expect_name("a buffer")), .role = role};
      at_.expect(':');
      buffer.dtype = dtype();
      at_.expect('[');
      buffer.elements = at_.expect_integer();
      at_.expect(']');
      buffers_.emplace(buffer.name, static_cast<int32_t>(kernel_.buffers.size()));
      kernel_.buffers.push_back(std::move(buffer));
      return true;
    }
    for (bool kept : {true, false}) {
      if (!at_.take_word(kept ? "kept" : "reduced")) continue;
      if (kept && kernel_.dims.size() != static_cast<size_t>(kernel_.kept))
        at_.fail_expected("no kept dim after a reduced one");
      Dim dim{.name = std::string(at_.expect_name("a dim"))};
      at_.expect(':');
      dim.extent = at_.expect_integer();
      dims_.emplace(dim.name, kernel_.dims.size());
      kernel_.dims.push_back(std::move(dim));
      if (kept) ++kernel_.kept;
      return true;
    }
    return false;
  }

  void phase() {
    Phase phase;
    phase.inner = at_.take_word("inner");
    if (!phase.inner) at_.expect_word("outer");
    at_.expect('{');
    phase.begin = phase.end = static_cast<int32_t>(kernel_.body.size());
    while (!at_.take('}')) line();
    phase.end = static_cast<int32_t>(kernel_.body.size());
    kernel_.phases.push_back(phase);
  }

  void line() {
    Instruction it;
    if (at_.take_word("store")) {
      it.op = LoopOp::Store;
      place(it);
      at_.expect(',');
      it.a = value();
      it.dtype = kernel_.body[static_cast<size_t>(it.a)].dtype;
      kernel_.body.push_back(it);
      return;
    }
    const std::string name(at_.expect_name("a value"));
    at_.expect(':');
    it.dtype = dtype();
    at_.expect('=');
    const std::string op(at_.expect_name("an op"));
    const std::optional<LoopOp> found = find_op(op);
    if (!found.has_value()) at_.fail_at(at_.position() - op.size(), "no op is called " + op);
    it.op = *found;
    operands(it);
    values_[name] = static_cast<int32_t>(kernel_.body.size());
    kernel_.body.push_back(it);
  }

  void operands(Instruction& it) {
    switch (it.op) {
      case LoopOp::Constant:
        if (c10::isFloatingType(it.dtype)) {
          it.number = number();
        } else {
          it.integer = at_.expect_integer();
        }
        return;
      case LoopOp::Index:
        it.slot = static_cast<int32_t>(dim());
        return;
      case LoopOp::Load:
        place(it);
        if (at_.take_word("if")) it.b = value();
        return;
      case LoopOp::CheckIndex:
        it.a = value();
        at_.expect(',');
        it.integer = at_.expect_integer();
        return;
      default: {
        int32_t* const fields[] = {&it.a, &it.b, &it.c};
        for (int i = 0; i < operand_count(it.op); ++i) {
          if (i > 0) at_.expect(',');
          *fields[i] = value();
        }
      }
    }
  }

  void place(Instruction& it) {
    const std::string name(at_.expect_name("a buffer"));
    const auto buffer = buffers_.find(name);
    if (buffer == buffers_.end())
      at_.fail_at(at_.position() - name.size(), "no buffer is called " + name);
    Access access{.buffer = buffer->second};
    access.strides.resize(kernel_.dims.size());
    at_.expect('[');
    do {
      int64_t factor = 1;
      bool times = true;
      const char here = at_.peek();
      if (here == '-' || (here >= '0' && here <= '9')) {
        factor = at_.expect_integer();
        times = at_.take('*');
      }
      if (!times) {
        access.offset += factor;
      } else if (const auto known = dims_.find(std::string(at_.peek_word()));
                 known != dims_.end()) {
        access.strides[known->second] += factor;
        at_.expect_name("a dim");
      } else {
        it.a = value();
        access.indirect_stride = factor;
      }
    } while (at_.take('+'));
    at_.expect(']');
    it.slot = static_cast<int32_t>(kernel_.accesses.size());
    for (size_t i = 0; i < kernel_.accesses.size(); ++i) {
      if (kernel_.accesses[i] == access) it.slot = static_cast<int32_t>(i);
    }
    if (it.slot == static_cast<int32_t>(kernel_.accesses.size()))
      kernel_.accesses.push_back(std::move(access));
  }

  double number() {
    const bool minus = at_.take('-');
    if (at_.take_word("inf")) return minus ? -HUGE_VAL : HUGE_VAL;
    if (at_.take_word("nan")) return NAN;
    at_.skip_blank();
    const std::string rest(at_.rest().substr(0, 40));
    char* end = nullptr;
    const double read = std::strtod(rest.c_str(), &end);
    if (end == rest.c_str()) at_.fail_expected("a number");
    at_.set_position(at_.position() + static_cast<size_t>(end - rest.c_str()));
    return minus ? -read : read;
  }

  c10::ScalarType dtype() { return ir::parse_dtype(at_.expect_name("a dtype")); }

  int32_t value() {
    const std::string name(at_.expect_name("a value"));
    const auto found = values_.find(name);
    if (found == values_.end())
      at_.fail_at(at_.position() - name.size(), "no value or dim is called " + name);
    return found->second;
  }

  size_t dim() {
    const std::string name(at_.expect_name("a dim"));
    const auto found = dims_.find(name);
    if (found == dims_.end()) at_.fail_at(at_.position() - name.size(), "no dim is called " + name);
    return found->second;
  }

  ir::Cursor at_;
  Kernel kernel_;
  std::unordered_map<std::string, int32_t> buffers_;
  std::unordered_map<std::string, size_t> dims_;
  std::unordered_map<std::string, int32_t> values_;
};

}  // namespace

std::string print(const Kernel& kernel) { return Printer(kernel).text(); }
Kernel parse_kernel(std::string_view text) { return Parser(text).kernel(); }

}  // namespace tandem::loops
