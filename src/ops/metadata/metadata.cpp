#include "ops/metadata/metadata.h"

#include "base/error.h"
#include "ir/text/op_names.h"
#include "libtorch/thread_state.h"
#include "ops/metadata/kernel_answers.h"
#include "ops/metadata/meta_tensor.h"
#include "ops/metadata/refusals.h"
#include "ops/op_table.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <bit>
#include <cstring>
#include <deque>
#include <unordered_set>

namespace tandem::ops {
namespace {

struct TypeHash {
  using is_transparent = void;
  size_t operator()(const ir::TensorType& type) const { return type.hash(); }
  size_t operator()(const ir::TypePtr& type) const { return type->hash(); }
};

struct TypeEqual {
  using is_transparent = void;
  bool operator()(const ir::TypePtr& a, const ir::TypePtr& b) const { return *a == *b; }
  bool operator()(const ir::TensorType& a, const ir::TypePtr& b) const { return a == *b; }
  bool operator()(const ir::TypePtr& a, const ir::TensorType& b) const { return *a == b; }
};

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

uint64_t hash_words(const std::vector<uint64_t>& words) {
  uint64_t hash = words.size();
  for (uint64_t word : words) hash = mix(hash, word);
  return hash;
}

/// Writes a call as words, each value after a tag and lists after their length, so that two calls
/// have the same words exactly if they are the same call.
class KeyWriter {
 public:
  KeyWriter(std::vector<uint64_t>& words, MetadataPropagator& propagator,
            MetadataPropagator::MetaOf meta_of)
      : words_(words), propagator_(propagator), meta_of_(meta_of) {}

  void add_word(uint64_t word) { words_.push_back(word); }

  /// False: a value that has no key; the call is then not remembered.
  bool add(const c10::IValue& value) {
    if (value.isTensor()) {
      add_tensor(value.toTensor());
    } else if (value.isNone()) {
      add_word(kNone);
    } else if (value.isInt()) {
      add_tagged(kInt, static_cast<uint64_t>(value.toInt()));
    } else if (value.isBool()) {
      add_tagged(kBool, value.toBool() ? 1 : 0);
    } else if (value.isDouble()) {
      add_tagged(kDouble, std::bit_cast<uint64_t>(value.toDouble()));
    } else if (value.isList()) {
      c10::ArrayRef<c10::IValue> elements = value.toListRef();
      add_tagged(kList, elements.size());
      for (const c10::IValue& element : elements) {
        if (!add(element)) return false;
      }
    } else if (value.isDevice()) {
      c10::Device device = value.toDevice();
      add_tagged(kDevice,
                 static_cast<uint64_t>(device.type()) << 8 | static_cast<uint8_t>(device.index()));
    } else if (value.isString()) {
      add_string(value.toStringRef());
    } else if (value.isComplexDouble()) {
      c10::complex<double> number = value.toComplexDouble();
      add_tagged(kComplex, std::bit_cast<uint64_t>(number.real()));
      add_word(std::bit_cast<uint64_t>(number.imag()));
    } else if (value.isGenerator()) {
      add_word(kGenerator);  // which one does not matter to metadata
    } else {
      return false;
    }
    return true;
  }

 private:
  enum Tag : uint64_t {
    kUndefined,
    kTensor,
    kNone,
    kInt,
    kBool,
    kDouble,
    kList,
    kDevice,
    kString,
    kComplex,
    kGenerator
  };

  void add_tagged(Tag tag, uint64_t word) {
    words_.push_back(tag);
    words_.push_back(word);
  }

  void add_tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return add_word(kUndefined);
    TensorMeta meta = meta_of_(propagator_, tensor);
    add_tagged(kTensor, reinterpret_cast<uint64_t>(meta.type.get()));
    add_word(static_cast<uint64_t>(meta.offset));
    add_word(static_cast<uint64_t>(meta.wrapped_number) |
             static_cast<uint64_t>(meta.conjugate) << 1 |
             static_cast<uint64_t>(meta.negative) << 2);
  }

  void add_string(const std::string& text) {
    add_tagged(kString, text.size());
    for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
      add_word(word);
    }
  }

  std::vector<uint64_t>& words_;
  MetadataPropagator& propagator_;
  MetadataPropagator::MetaOf meta_of_;
};

