#include "commands.h"
#include "tandem/about.h"
#include "tandem/error.h"
#include "tandem/options.h"

#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <exception>
#include <functional>
#include <iostream>

namespace {

using namespace tandem::cli;

enum ExitCode { kOk = 0, kWrongInput = 1, kWrongUsage = 2, kInternal = 3 };

constexpr const char* kFileHelp = "graph text (.tdm); - reads standard input";

constexpr const char* kAppFooter = R"(
Examples:
  tandem print step.tdm                          the graphs of a file, in normal form
  tandem opt step.tdm --passes=remove-dead-nodes clean up and print
  tandem run step.tdm --seed 7                   run on random inputs
  tandem COMMAND --help                          options and examples of a command

Exit codes: 0 fine, 1 the input is wrong, 2 the command line is wrong, 3 a defect of Tandem.)";

constexpr const char* kPrintFooter = R"(
Examples:
  tandem print step.tdm
  tandem opt step.tdm --passes=merge-duplicates | tandem print -)";

constexpr const char* kVerifyFooter = R"(
Examples:
  tandem verify step.tdm          one line per graph; exit code 1 and the broken rule if there is one)";

constexpr const char* kOptFooter = R"(
The result goes to stdout; dumps and times go to stderr.

Examples:
  tandem opt --list
  tandem opt step.tdm --passes=remove-no-ops,merge-duplicates,remove-dead-nodes -o clean.tdm
  tandem opt step.tdm --passes=merge-duplicates --dump-after=all --time >/dev/null)";

constexpr const char* kSplitFooter = R"(
The two graphs go to stdout; what is saved, what is computed again and why goes to stderr.

Examples:
  tandem split joint.tdm --partitioner min_cut_recompute
  TANDEM_DUMP_DIR=dumps ./train; tandem split dumps/function0.entry0.00-joint.tdm --partitioner min_cut_recompute >/dev/null)";

constexpr const char* kRunFooter = R"(
Every graph of the file gets inputs of its own: floating tensors from a normal distribution, integers from
0 to 3, booleans from both. The same seed gives the same inputs.

Examples:
  tandem run step.tdm
  tandem run step.tdm --inputs zeros --backend eager
  TANDEM_DUMP_DIR=dumps ./train; tandem run dumps/function0.entry0.00-joint.tdm --seed 3)";

/// A check of CLI11: the complaint, or nothing. Its own one writes the range out to 300 digits.
std::string whole_number(const std::string& text) {
  const bool digits = !text.empty() && text.size() <= 18 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? "" : "expected a whole number, 0 or more, got " + text;
}

/// The tool's options, and the command that was chosen.
class Arguments {
 public:
  Arguments()
      : app_("Looks at Tandem's graphs: prints, checks, transforms, cuts and runs them.",
             "tandem") {
    app_.require_subcommand(1);
    app_.footer(kAppFooter);
    app_.set_version_flag("--version", [] { return "tandem " + tandem::about().version; });
    add_print();
    add_verify();
    add_opt();
    add_split();
    add_run();
    CLI::App* info = app_.add_subcommand("info", "Versions, backends, passes and environment");
    info->footer("\nExamples:\n  tandem info");
    info->callback([this] { command_ = print_info; });
  }

  CLI::App& app() { return app_; }
  const std::function<void()>& command() const { return command_; }

 private:
  // The callbacks run inside CLI11's parser, whose exceptions mean wrong usage; so they only
  // choose.
  void add_print() {
    CLI::App* print =
        app_.add_subcommand("print", "Print the graphs of a file in their normal form");
    print->add_option("FILE", file_, kFileHelp)->required();
    print->footer(kPrintFooter);
    print->callback([this] { command_ = [this] { print_graphs(file_); }; });
  }

  void add_verify() {
    CLI::App* verify =
        app_.add_subcommand("verify", "Check that the graphs of a file are well-formed");
    verify->add_option("FILE", file_, kFileHelp)->required();
    verify->footer(kVerifyFooter);
    verify->callback([this] { command_ = [this] { verify_graphs(file_); }; });
  }

