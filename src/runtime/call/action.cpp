#include "runtime/call/action.h"

#include "base/error.h"

#include <array>
#include <utility>

namespace tandem::runtime {
namespace {

struct Row {
  Action::Do what;
  const char* name;
  bool has_at, has_source, has_number, has_part;
};

using enum Action::Do;
constexpr bool kNo = false;
constexpr bool kYes = true;

constexpr std::array kRows{
    //                         at    source number part
    Row{HoldInput, "hold input", kYes, kNo, kYes, kNo},
    Row{Take, "take", kYes, kNo, kYes, kNo},
    Row{Same, "same", kYes, kYes, kNo, kNo},
    Row{ReplayViews, "replay views", kNo, kNo, kYes, kNo},
    Row{RequireGrad, "require grad", kYes, kNo, kNo, kNo},
    Row{StopGrad, "stop grad", kYes, kNo, kNo, kNo},
    Row{Detach, "detach", kYes, kNo, kNo, kNo},
    Row{MakeNodes, "make nodes", kNo, kNo, kNo, kNo},
    Row{AddSlot, "add slot", kYes, kNo, kYes, kYes},
    Row{TakeEdge, "take edge", kNo, kNo, kYes, kNo},
    Row{Connect, "connect", kNo, kNo, kNo, kYes},
    Row{Attach, "attach", kYes, kNo, kNo, kYes},
    Row{SetHistory, "set history", kYes, kNo, kYes, kNo},
    Row{SetViewHistory, "set view history", kYes, kNo, kYes, kNo},
    Row{MarkCustomView, "mark custom view", kYes, kNo, kNo, kNo},
    Row{Write, "write", kYes, kNo, kYes, kNo},
    Row{ReplaceStorage, "replace storage", kYes, kNo, kYes, kNo},
    Row{SetStorage, "set storage", kYes, kNo, kNo, kNo},
    Row{ResizeStorage, "resize storage", kYes, kNo, kNo, kNo},
    Row{Grow, "grow", kYes, kNo, kNo, kNo},
    Row{Restride, "restride", kYes, kNo, kNo, kNo},
    Row{RestrideAsAView, "restride as a view", kYes, kNo, kNo, kNo},
    Row{MoveVersion, "move version", kYes, kNo, kYes, kNo},
    Row{RenewHistory, "renew history", kYes, kNo, kNo, kNo},
    Row{Save, "save", kNo, kNo, kNo, kNo},
    Row{AskHistory, "ask history", kYes, kNo, kNo, kNo},
    Row{KeepHistory, "keep history", kYes, kNo, kNo, kYes},
    Row{SetGradMode, "set grad mode", kNo, kNo, kYes, kNo},
};

constexpr bool in_order() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].what) != i) return false;
  }
  return true;
}
static_assert(in_order() && kRows.size() == static_cast<size_t>(SetGradMode) + 1);

}  // namespace

std::string to_string(const Action& action) {
  const Row& row = kRows[static_cast<size_t>(action.what)];
  std::string text = row.name;
  // Results have one node in nearly every call.
  if (row.has_part || action.part > 0) text += " part " + std::to_string(action.part);
  if (row.has_at) text += " " + ir::to_string(action.at);
  if (row.has_source) text += " is " + ir::to_string(action.source);
  if (row.has_number) text += ": " + std::to_string(action.number);
  return text;
}

}  // namespace tandem::runtime
