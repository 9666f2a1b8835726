#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// The commands of the tool. Results go to stdout, everything else to stderr; failures are
/// exceptions, which main.cpp turns into a text and an exit code.
namespace tandem {
class Backend;
}

namespace tandem::cli {

/// The command line asks for something that does not exist: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Of `--backend`.
std::shared_ptr<Backend> find_backend(const std::string& name);

/// Prints every graph of a file in its normal form.
void print_graphs(const std::string& file);

/// Checks every graph of a file and prints a line for each; a UserError names the first broken
/// rule.
void verify_graphs(const std::string& file);

struct OptOptions {
  std::string file{};
  std::vector<std::string> passes{};
  std::string dump_after = "none";  // all, none or the name of a pass
  std::string output{};             // a file; empty: stdout
  bool time = false;
};
/// Runs passes over every graph of a file and prints the result.
void optimise_graphs(const OptOptions& options);
/// Prints the passes that there are.
void list_passes();

struct SplitOptions {
  std::string file{};
  std::string partitioner = "default";  // min_cut or min_cut_recompute
  std::string backend{};                // whom min_cut asks what is fused
};
/// Cuts every joint graph of a file into forward and backward and prints both; what is saved, what
/// is computed again and why goes to stderr.
void split_graphs(const SplitOptions& options);

struct RunOptions {
  std::string file{};
  std::string backend = "eager";  // its kernels check what they are given; a file may say anything
  std::string inputs = "random";  // or zeros
  int64_t seed = 0;
};
/// Runs every graph of a file on made-up inputs and prints what comes out.
void run_graphs(const RunOptions& options);

/// Prints versions, backends, passes and settings.
void print_info();

}  // namespace tandem::cli