  void add_opt() {
    CLI::App* opt = app_.add_subcommand("opt", "Run passes over the graphs of a file");
    CLI::Option* file = opt->add_option("FILE", opt_.file, kFileHelp);
    opt->add_option("--passes", opt_.passes, "the passes, in order, with commas between them")
        ->delimiter(',');
    opt->add_option("--dump-after", opt_.dump_after,
                    "print the graph after steps: all, none or a pass")
        ->capture_default_str();
    opt->add_option("-o,--output", opt_.output, "write here instead of to stdout");
    opt->add_flag("--time", opt_.time, "print what each pass changed and how long it took");
    opt->add_flag("--list", list_, "list the passes and do nothing else");
    opt->footer(kOptFooter);
    opt->callback([this, file] {
      if (list_) {
        command_ = list_passes;
        return;
      }
      if (file->count() == 0) throw CLI::RequiredError("FILE");
      if (opt_.passes.empty()) throw CLI::RequiredError("--passes");
      command_ = [this] { optimise_graphs(opt_); };
    });
  }

  void add_split() {
    CLI::App* split = app_.add_subcommand("split", "Cut joint graphs into forward and backward");
    split->add_option("FILE", split_.file, kFileHelp)->required();
    split->add_option("--partitioner", split_.partitioner, "default, min_cut or min_cut_recompute")
        ->check(CLI::IsMember({"default", "min_cut", "min_cut_recompute"}))
        ->capture_default_str();
    split->add_option("--backend", split_.backend, "who will run them: min_cut asks what it fuses")
        ->capture_default_str();
    split->footer(kSplitFooter);
    split->callback([this] { command_ = [this] { split_graphs(split_); }; });
  }

  void add_run() {
    CLI::App* run = app_.add_subcommand("run", "Run the graphs of a file on made-up inputs");
    run->add_option("FILE", run_.file, kFileHelp)->required();
    run->add_option("--backend", run_.backend, "who runs them")->capture_default_str();
    run->add_option("--inputs", run_.inputs, "random or zeros")
        ->check(CLI::IsMember({"random", "zeros"}))
        ->capture_default_str();
    run->add_option("--seed", run_.seed, "of the random inputs and of random ops")
        ->check(whole_number)
        ->capture_default_str();
    run->footer(kRunFooter);
    run->callback([this] { command_ = [this] { run_graphs(run_); }; });
  }

  CLI::App app_;
  std::string file_;
  OptOptions opt_;
  bool list_ = false;
  SplitOptions split_{.backend = tandem::BackendRef().name()};
  RunOptions run_;
  std::function<void()> command_;
};

std::string known_commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

int wrong_usage(const std::string& text, const std::string& command) {
  std::cerr << "usage: " << text << "\n  remedy: see tandem " << command
            << (command.empty() ? "" : " ") << "--help\n";
  return kWrongUsage;
}

/// `internal: ...`, for what should never get here.
int defect(const char* text) {
  std::cerr
      << "internal: " << text
      << "\n  remedy: this is a defect of Tandem; please report it with the file that shows it\n";
  return kInternal;
}

int run(const Arguments& arguments, const std::string& command) {
  try {
    arguments.command()();
    std::cout.flush();
    return kOk;
  } catch (const UsageError& error) {
    return wrong_usage(error.what(), command);
  } catch (const tandem::InternalError& error) {
    std::cerr << error.what() << "\n";
    return kInternal;
  } catch (const tandem::Error& error) {
    std::cerr << error.what() << "\n";
    return kWrongInput;
  } catch (const c10::Error& error) {
    return defect(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return defect(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App& app = arguments.app();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto chosen = app.get_subcommands();
    if (!chosen.empty()) return wrong_usage(error.what(), chosen.front()->get_name());
    // CLI11 says of a command that it does not know only that one is required.
    const std::string what = argc > 1 ? "no command is called \"" + std::string(argv[1]) + "\""
                                      : std::string("a command is required");
    return wrong_usage(what + "\n  known:  " + known_commands(app), "");
  }
  return run(arguments, app.get_subcommands().front()->get_name());
}
