#include "conformance/status.h"

#include <sstream>
#include <utility>

namespace tandem::conformance {

void Status::add(const std::string& category, const Case& item, Outcome outcome,
                 const Session& session) {
  ended_[{category, item.name}] = {outcome, item.standing};
  if (outcome == Outcome::Later) return;  // how far it came says nothing about modes
  for (const auto& [mode, count] : session.modes()) {
    modes_[mode].passed += count.passed;
    modes_[mode].failed += count.failed;
    modes_[mode].later += count.later;
  }
}

bool Status::has(const std::string& category, const std::string& name) const {
  return ended_.contains({category, name});
}

int Status::count(Outcome outcome) const {
  int count = 0;
  for (const auto& [key, ended] : ended_) count += ended.outcome == outcome;
  return count;
}

std::string Status::page(const std::vector<Category>& categories) const {
  std::ostringstream out;
  out << "# Status of the conformance suite\n\n"
         "Written by the test program of this folder (`README.md` says how); its test fails if "
         "this "
         "page is not what it would write.\n\n"
         "| category | cases | passed | failed | later | differs |\n"
         "| --- | ---: | ---: | ---: | ---: | ---: |\n";
  std::map<Outcome, int> total;
  size_t cases = 0;
  std::ostringstream later, differs;
  for (const Category& category : categories) {
    std::map<Outcome, int> counts;
    for (const Case& item : category.cases) {
      const auto found = ended_.find({category.name, item.name});
      if (found == ended_.end()) continue;
      const Ended& ended = found->second;
      ++counts[ended.outcome];
      ++total[ended.outcome];
      ++cases;
      if (ended.outcome == Outcome::Later) {
        later << "| " << category.name << " | `" << item.name << "` | "
              << name_of(ended.standing.feature) << " |\n";
      }
      if (ended.outcome == Outcome::Differs) {
        differs << "| " << category.name << " | `" << item.name << "` | " << ended.standing.words
                << " |\n";
      }
    }
    out << "| " << category.name << " | " << category.cases.size() << " | "
        << counts[Outcome::Passed] << " | " << counts[Outcome::Failed] << " | "
        << counts[Outcome::Later] << " | " << counts[Outcome::Differs] << " |\n";
  }
  out << "| **all** | " << cases << " | " << total[Outcome::Passed] << " | "
      << total[Outcome::Failed] << " | " << total[Outcome::Later] << " | "
      << total[Outcome::Differs] << " |\n\n";

  out << "## Modes\n\n"
         "Programs of the cases above that are judged against eager, by the way they are run; "
         "cases "
         "that are `later` are left out.\n\n"
         "| mode | passed | failed | later |\n| --- | ---: | ---: | ---: |\n";
  for (const std::string& mode : mode_names()) {
    const auto found = modes_.find(mode);
    const Session::ModeCount count = found == modes_.end() ? Session::ModeCount{} : found->second;
    out << "| " << mode << " | " << count.passed << " | " << count.failed << " | " << count.later
        << " |\n";
  }
  out << "\n## Later\n\nLegal programs, refused today because the feature is missing.\n\n"
         "| category | case | feature |\n| --- | --- | --- |\n"
      << later.str()
      << "\n## Differs\n\nWe do better or other on purpose; the case checks what we do instead.\n\n"
         "| category | case | why |\n| --- | --- | --- |\n"
      << differs.str();
  return out.str();
}

}  // namespace tandem::conformance
