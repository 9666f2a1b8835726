#include "backends/llvm_cpu/code/code_image.h"

#include "base/error.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

namespace tandem::backends::llvm_cpu {
namespace {

constexpr int64_t kNotLoaded = -1;

/// The object file of one kernel and the image that becomes of it. The file comes straight from the
/// code generator of this process and is trusted to be well-formed.
class Linker {
 public:
  explicit Linker(const ObjectCode& object) : object_(object) {
    const auto& header = *at<Elf64_Ehdr>(0);
    sections_ = {at<Elf64_Shdr>(header.e_shoff), header.e_shnum};
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB) continue;
      symbols_ = {at<Elf64_Sym>(section.sh_offset), section.sh_size / sizeof(Elf64_Sym)};
      names_ = at<char>(sections_[section.sh_link].sh_offset);
    }
  }

  CodeImage run() && {
    for (const Elf64_Shdr& section : sections_) places_.push_back(place(section));
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == SHT_RELA && places_[section.sh_info] != kNotLoaded) relocate(section);
    }
    const auto entry = std::ranges::find_if(symbols_, [&](const Elf64_Sym& symbol) {
      return ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && object_.symbol == name(symbol);
    });
    TANDEM_CHECK(entry != symbols_.end(), "lower", "the object of ", object_.symbol,
                 " does not define it");
    image_.entry = address(*entry);
    return std::move(image_);
  }

 private:
  template <class T>
  const T* at(uint64_t offset) const {
    return reinterpret_cast<const T*>(object_.bytes.data() + offset);
  }
  const char* name(const Elf64_Sym& symbol) const { return names_ + symbol.st_name; }
  int64_t end() const { return static_cast<int64_t>(image_.bytes.size()); }
  void align(uint64_t bytes) {
    image_.bytes.resize((image_.bytes.size() + bytes - 1) / bytes * bytes);
  }

  /// Where in the image a section is; tables for the linker and for unwinding stay out.
  int64_t place(const Elf64_Shdr& section) {
    if (!(section.sh_flags & SHF_ALLOC) || section.sh_type == SHT_X86_64_UNWIND ||
        section.sh_size == 0) {
      return kNotLoaded;
    }
    TANDEM_CHECK(section.sh_type == SHT_PROGBITS && !(section.sh_flags & SHF_WRITE), "lower",
                 "the object of ", object_.symbol, " has data that is written");
    align(std::max<uint64_t>(section.sh_addralign, 16));
    const int64_t begin = end();
    image_.bytes.append(at<char>(section.sh_offset), section.sh_size);
    return begin;
  }

  int64_t address(const Elf64_Sym& symbol) const {
    TANDEM_CHECK(symbol.st_shndx < places_.size() && places_[symbol.st_shndx] != kNotLoaded,
                 "lower", "a kernel refers to ", name(symbol), ", which it does not have");
    return places_[symbol.st_shndx] + static_cast<int64_t>(symbol.st_value);
  }

  void relocate(const Elf64_Shdr& table) {
    const std::span<const Elf64_Rela> rows(at<Elf64_Rela>(table.sh_offset),
                                           table.sh_size / sizeof(Elf64_Rela));
    for (const Elf64_Rela& row : rows) {
      const Elf64_Sym& symbol = symbols_[ELF64_R_SYM(row.r_info)];
      const bool is_import = symbol.st_shndx == SHN_UNDEF;
      const int64_t from = places_[table.sh_info] + static_cast<int64_t>(row.r_offset);
      int64_t to = 0;
      switch (ELF64_R_TYPE(row.r_info)) {
        case R_X86_64_PC32:
        case R_X86_64_PLT32:
          to = is_import ? stub(name(symbol)) : address(symbol);
          break;
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX:
          TANDEM_CHECK(is_import, "lower", "a kernel takes the address of ", name(symbol));
          to = slot(name(symbol));
          break;
        default:
          TANDEM_CHECK(false, "lower", "the object of ", object_.symbol,
                       " has a relocation of type ", ELF64_R_TYPE(row.r_info));
      }
      put(from, to + row.r_addend - from);
    }
  }

  void put(int64_t at, int64_t distance) {
    const auto value = static_cast<int32_t>(distance);
    std::memcpy(image_.bytes.data() + at, &value, sizeof value);
  }

  /// Where the address of a function will be.
  int64_t slot(const std::string& function) {
    const auto [known, is_new] = slots_.try_emplace(function, 0);
    if (!is_new) return known->second;
    align(sizeof(void*));
    known->second = end();
    image_.bytes.append(sizeof(void*), '\0');
    image_.imports.push_back({known->second, function});
    return known->second;
  }

  /// `jmp *slot`: what a call can reach, wherever the function lies.
  int64_t stub(const std::string& function) {
    const auto [known, is_new] = stubs_.try_emplace(function, 0);
    if (!is_new) return known->second;
    const int64_t target = slot(function);
    known->second = end();
    image_.bytes.append("\xff\x25\0\0\0\0", 6);
    put(known->second + 2, target - end());
    return known->second;
  }

  const ObjectCode& object_;
  std::span<const Elf64_Shdr> sections_;
  std::span<const Elf64_Sym> symbols_;
  const char* names_ = nullptr;
  std::vector<int64_t> places_;  // of each section in the image
  std::map<std::string, int64_t> slots_, stubs_;
  CodeImage image_;
};

}  // namespace

CodeImage link(const ObjectCode& object) { return Linker(object).run(); }

}  // namespace tandem::backends::llvm_cpu
