#include "fuzz/workers.h"

#include "fuzz/check.h"
#include "fuzz/failure.h"

#include <ATen/Parallel.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>

namespace tandem::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

/// A worker that says nothing for so long hangs; shrinking counts as saying something.
constexpr double kSilence_s = 180;
constexpr double kSaveEvery_s = 5;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string one_line(std::string text) {
  text = text.substr(0, text.find('\n'));
  return text;
}

/// Numbers of arguments and results do not make another reason.
std::string reason_of(const std::string& refusal) {
  std::string text = one_line(refusal);
  std::string reason;
  bool in_brackets = false;
  for (char c : text) {
    if (c == '[' || c == '(') in_brackets = true;
    if (!in_brackets && !(c >= '0' && c <= '9')) reason += c;
    if (c == ']' || c == ')') in_brackets = false;
  }
  return reason;
}

bool is_shrunk(const RunOptions& options) {
  return !options.failures.empty() && !options.first_failure;
}

/// One program; what came of it as lines for the parent.
void work(uint64_t seed, const RunOptions& options, FILE* out) {
  const auto say = [&](const std::string& line) {
    std::fputs((line + '\n').c_str(), out);
    std::fflush(out);
  };
  say("begin " + std::to_string(seed));
  const ProgramSpec program = generate(seed, options.programs);
  const Verdict verdict = check(program);
  std::ostringstream pairs;
  for (const auto& [op, company] : drawn_pairs(program)) pairs << ' ' << op << ' ' << company;
  say("drawn" + pairs.str());
  if (verdict.eager_raised) say("sum eager_raised");
  if (verdict.eager_backward_raised) say("sum eager_backward_raised");
  switch (verdict.kind) {
    case Verdict::Kind::Passed:
      say("sum passed");
      break;
    case Verdict::Kind::Unseen:
      say("sum unseen");
      break;
    case Verdict::Kind::Refused:
      say("sum refused");
      say("refused " + reason_of(verdict.refusal));
      break;
    case Verdict::Kind::Failed: {
      say("sum failed");
      say("failure " + one_line(verdict.differences[0]).substr(0, 200));
      if (is_shrunk(options)) {
        const ProgramSpec small = shrink_failure(program, verdict);
        write_failure(options.failures, small, check(small).differences, true);
      }
      break;
    }
  }
  say("end " + std::to_string(seed));
}

struct Worker {
  std::vector<uint64_t> seeds;
  size_t next = 0;  // the first that is not done
  pid_t process = 0;
  int pipe = -1;
  std::string unread{};
  Clock::time_point heard{};
};

class Pool {
 public:
  Pool(const RunOptions& options, Ledger& ledger) : options_(options), ledger_(ledger) {
    workers_.resize(static_cast<size_t>(options.jobs));
    for (size_t i = 0; i < options.seeds.size(); ++i) {
      workers_[i % workers_.size()].seeds.push_back(options.seeds[i]);
    }
  }

  void run() {
    for (Worker& worker : workers_) start(worker);
    while (
        std::ranges::any_of(workers_, [](const Worker& worker) { return worker.process != 0; })) {
      listen();
      if (options_.first_failure && !ledger_.failures.empty()) stop();
      if (seconds_since(saved_) > kSaveEvery_s) save();
      if (!options_.quiet && seconds_since(shown_) > 1) show();
    }
    ledger_.sums["milliseconds"] +=
        static_cast<int64_t>(seconds_since(start_) * 1e3 * options_.jobs);
    save();
    if (!options_.quiet) {
      show();
      std::fputc('\n', stderr);
    }
  }

 private:
  void start(Worker& worker) {
    if (worker.next >= worker.seeds.size() || out_of_time()) return;
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("fuzz: no pipe");
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("fuzz: no process");
    if (child == 0) {
      close(ends[0]);
      at::set_num_threads(1);
      FILE* out = fdopen(ends[1], "w");
      for (size_t i = worker.next; i < worker.seeds.size() && !out_of_time(); ++i) {
        try {
          work(worker.seeds[i], options_, out);
        } catch (const std::exception& error) {
          std::fprintf(out, "sum failed\nfailure the fuzzer itself raised: %s\nend\n",
                       one_line(error.what()).c_str());
        }
      }
      std::fclose(out);
      _exit(0);
    }
    close(ends[1]);
    worker.process = child;
    worker.pipe = ends[0];
    worker.unread.clear();
    worker.heard = Clock::now();
  }

  /// What is under way is given up.
  void stop() {
    for (Worker& worker : workers_) {
      if (worker.process == 0) continue;
      kill(worker.process, SIGKILL);
      waitpid(worker.process, nullptr, 0);
      close(worker.pipe);
      worker.process = 0;
    }
  }

  bool out_of_time() const {
    return options_.time_limit_s > 0 && seconds_since(start_) > options_.time_limit_s;
  }

