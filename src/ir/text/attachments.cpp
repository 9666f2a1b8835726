#include "ir/text/attachments.h"

#include "base/error.h"
#include "ir/tensor_data.h"
#include "shapes/stable_hash.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

// Layout of a packed record, all numbers little-endian:
//   8 bytes  "TDMPACK1"
//   u64      checksum of all that follows
//   u64      bytes of the text
//   u64      number of attachments n
//   n times  u64 bytes of the attachment
//   the text, then the attachments
namespace tandem::ir {
namespace {

static_assert(std::endian::native == std::endian::little, "packed as memory has it");

constexpr std::string_view kRecordMagic = "TDMPACK1";
constexpr int64_t kUndefined = -1, kMostGenerators = 10000;

uint64_t checksum(std::string_view bytes) { return shapes::StableHash().add(bytes).value(); }

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void append(std::string& out, uint64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// Takes from the front of what is left; every length is checked against what is there.
class Taker {
 public:
  explicit Taker(std::string_view bytes) : rest_(bytes) {}
  std::string_view take(uint64_t bytes) {
    TANDEM_REQUIRE(bytes <= rest_.size(), "read", "a stored record is cut off",
                   "\n  remedy: store it again");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  uint64_t number() {
    uint64_t number = 0;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace

int64_t Attachments::add(std::string bytes) {
  all_.push_back(std::move(bytes));
  return static_cast<int64_t>(all_.size()) - 1;
}

const std::string* Attachments::find(int64_t index) const {
  const bool known = index >= 0 && static_cast<size_t>(index) < all_.size();
  return known ? &all_[static_cast<size_t>(index)] : nullptr;
}

int64_t Attachments::number_of(const at::Generator& generator) {
  if (!generator.defined()) return kUndefined;
  const auto known = std::ranges::find(generators_, generator);
  const int64_t number = known - generators_.begin();
  if (known == generators_.end()) generators_.push_back(generator);
  return number;
}

std::optional<at::Generator> Attachments::generator(int64_t number) {
  if (number == kUndefined) return at::Generator();
  if (number < 0 || number >= kMostGenerators) return std::nullopt;
  while (generators_.size() <= static_cast<size_t>(number))
    generators_.push_back(at::detail::createCPUGenerator());
  return generators_[static_cast<size_t>(number)];
}

bool Attachments::takes(const at::Tensor& constant) const {
  return constant.numel() > kInlineElements;
}

void Attachments::append_reference(std::string& out, const at::Tensor& constant) {
  // The checksum of the whole covers it.
  out += base::str("@", add(std::string(as_text(constant_bytes(constant)))), ":0");
}

std::string Attachments::load(int64_t index, uint64_t /*checksum*/, std::vector<std::byte>& bytes) {
  const std::string* const found = find(index);
  if (!found) return base::str("there is no attachment ", index);
  bytes.resize(found->size());
  std::memcpy(bytes.data(), found->data(), found->size());
  return {};
}

std::string pack(const Packed& packed) {
  std::string body;
  append(body, packed.text.size());
  append(body, packed.attachments.size());
  for (const std::string& attachment : packed.attachments) append(body, attachment.size());
  body += packed.text;
  for (const std::string& attachment : packed.attachments) body += attachment;
  std::string out(kRecordMagic);
  append(out, checksum(body));
  return out += body;
}

Packed unpack(std::string_view bytes) {
  TANDEM_REQUIRE(bytes.starts_with(kRecordMagic), "read", "this is no stored record",
                 "\n  remedy: store it again with this version of Tandem");
  Taker in(bytes.substr(kRecordMagic.size()));
  const uint64_t expected = in.number();
  TANDEM_REQUIRE(checksum(in.rest()) == expected, "read", "a stored record is damaged",
                 "\n  remedy: store it again");
  const uint64_t text = in.number();
  // One length per attachment must be there before memory is taken for them.
  const uint64_t count = in.number();
  Taker sizes(in.take(count > bytes.size() ? bytes.size() : count * sizeof(uint64_t)));
  Packed packed{.text = std::string(in.take(text))};
  for (uint64_t i = 0; i < count; ++i) packed.attachments.emplace_back(in.take(sizes.number()));
  return packed;
}

}  // namespace tandem::ir
