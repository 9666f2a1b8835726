#include "fuzz/failure.h"

#include "fuzz/shrink.h"
#include "fuzz/write_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace tandem::fuzz {
namespace {

/// What differs, without numbers and values.
std::string kind_of(const std::string& difference) {
  const size_t start = difference.find(": ");
  std::string text = start == std::string::npos ? difference : difference.substr(start + 2);
  text = text.substr(0, text.find(':'));
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

bool crashes(const ProgramSpec& program) {
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    alarm(60);
    try {
      check(program);
    } catch (...) {
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

}  // namespace

ProgramSpec shrink_failure(const ProgramSpec& program, const Verdict& verdict) {
  const std::string kind = kind_of(verdict.differences[0]);
  return shrink(program, [&](const ProgramSpec& candidate) {
    try {
      const Verdict other = check(candidate);
      if (other.kind != Verdict::Kind::Failed || other.eager_raised != verdict.eager_raised) {
        return false;
      }
      for (const std::string& text : other.differences) {
        if (kind_of(text) == kind) return true;
      }
    } catch (const std::exception&) {  // what makes the inputs does not run
    }
    return false;
  });
}

ProgramSpec shrink_crash(const ProgramSpec& program) { return shrink(program, crashes); }

void write_failure(const std::filesystem::path& folder, const ProgramSpec& program,
                   const std::vector<std::string>& why, bool with_graph) {
  const std::filesystem::path place = folder / ("seed-" + std::to_string(program.seed));
  std::filesystem::create_directories(place);
  std::ofstream(place / "program.cpp") << write_program(program, why);
  std::ofstream text(place / "why.txt");
  for (const std::string& line : why) text << line << '\n';
  text << '\n' << print(program);
  std::string graph = "the program kills its process: nothing to show\n";
  if (with_graph) graph = graph_text(program);
  std::ofstream(place / "graph.txt") << graph;
}

}  // namespace tandem::fuzz