  void listen() {
    std::vector<pollfd> waiting;
    std::vector<Worker*> whose;
    for (Worker& worker : workers_) {
      if (worker.process == 0) continue;
      waiting.push_back({worker.pipe, POLLIN, 0});
      whose.push_back(&worker);
    }
    poll(waiting.data(), waiting.size(), 500);
    for (size_t i = 0; i < waiting.size(); ++i) {
      Worker& worker = *whose[i];
      if (waiting[i].revents == 0) {
        if (seconds_since(worker.heard) > kSilence_s) kill(worker.process, SIGKILL);
        continue;
      }
      char buffer[1 << 16];
      const ssize_t size = read(worker.pipe, buffer, sizeof buffer);
      if (size > 0) {
        worker.heard = Clock::now();
        worker.unread.append(buffer, static_cast<size_t>(size));
        read_lines(worker);
      } else {
        finish(worker);
      }
    }
  }

  void read_lines(Worker& worker) {
    for (size_t end; (end = worker.unread.find('\n')) != std::string::npos;) {
      const std::string line = worker.unread.substr(0, end);
      worker.unread.erase(0, end + 1);
      std::istringstream words(line);
      std::string kind, rest;
      words >> kind;
      if (kind == "drawn") {
        int company = 0;
        while (words >> rest >> company) ledger_.coverage.add(rest, company, 1);
      } else if (kind == "end") {
        ledger_.add_done(worker.seeds[worker.next]);
        ++worker.next;
      } else if (kind == "begin") {
        continue;
      } else {
        std::getline(words >> std::ws, rest);
        if (kind == "sum") ++ledger_.sums[rest];
        if (kind == "refused") ++ledger_.refusals[rest];
        if (kind == "failure") fail(worker, rest);
      }
    }
  }

  void fail(const Worker& worker, const std::string& why) {
    const uint64_t seed = worker.seeds[worker.next];
    ledger_.failures[seed] = why;
    std::printf("%sseed %llu: %s\n", options_.quiet ? "" : "\r",
                static_cast<unsigned long long>(seed), why.c_str());
    std::fflush(stdout);
  }

  /// The worker is at its end, or dead in the middle of a program.
  void finish(Worker& worker) {
    close(worker.pipe);
    int status = 0;
    waitpid(worker.process, &status, 0);
    worker.process = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    if (worker.next >= worker.seeds.size()) return;
    const uint64_t seed = worker.seeds[worker.next];
    ++ledger_.sums["crashed"];
    const std::string how = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an exception";
    fail(worker, "ended by " + how);
    if (is_shrunk(options_)) shrink_in_child(seed, how);
    ledger_.add_done(seed);
    ++worker.next;
    if (!options_.first_failure) start(worker);
  }

  /// Libtorch has run in none of the parent's threads, and shall not.
  void shrink_in_child(uint64_t seed, const std::string& how) {
    const pid_t child = fork();
    if (child == 0) {
      at::set_num_threads(1);
      try {
        const ProgramSpec program = generate(seed, options_.programs);
        write_failure(options_.failures, shrink_crash(program), {"ended by " + how}, false);
      } catch (...) {
      }
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }

  void show() {
    shown_ = Clock::now();
    size_t done = 0;
    for (const Worker& worker : workers_) done += worker.next;
    std::fprintf(
        stderr, "\r%zu of %zu programs, %lld failed, %lld crashed, %lld refused, %.1f ms each ",
        done, options_.seeds.size(), static_cast<long long>(ledger_.sums["failed"]),
        static_cast<long long>(ledger_.sums["crashed"]),
        static_cast<long long>(ledger_.sums["refused"]),
        done == 0 ? 0 : seconds_since(start_) * 1e3 * options_.jobs / static_cast<double>(done));
  }

  void save() {
    saved_ = Clock::now();
    if (!options_.ledger.empty()) ledger_.save(options_.ledger);
  }

  const RunOptions& options_;
  Ledger& ledger_;
  std::vector<Worker> workers_{};
  Clock::time_point start_ = Clock::now(), saved_ = Clock::now(), shown_{};
};

}  // namespace

void run_programs(const RunOptions& options, Ledger& ledger) { Pool(options, ledger).run(); }

bool run_one(uint64_t seed, const GenerateOptions& options, const std::filesystem::path& failures) {
  at::set_num_threads(1);
  const ProgramSpec program = generate(seed, options);
  std::cout << print(program) << std::flush;
  const Verdict verdict = check(program);
  if (verdict.kind == Verdict::Kind::Passed) std::cout << "like eager\n";
  if (verdict.kind == Verdict::Kind::Refused) std::cout << "refused: " << verdict.refusal << '\n';
  if (verdict.kind != Verdict::Kind::Failed) return true;
  for (const std::string& text : verdict.differences) std::cout << "  " << text << '\n';
  const ProgramSpec small = shrink_failure(program, verdict);
  std::cout << "shrunk:\n" << print(small);
  const std::vector<std::string> why = check(small).differences;
  for (const std::string& text : why) std::cout << "  " << text << '\n';
  if (!failures.empty()) write_failure(failures, small, why, true);
  return false;
}

}  // namespace tandem::fuzz
