#pragma once

#include "ir/text/parser.h"
#include "ir/text/printer.h"

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::ir {

/// A field of a record that is no text: machine code, what a backend has stored.
struct Bytes {
  std::string data;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

/// What the text of records refers to by number: bytes, tensor constants too large to read, and
/// generators.
class Attachments final : public ConstantStore, public ConstantSource {
 public:
  Attachments() = default;
  explicit Attachments(std::vector<std::string> all) : all_(std::move(all)) {}

  int64_t add(std::string bytes);
  /// Null if there is none of this number.
  const std::string* find(int64_t index) const;
  const std::vector<std::string>& all() const { return all_; }

  /// Generators belong to a process. Their numbers are given in the order in which they are met;
  /// what is read has others in their place, each number the same one.
  int64_t number_of(const at::Generator& generator);
  std::optional<at::Generator> generator(int64_t number);

  bool takes(const at::Tensor& constant) const override;
  void append_reference(std::string& out, const at::Tensor& constant) override;
  std::string load(int64_t index, uint64_t checksum, std::vector<std::byte>& bytes) override;

 private:
  std::vector<std::string> all_;
  std::vector<at::Generator> generators_;
};

/// A text with its attachments as one string of bytes; a checksum tells when it is damaged.
struct Packed {
  std::string text;
  std::vector<std::string> attachments{};
};
std::string pack(const Packed& packed);
/// A UserError says what is wrong with the bytes.
Packed unpack(std::string_view bytes);

}  // namespace tandem::ir
