#pragma once

#include "shapes/stable_hash.h"
#include "tandem/ir/operand.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tandem::ir {

/// Which integers and floating-point numbers go into a hash: a list still counts as its length.
enum class Numbers : uint8_t { All, None };

/// Adds operands to a hash, bit for bit. `value_of(ValueId)` says which number stands for a value;
/// it is not asked about kNoValue.
template <class ValueOf>
class OperandHasher {
 public:
  OperandHasher(shapes::StableHash& hash, ValueOf value_of, Numbers numbers = Numbers::All)
      : hash_(hash), value_of_(std::move(value_of)), numbers_(numbers) {}

  void add(const Operand& operand) {
    hash_.add(operand.data.index());
    std::visit([&](const auto& data) { this->data(data); }, operand.data);
  }
  void value(ValueId id) { hash_.add(id == kNoValue ? 0 : value_of_(id)); }

 private:
  void number(int64_t number) { hash_.add(static_cast<uint64_t>(number)); }

  void data(Operand::None) {}
  void data(ValueId id) { value(id); }
  void data(bool flag) { hash_.add(flag); }
  void data(const Size& size) {
    if (numbers_ == Numbers::All) hash_.add(size.hash());
  }
  void data(double number) {
    if (numbers_ == Numbers::All) hash_.add_double(number);
  }
  void data(const std::complex<double>& number) {
    if (numbers_ == Numbers::None) return;
    hash_.add_double(number.real()).add_double(number.imag());
  }
  void data(const std::string& text) { hash_.add(text); }
  void data(c10::ScalarType dtype) { number(static_cast<int64_t>(dtype)); }
  void data(c10::Layout layout) { number(static_cast<int64_t>(layout)); }
  void data(c10::MemoryFormat format) { number(static_cast<int64_t>(format)); }
  void data(const c10::Device& device) {
    number(static_cast<int64_t>(device.type()));
    number(device.index());
  }
  void data(GeneratorRef generator) { number(generator.index); }
  template <class T>
  void data(const std::vector<T>& list) {
    hash_.add(list.size());
    for (const T& element : list) data(element);
  }

  shapes::StableHash& hash_;
  ValueOf value_of_;
  Numbers numbers_;
};

}  // namespace tandem::ir
