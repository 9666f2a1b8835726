#include "tracing/lines/debug_info.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace tandem::tracing {
namespace {

// What we use of libdw. It is loaded when a line is first asked for: the shipped library needs
// nothing but libtorch, and a program that never asks does not pay for it.
#define TANDEM_LIBDW_FUNCTIONS(X) \
  X(dwfl_begin)                   \
  X(dwfl_report_elf)              \
  X(dwfl_report_end)              \
  X(dwfl_module_nextcu)           \
  X(dwfl_module_addrinfo)         \
  X(dwfl_build_id_find_debuginfo) \
  X(dwfl_offline_section_address) \
  X(dwarf_ranges)                 \
  X(dwarf_haspc)                  \
  X(dwarf_tag)                    \
  X(dwarf_child)                  \
  X(dwarf_siblingof)              \
  X(dwarf_attr)                   \
  X(dwarf_formudata)              \
  X(dwarf_formstring)             \
  X(dwarf_getsrc_die)             \
  X(dwarf_linesrc)                \
  X(dwarf_lineno)                 \
  X(dwarf_getsrcfiles)            \
  X(dwarf_filesrc)

struct Libdw {
#define TANDEM_MEMBER(name) decltype(&::name) name = nullptr;
  TANDEM_LIBDW_FUNCTIONS(TANDEM_MEMBER)
#undef TANDEM_MEMBER

  bool load() {
    void* library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
#define TANDEM_LOAD(name)                                            \
  name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (name == nullptr) return false;
    TANDEM_LIBDW_FUNCTIONS(TANDEM_LOAD)
#undef TANDEM_LOAD
    return true;
  }
};

std::string demangled(const char* name) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                              std::free);
  return status == 0 && text ? text.get() : name;
}

/// The debug information of one file.
class ObjectFile {
 public:
  ObjectFile(const Libdw& dw, const LoadedObject& object) : dw_(dw) {
    // Looks for separate files by build id, beside the system's own; asks no server.
    static constexpr Dwfl_Callbacks kNothing{};
    callbacks_ = kNothing;
    callbacks_.find_debuginfo = dw_.dwfl_build_id_find_debuginfo;
    callbacks_.section_address = dw_.dwfl_offline_section_address;
    session_ = dw_.dwfl_begin(&callbacks_);
    if (session_ == nullptr) return;
    module_ = dw_.dwfl_report_elf(session_, object.path.c_str(), object.path.c_str(), -1,
                                  object.bias, /*add_p_vaddr=*/true);
    dw_.dwfl_report_end(session_, nullptr, nullptr);
    if (module_ != nullptr) index_units();
  }

  CodeLines at(uintptr_t address) {
    CodeLines result;
    if (module_ == nullptr) return result;
    GElf_Off offset = 0;
    GElf_Sym symbol;
    if (const char* name = dw_.dwfl_module_addrinfo(module_, address, &offset, &symbol, nullptr,
                                                    nullptr, nullptr)) {
      result.symbol = demangled(name);
      result.offset = offset;
    }
    if (Unit* unit = unit_of(address)) add_lines(*unit, address - unit->bias, result.lines);
    return result;
  }

 private:
  /// A piece of code and what it belongs to: an index into units_ or a unit's functions.
  struct Range {
    Dwarf_Addr begin, end;
    size_t of;
  };
  struct Unit {
    Dwarf_Die die{};
    Dwarf_Addr bias = 0;
    std::string folder;  // to take off paths; empty: they were given in full
    bool indexed = false;
    std::vector<Dwarf_Die> functions;
    std::vector<Range> code;
  };

  static const Range* find(const std::vector<Range>& ranges, Dwarf_Addr address) {
    auto after = std::ranges::upper_bound(ranges, address, {}, &Range::begin);
    if (after == ranges.begin() || address >= (after - 1)->end) return nullptr;
    return &*(after - 1);
  }

  void add_ranges(Dwarf_Die& die, Dwarf_Addr bias, size_t of, std::vector<Range>& ranges) {
    Dwarf_Addr base = 0, begin = 0, end = 0;
    std::ptrdiff_t at = 0;
    while ((at = dw_.dwarf_ranges(&die, at, &base, &begin, &end)) > 0) {
      // Code that the linker dropped stands at address 0.
      if (begin > 0 && begin < end) ranges.push_back({begin + bias, end + bias, of});
    }
  }

  std::optional<uint64_t> number(Dwarf_Die& die, unsigned name) {
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (dw_.dwarf_attr(&die, name, &attribute) == nullptr) return std::nullopt;
    if (dw_.dwarf_formudata(&attribute, &value) != 0) return std::nullopt;
    return value;
  }

  std::string text(Dwarf_Die& die, unsigned name) {
    Dwarf_Attribute attribute;
    if (dw_.dwarf_attr(&die, name, &attribute) == nullptr) return {};
    const char* value = dw_.dwarf_formstring(&attribute);
    return value ? value : "";
  }

  // Not through the file's own table of addresses, which clang does not write.
  void index_units() {
    Dwarf_Addr bias = 0;
    for (Dwarf_Die* die = nullptr;
         (die = dw_.dwfl_module_nextcu(module_, die, &bias)) != nullptr;) {
      Unit unit;
      unit.die = *die;
      unit.bias = bias;
      // A name that was given in full needs no folder.
      if (!text(unit.die, DW_AT_name).starts_with('/')) {
        unit.folder = text(unit.die, DW_AT_comp_dir) + "/";
      }
      add_ranges(unit.die, bias, units_.size(), unit_code_);
      units_.push_back(std::move(unit));
    }
    std::ranges::sort(unit_code_, {}, &Range::begin);
  }

