#include "ir/shape_free.h"

#include "ir/text/signature_fields.h"
#include "shapes/stable_hash.h"

#include <algorithm>

/// The hash of a signature goes through the same list of fields as its text.
namespace tandem::ir {
namespace {

using shapes::StableHash;

/// Numbers that change with the sizes of a call.
constexpr std::string_view kLeftOut[] = {"offset", "offset_after", "bytes_after"};

class FieldHasher {
 public:
  template <class T>
  void add(const T& value) {
    if constexpr (Record<T>) {
      std::apply([&](const auto&... each) { (field(value, each), ...); }, fields(&value));
    } else if constexpr (is_vector<T>) {
      hash_.add(value.size());
      for (const auto& element : value) add(static_cast<const typename T::value_type&>(element));
    } else if constexpr (is_optional<T>) {
      hash_.add(value.has_value());
      if (value) add(*value);
    } else if constexpr (std::is_same_v<T, TypePtr>) {
      hash_.add(value ? shape_free_hash(*value) : 0);
    } else if constexpr (std::is_same_v<T, Descriptor>) {
      hash_.add(static_cast<uint64_t>(value.role)).add(static_cast<uint64_t>(value.index));
      hash_.add(value.name);
    } else if constexpr (std::is_same_v<T, Graph>) {
      hash_.add(shape_free_hash(value));
    } else {
      static_assert(std::is_enum_v<T> || std::integral<T>, "say what of it has no sizes");
      hash_.add(static_cast<uint64_t>(value));
    }
  }
  uint64_t value() const { return hash_.value(); }

 private:
  template <class T, class Field>
  void field(const T& value, const Field& field) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value.*(field.member))>,
                                 std::string>) {
      // Of what libtorch raises in a backward: its words may have numbers in them.
      hash_.add(!(value.*(field.member)).empty());
    } else {
      if (std::ranges::count(kLeftOut, std::string_view(field.name)) == 0)
        add(value.*(field.member));
    }
  }

  StableHash hash_;
};

}  // namespace

uint64_t shape_free_hash(const TensorType& type) {
  StableHash hash;
  hash.add(static_cast<uint64_t>(type.dtype)).add(static_cast<uint64_t>(type.layout));
  hash.add(static_cast<uint64_t>(type.device.type()));
  return hash.add(static_cast<uint64_t>(type.device.index())).add(type.sizes.size()).value();
}

uint64_t shape_free_hash(const Signature& signature) {
  FieldHasher hasher;
  hasher.add(signature);
  return hasher.value();
}

}  // namespace tandem::ir
