#include "loops/host/host_list.h"
#include "tandem/ir/type.h"

#include <cmath>
#include <map>
#include <sstream>
#include <string>

namespace tandem::loops {
namespace {

std::string slots_text(const std::vector<Slot>& slots) {
  std::string text;
  for (Slot slot : slots) {
    if (!text.empty()) text += ", ";
    text += slot == kNoSlot ? "-" : "s" + std::to_string(slot);
  }
  return text;
}

/// The slots of values, and where kernels read them if that is another one.
std::string slots_text(const std::vector<Slot>& slots, const std::vector<Readable>& readable) {
  std::string text;
  for (size_t i = 0; i < slots.size(); ++i) {
    text += (i == 0 ? "" : ", ") + slots_text({slots[i]});
    const Slot read = readable[i].slot;
    if (read != kNoSlot && read != slots[i]) text += " read as s" + std::to_string(read);
  }
  return text;
}

template <class T>
std::string list_text(const std::vector<T>& values) {
  std::ostringstream out;
  out << '[';
  for (size_t i = 0; i < values.size(); ++i) out << (i == 0 ? "" : ", ") << values[i];
  out << ']';
  return out.str();
}

std::string bytes_text(int64_t bytes) {
  std::ostringstream out;
  out.precision(3);
  if (bytes >= 1 << 30) {
    out << static_cast<double>(bytes) / (1 << 30) << " GiB";
  } else if (bytes >= 1 << 20) {
    out << static_cast<double>(bytes) / (1 << 20) << " MiB";
  } else if (bytes >= 1 << 10) {
    out << static_cast<double>(bytes) / (1 << 10) << " KiB";
  } else {
    out << bytes << " bytes";
  }
  return out.str();
}

/// How long the best run took, and what that is beside a plain copy of as many bytes. Empty before
/// the first run.
std::string speed_text(const CompiledKernel* kernel, int64_t bytes, double copy_bytes_per_second) {
  const double seconds = kernel == nullptr ? 0 : kernel->best_seconds();
  if (seconds <= 0) return {};
  std::ostringstream out;
  const double microseconds = 1e6 * seconds;
  out.precision(microseconds < 100 ? 3 : 15);
  out << ", " << (microseconds < 100 ? microseconds : std::round(microseconds)) << " us";
  if (copy_bytes_per_second > 0) {
    const double share = static_cast<double>(bytes) / seconds / copy_bytes_per_second;
    out << ", " << std::llround(100 * share) << " % of copy bandwidth";
  }
  return out.str();
}

std::string ops_text(const std::vector<OpName>& ops) {
  std::string text;
  for (const OpName& op : ops) text += (text.empty() ? "" : ", ") + op.text();
  return text;
}

struct StepText {
  const HostList& list;
  std::ostream& out;

  void operator()(const KernelStep& step) const {
    out << step.name << '(' << slots_text(step.buffers) << ')';
    for (int32_t index : step.outputs) {
      const OutputTensor& tensor = list.tensors[static_cast<size_t>(index)];
      out << "  s" << tensor.slot << ": " << ir::to_string(*tensor.type);
      if (tensor.arena_offset >= 0) {
        out << " at " << tensor.arena_offset;
      } else {
        out << " new";
      }
    }
    out << "  # " << ops_text(step.op_names);
  }
  void operator()(const LibraryStep& step) const {
    std::vector<Slot> slots;
    for (const LibraryStep::Argument& argument : step.arguments) {
      for (const LibraryStep::Source& source : argument.sources)
        if (source.constant < 0) slots.push_back(source.slot);
    }
    out << slots_text(step.results, step.readable) << " = " << step.op.operator_name().name << '('
        << slots_text(slots) << ')';
  }
  void operator()(const ViewStepping& step) const {
    out << 's' << step.to << " = view(s" << step.from << ") " << list_text(step.sizes) << " "
        << list_text(step.strides) << " + " << step.offset;
  }
  void operator()(const EagerStep& step) const {
    out << slots_text(step.outputs) << " = eager(" << slots_text(step.inputs) << ')';
    if (!step.why.empty()) out << "  # " << step.why;
  }
};

}  // namespace

std::string OpName::text() const {
  return location.known() ? op + " at " + ir::to_string(location) : op;
}

std::string print(const HostList& list) {
  std::ostringstream out;
  out << "steps of " << list.name << "\n";
  out << "  inputs " << slots_text(list.inputs, list.readable_inputs) << "\n";
  out << "  arena " << list.arena_bytes << " bytes\n";
  for (const Step& step : list.steps) {
    out << "  ";
    std::visit(StepText{list, out}, step.what);
    if (!step.released.empty()) out << "  ; release " << slots_text(step.released);
    out << "\n";
  }
  out << "  return " << slots_text(list.outputs) << "\n";
  return out.str();
}

std::string report(const HostList& list, double copy_bytes_per_second) {
  int64_t launches = 0, moved = 0;
  std::map<std::string, int64_t> calls;
  std::ostringstream kernels, refused;
  for (const Step& step : list.steps) {
    if (const auto* kernel = std::get_if<KernelStep>(&step.what)) {
      ++launches;
      const int64_t bytes = kernel->bytes_read + kernel->bytes_written;
      moved += bytes;
      kernels << "  " << kernel->name << ": reads " << bytes_text(kernel->bytes_read) << ", writes "
              << bytes_text(kernel->bytes_written)
              << speed_text(list.compiled[static_cast<size_t>(kernel->kernel)].get(), bytes,
                            copy_bytes_per_second)
              << ": " << ops_text(kernel->op_names) << "\n";
    } else if (const auto* call = std::get_if<LibraryStep>(&step.what)) {
      ++calls[call->op.operator_name().name];
    } else if (const auto* eager = std::get_if<EagerStep>(&step.what);
               eager && !eager->why.empty()) {
      refused << "  in eager: " << ops_text(eager->op_names) << ": " << eager->why << "\n";
    }
  }
  std::ostringstream out;
  out << list.name << ": " << launches << (launches == 1 ? " kernel run, " : " kernel runs, ")
      << list.kernels.size() << " different, " << bytes_text(moved) << " moved, arena of "
      << bytes_text(list.arena_bytes) << "\n"
      << kernels.str() << refused.str();
  if (launches > 0 && copy_bytes_per_second > 0) {
    out << "  copy bandwidth: " << bytes_text(std::llround(copy_bytes_per_second)) << "/s\n";
  }
  if (!calls.empty()) {
    out << "  left to libtorch:";
    for (const auto& [name, count] : calls) out << ' ' << name << " x" << count;
    out << "\n";
  }
  return out.str();
}

}  // namespace tandem::loops