  Unit* unit_of(uintptr_t address) {
    const Range* range = find(unit_code_, address);
    return range ? &units_[range->of] : nullptr;
  }

  template <class Fn>
  void for_each_child(Dwarf_Die& parent, Fn&& fn) {
    Dwarf_Die child;
    if (dw_.dwarf_child(&parent, &child) != 0) return;
    do {
      fn(child);
    } while (dw_.dwarf_siblingof(&child, &child) == 0);
  }

  void index_functions(Unit& unit, Dwarf_Die& parent) {
    for_each_child(parent, [&](Dwarf_Die& die) {
      const int tag = dw_.dwarf_tag(&die);
      if (tag == DW_TAG_namespace) index_functions(unit, die);
      if (tag != DW_TAG_subprogram) return;
      const size_t before = unit.code.size();
      add_ranges(die, 0, unit.functions.size(), unit.code);
      if (unit.code.size() > before) unit.functions.push_back(die);
    });
  }

  /// Inlined calls around `address` inside `parent`, outermost first.
  void find_inlined(Dwarf_Die& parent, Dwarf_Addr address, std::vector<Dwarf_Die>& calls) {
    std::optional<Dwarf_Die> inside;
    for_each_child(parent, [&](Dwarf_Die& die) {
      const int tag = dw_.dwarf_tag(&die);
      if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_lexical_block) return;
      if (!inside && dw_.dwarf_haspc(&die, address) > 0) inside = die;
    });
    if (!inside) return;
    if (dw_.dwarf_tag(&*inside) == DW_TAG_inlined_subroutine) calls.push_back(*inside);
    find_inlined(*inside, address, calls);
  }

  static std::string path_of(const Unit& unit, const char* file) {
    if (file == nullptr) return {};
    std::string path = std::filesystem::path(file).lexically_normal().string();
    if (!unit.folder.empty() && path.starts_with(unit.folder)) path.erase(0, unit.folder.size());
    return path;
  }

  void add_lines(Unit& unit, Dwarf_Addr address, std::vector<ir::SourceLine>& lines) {
    Dwarf_Line* row = dw_.dwarf_getsrc_die(&unit.die, address);
    if (row == nullptr) return;
    int line = 0;
    dw_.dwarf_lineno(row, &line);
    lines.push_back({path_of(unit, dw_.dwarf_linesrc(row, nullptr, nullptr)), line});

    if (!unit.indexed) {
      index_functions(unit, unit.die);
      std::ranges::sort(unit.code, {}, &Range::begin);
      unit.indexed = true;
    }
    const Range* function = find(unit.code, address);
    Dwarf_Files* files = nullptr;
    if (function == nullptr || dw_.dwarf_getsrcfiles(&unit.die, &files, nullptr) != 0) return;
    std::vector<Dwarf_Die> calls;
    find_inlined(unit.functions[function->of], address, calls);
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      const auto file = number(*call, DW_AT_call_file);
      const auto call_line = number(*call, DW_AT_call_line);
      if (!file || !call_line) continue;
      lines.push_back({path_of(unit, dw_.dwarf_filesrc(files, *file, nullptr, nullptr)),
                       static_cast<int64_t>(*call_line)});
    }
  }

  const Libdw& dw_;
  Dwfl_Callbacks callbacks_;
  Dwfl* session_ = nullptr;  // never ended: it lives as long as the process
  Dwfl_Module* module_ = nullptr;
  std::vector<Unit> units_;
  std::vector<Range> unit_code_;
};

CodeLines exported_symbol(uintptr_t address) {
  CodeLines result;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(address), &info) != 0 && info.dli_sname != nullptr) {
    result.symbol = demangled(info.dli_sname);
    result.offset = address - reinterpret_cast<uintptr_t>(info.dli_saddr);
  }
  return result;
}

/// All that has been read in this process.
class DebugInfo {
 public:
  DebugInfo() : has_libdw_(dw_.load()) {}

  const CodeLines& at(const LoadedObject& object, uintptr_t address) {
    std::lock_guard lock(mutex_);
    File& file = files_[{object.path, object.bias}];
    if (has_libdw_ && !file.reader) file.reader = std::make_unique<ObjectFile>(dw_, object);
    if (auto known = file.known.find(address); known != file.known.end()) return known->second;
    lookups_.fetch_add(1, std::memory_order_relaxed);
    CodeLines lines = has_libdw_ ? file.reader->at(address) : exported_symbol(address);
    return file.known.emplace(address, std::move(lines)).first->second;
  }

  static inline std::atomic<int64_t> lookups_{0};

 private:
  struct File {
    std::unique_ptr<ObjectFile> reader;
    std::unordered_map<uintptr_t, CodeLines> known;  // its elements stay where they are
  };
  std::mutex mutex_;
  Libdw dw_;
  const bool has_libdw_;
  std::map<std::pair<std::string, uintptr_t>, File> files_;
};

}  // namespace

const CodeLines& code_lines(const LoadedObject& object, uintptr_t address) {
  static auto& info = *new DebugInfo;  // never destroyed: an error at exit may still ask
  return info.at(object, address);
}

int64_t code_line_lookups() { return DebugInfo::lookups_.load(std::memory_order_relaxed); }

}  // namespace tandem::tracing