void refuse_if_data_decides(const MetaCall& call) {
  const OpInfo& facts = info(call.op);
  if (facts.reads_data) {
    const bool number = call.op.schema().name() == "aten::_local_scalar_dense";
    TANDEM_UNSUPPORTED(
        "trace", number ? "item() or a branch on a tensor" : ir::op_text(call.op),
        " reads the value of a tensor, which a trace does not have",
        "\n  operands: ", operand_types(call),
        "\n  remedy:   read it outside the compiled function and pass the number as an "
        "argument, or keep the computation on tensors (torch::where instead of if)");
  }
  if (facts.data_dependent_shape) {
    TANDEM_UNSUPPORTED(
        "trace", ir::op_text(call.op), " has a result whose size depends on data",
        "\n  operands: ", operand_types(call),
        "\n  remedy:   use a form with a fixed size (torch::where, masked_fill, a mask that "
        "multiplies), or call it outside the compiled function");
  }
}

}  // namespace

struct MetadataPropagator::Memo {
  struct Entry {
    std::vector<uint64_t> key;
    std::vector<MetaResult> results;
    std::vector<ir::TypePtr> operand_types;  // keeps alive whose addresses are in the key
    std::unique_ptr<Entry> next;             // another call with the same hash
  };

  std::unordered_set<ir::TypePtr, TypeHash, TypeEqual> types;
  std::unordered_map<uint64_t, std::unique_ptr<Entry>> entries;
  std::deque<std::vector<MetaResult>> without_key;
  std::vector<uint64_t> key;  // of the call being looked up; kept to allocate nothing on a hit

  const Entry* find(uint64_t hash) const {
    auto found = entries.find(hash);
    const Entry* entry = found == entries.end() ? nullptr : found->second.get();
    while (entry && entry->key != key) entry = entry->next.get();
    return entry;
  }
};

MetadataPropagator::MetadataPropagator() : memo_(std::make_unique<Memo>()) {}
MetadataPropagator::~MetadataPropagator() = default;

ir::TypePtr MetadataPropagator::intern(ir::TensorType type) {
  if (auto found = memo_->types.find(type); found != memo_->types.end()) return *found;
  return *memo_->types.insert(std::make_shared<const ir::TensorType>(std::move(type))).first;
}

TensorMeta MetadataPropagator::meta_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  TensorMeta meta;
  meta.type = intern(type_on(tensor, tensor.device()));
  meta.offset = tensor.storage_offset();
  meta.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  meta.conjugate = tensor.is_conj();
  meta.negative = tensor.is_neg();
  return meta;
}

const std::vector<MetaResult>& MetadataPropagator::propagate(const c10::OperatorHandle& op,
                                                             std::span<const c10::IValue> args,
                                                             MetaOf meta_of, bool must_run) {
  memo_->key.clear();
  KeyWriter writer(memo_->key, *this, meta_of);
  writer.add_word(reinterpret_cast<uint64_t>(&op.schema()));
  writer.add_word(libtorch::metadata_switches());
  bool has_key = true;
  for (const c10::IValue& arg : args) has_key = has_key && writer.add(arg);
  uint64_t hash = has_key ? hash_words(memo_->key) : 0;
  if (has_key) {
    if (const Memo::Entry* entry = memo_->find(hash)) {
      ++counts_.memo;
      return entry->results;
    }
  }

  const auto& arguments = op.schema().arguments();
  TANDEM_CHECK(args.size() == arguments.size(), "trace", ir::op_text(op), " got ", args.size(),
               " arguments, its schema has ", arguments.size());
  std::vector<MetaArg> meta_args;
  meta_args.reserve(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    meta_args.push_back(to_meta_arg(args[i], arguments[i].type(), [&](const at::Tensor& tensor) {
      return meta_of(*this, tensor);
    }));
  }
  MetaCall call{op, meta_args};
  refuse_if_data_decides(call);

  KernelsOnly below_tracing;
  std::optional<std::vector<MetaResult>> results;
  if (MetadataRule rule = metadata_rule(op)) results = rule(call);
  if (results) {
    ++counts_.rules;
  } else if ((results = ask_meta_kernel(call))) {
    ++counts_.meta_kernels;
  } else {
    results = ask_kernel_on_zeros(call);
    ++counts_.zeros;
  }
  if (must_run) raise_refusal(call, *results);
  for (MetaResult& result : *results) {
    for (TensorMeta& tensor : result.tensors) {
      if (tensor.type) tensor.type = intern(*tensor.type);
    }
  }

  if (!has_key) return memo_->without_key.emplace_back(std::move(*results));
  auto entry = std::make_unique<Memo::Entry>();
  entry->key = memo_->key;
  entry->results = std::move(*results);
  for (const MetaArg& arg : meta_args) {
    for (const TensorMeta& tensor : arg.tensors) entry->operand_types.push_back(tensor.type);
  }
  std::unique_ptr<Memo::Entry>& slot = memo_->entries[hash];
  entry->next = std::move(slot);
  slot = std::move(entry);
  return slot->results;
}

}  // namespace tandem::ops
