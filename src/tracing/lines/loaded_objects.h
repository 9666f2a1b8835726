#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::tracing {

/// The program or a shared library, where it lay in memory.
struct LoadedObject {
  std::string path;
  uintptr_t bias = 0;     // address in memory minus address in the file
  bool platform = false;  // libtorch, Tandem or the language's runtime: no code of the user
};

/// Which object holds which address, as of one moment: stays right when an object is unloaded and
/// another one takes its place.
class LoadedObjects {
 public:
  /// The same snapshot until an object is loaded or unloaded.
  static std::shared_ptr<const LoadedObjects> now();

  /// Null: no object holds it, as for code that was generated at run time.
  const LoadedObject* find(uintptr_t address) const;

 private:
  struct Segment {
    uintptr_t begin, end;
    uint32_t object;
  };
  void add(const char* name, uintptr_t bias, std::vector<Segment> code);

  std::vector<LoadedObject> objects_;
  std::vector<Segment> segments_;  // executable ones, sorted
};

}  // namespace tandem::tracing
