#include "tracing/lines/loaded_objects.h"

#include <link.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <string_view>

namespace tandem::tracing {
namespace {

bool is_platform(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const char* prefix :
       {"libtorch.so", "libtorch_cpu.so", "libtorch_cuda", "libtorch_python.so", "libc10.so",
        "libc10_", "libtandem.so", "libc.so", "libstdc++.so", "libgcc_s.so", "libm.so", "ld-linux",
        "linux-vdso"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

/// How often the dynamic linker has loaded and unloaded something.
struct Changes {
  unsigned long long loaded = 0, unloaded = 0;
  friend bool operator==(const Changes&, const Changes&) = default;
};

Changes changes_now() {
  Changes changes;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<Changes*>(out) = {info->dlpi_adds, info->dlpi_subs};
        return 1;  // the same in every call
      },
      &changes);
  return changes;
}

}  // namespace

std::shared_ptr<const LoadedObjects> LoadedObjects::now() {
  static std::mutex mutex;
  static Changes of_last;
  // Leaked: a trace may still run in another thread while the process ends.
  static auto& last = *new std::shared_ptr<const LoadedObjects>;

  std::lock_guard lock(mutex);
  const Changes changes = changes_now();
  if (last && changes == of_last) return last;
  auto objects = std::make_shared<LoadedObjects>();
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        std::vector<Segment> code;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD || !(header.p_flags & PF_X)) continue;
          const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          code.push_back({begin, begin + header.p_memsz, 0});
        }
        static_cast<LoadedObjects*>(out)->add(info->dlpi_name, info->dlpi_addr, std::move(code));
        return 0;
      },
      objects.get());
  std::ranges::sort(objects->segments_, {}, &Segment::begin);
  of_last = changes;
  last = objects;
  return last;
}

void LoadedObjects::add(const char* name, uintptr_t bias, std::vector<Segment> code) {
  LoadedObject object{.path = name, .bias = bias};
  if (object.path.empty()) {  // the program itself
    std::error_code error;
    object.path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  }
  object.platform = is_platform(object.path);
  for (Segment& segment : code) {
    segment.object = static_cast<uint32_t>(objects_.size());
    segments_.push_back(segment);
  }
  objects_.push_back(std::move(object));
}

const LoadedObject* LoadedObjects::find(uintptr_t address) const {
  auto after = std::ranges::upper_bound(segments_, address, {}, &Segment::begin);
  if (after == segments_.begin() || address >= (after - 1)->end) return nullptr;
  return &objects_[(after - 1)->object];
}

}  // namespace tandem::tracing
