#include "base/error.h"
#include "ir/tensor_data.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "shapes/stable_hash.h"
#include "tandem/ir/text.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

// Layout of a side file, all numbers little-endian (docs/reference/graph-text.md has the same
// table):
//   8 bytes  "TDMCONST"
//   u32      version, 1
//   u32      number of constants n
//   n times  u64 offset of its elements in the file, u64 their bytes
//   elements in row-major order, every constant at a multiple of 64
namespace tandem::ir {
namespace {

static_assert(std::endian::native == std::endian::little,
              "side files are written as memory has them");

constexpr uint64_t kAlignment = 64;
constexpr std::string_view kConstantsMagic = "TDMCONST";
constexpr uint32_t kVersion = 1;

struct FileHeader {
  std::array<char, 8> magic{};
  uint32_t version = kVersion;
  uint32_t count = 0;
};
struct FileEntry {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

std::filesystem::path side_file(const std::filesystem::path& file) {
  std::filesystem::path side = file;
  side += ".constants";
  return side;
}

uint64_t checksum(std::span<const std::byte> bytes) {
  return shapes::StableHash()
      .add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
      .value();
}

template <class T>
void write_raw(std::ostream& out, const T& data) {
  out.write(reinterpret_cast<const char*>(&data), sizeof(T));
}

template <class T>
bool read_raw(std::istream& in, T& data) {
  return static_cast<bool>(in.read(reinterpret_cast<char*>(&data), sizeof(T)));
}

/// Writes beside the target and renames, so that a reader never sees half a file.
template <class Fn>
void write_whole(const std::filesystem::path& file, Fn&& fn) {
  std::filesystem::path temporary = file;
  temporary += ".part";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  if (out) fn(out);
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(temporary, file, error);
  bool written = out && !error;
  if (!written) std::filesystem::remove(temporary, error);
  TANDEM_REQUIRE(written, "write", "cannot write ", file.string(),
                 "\n  remedy: check that the folder exists, is writable and has space");
}

class SideFileWriter : public ConstantStore {
 public:
  bool takes(const at::Tensor& constant) const override {
    return constant.numel() > kInlineElements;
  }

  void append_reference(std::string& out, const at::Tensor& constant) override {
    out += '@';
    out += std::to_string(constants_.size());
    out += ':';
    uint64_t sum = checksum(constant_bytes(constant));
    for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[sum >> shift & 15];
    constants_.push_back(constant);
  }

  void write(const std::filesystem::path& file) const {
    if (constants_.empty()) return;
    write_whole(file, [&](std::ostream& out) {
      FileHeader header;
      std::memcpy(header.magic.data(), kConstantsMagic.data(), kConstantsMagic.size());
      header.count = static_cast<uint32_t>(constants_.size());
      write_raw(out, header);
      uint64_t offset = sizeof(FileHeader) + constants_.size() * sizeof(FileEntry);
      for (const at::Tensor& constant : constants_) {
        FileEntry entry{aligned(offset),
                        static_cast<uint64_t>(constant.numel()) * constant.element_size()};
        write_raw(out, entry);
        offset = entry.offset + entry.bytes;
      }
      offset = sizeof(FileHeader) + constants_.size() * sizeof(FileEntry);
      for (const at::Tensor& constant : constants_) {
        std::string padding(aligned(offset) - offset, '\0');
        std::vector<std::byte> bytes = constant_bytes(constant);
        out << padding;
        out.write(reinterpret_cast<const char*>(bytes.data()),
                  static_cast<std::streamsize>(bytes.size()));
        offset += padding.size() + bytes.size();
      }
    });
  }

 private:
  static uint64_t aligned(uint64_t offset) {
    return (offset + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::vector<at::Tensor> constants_;
};

class SideFileReader : public ConstantSource {
 public:
  explicit SideFileReader(std::filesystem::path file) : file_(std::move(file)) {}

  std::string load(int64_t index, uint64_t expected, std::vector<std::byte>& bytes) override {
    std::string name = file_.string();
    if (!in_.is_open()) {
      in_.open(file_, std::ios::binary);
      if (!in_) return base::str("cannot read the side file ", name);
      if (std::string problem = read_table(); !problem.empty()) return problem;
    }
    if (index < 0 || index >= static_cast<int64_t>(entries_.size())) {
      return base::str("constant @", index, " is not in ", name, ", which holds ", entries_.size());
    }
    const FileEntry& entry = entries_[static_cast<size_t>(index)];
    bytes.resize(entry.bytes);
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(entry.offset));
    in_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(entry.bytes));
    if (!in_ || checksum(bytes) != expected) {
      return base::str(
          "constant @", index, " in ", name,
          " does not match its checksum\n  remedy: the side file is damaged or belongs to "
          "another graph; write both again with ir::write_file");
    }
    return {};
  }

 private:
  std::string read_table() {
    std::string name = file_.string();
    FileHeader header;
    if (!read_raw(in_, header) ||
        std::string_view(header.magic.data(), header.magic.size()) != kConstantsMagic) {
      return base::str(name, " is not a file of constants");
    }
    if (header.version != kVersion) {
      return base::str(name, " has version ", header.version, ", expected ", kVersion);
    }
    // Sizes come from the file: check them against its length before memory is asked for.
    uint64_t length = std::filesystem::file_size(file_);
    if (header.count > length / sizeof(FileEntry)) return base::str(name, " is cut off");
    entries_.resize(header.count);
    for (FileEntry& entry : entries_) {
      if (!read_raw(in_, entry) || entry.offset > length || entry.bytes > length - entry.offset) {
        return base::str(name, " is cut off");
      }
    }
    return {};
  }

  std::filesystem::path file_;
  std::ifstream in_;
  std::vector<FileEntry> entries_;
};

}  // namespace

void write_file(const std::filesystem::path& file, std::span<const Graph> graphs) {
  SideFileWriter side;
  std::string text;
  for (const Graph& graph : graphs) {
    if (!text.empty()) text += '\n';
    append_graph(text, graph, &side);
  }
  // The text last: it is what names the other.
  side.write(side_file(file));
  write_whole(file, [&](std::ostream& out) { out << text; });
}

std::vector<Graph> read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  TANDEM_REQUIRE(in && text, "parse", "cannot read ", file.string());
  SideFileReader side(side_file(file));
  try {
    return parse_graphs(text.view(), &side);
  } catch (const UserError& error) {
    std::string_view what = error.what();
    what.remove_prefix(error.stage().size() + 2);
    throw UserError(error.stage(), base::str(what, "\n  file:   ", file.string()));
  }
}

}  // namespace tandem::ir
