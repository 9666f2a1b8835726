// What a larger program wants from a compiler: progress, a way to stop it, warnings in its own log,
// and errors that leave everything as it was.
#include "tandem/tandem.h"

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::exit(1);
}

int main() {
  torch::manual_seed(8);
  torch::nn::Linear net(4, 4);
  at::Tensor calls = torch::zeros({});
  auto body = [&](const at::Tensor& x) {
    calls.add_(1);
    return net->forward(x).relu().sum();
  };
  const at::Tensor x = torch::randn({2, 4});

  // Progress: called at every stage of a compile. Returning false cancels it.
  bool go_on = false;
  auto fn = tandem::compile(net, body, {.on_event = [&](const tandem::Event& event) {
                              std::printf("%3.0f %%  %s\n", 100 * event.done, event.stage.c_str());
                              return go_on || event.stage != "joint";
                            }});
  try {
    fn(x);
    expect(false, "the compile was cancelled");
  } catch (const tandem::UserError& error) {
    std::cout << "--- " << error.what() << "\n";
  }
  expect(calls.item<double>() == 0, "a call that failed has no effect");
  go_on = true;
  fn(x).backward();
  expect(calls.item<double>() == 1 && fn.stats().entries == 1, "the next call compiles");

  // Errors say what happened, where, and what to do. The function may be legal and still not be
  // supported: then the whole call can run eagerly instead, with one warning.
  auto reads_data = [](const at::Tensor& x) { return x.sum().item<double>() > 0 ? x : -x; };
  auto strict = tandem::compile(reads_data);
  try {
    strict(x);
    expect(false, "a trace has no data to read");
  } catch (const tandem::UnsupportedError& error) {
    std::cout << "--- stage " << error.stage() << "\n" << error.what() << "\n";
  }

  // Warnings and logs go where the program wants them.
  std::vector<std::string> log;
  const tandem::WarningSink before =
      tandem::set_warning_sink([&](const std::string& line) { log.push_back(line); });
  auto lenient = tandem::compile(reads_data, {.on_unsupported = tandem::OnUnsupported::eager});
  const at::Tensor result = lenient(x);
  lenient(x);
  tandem::set_warning_sink(before);
  for (const std::string& line : log) std::cout << "--- logged: " << line << "\n";
  expect(torch::equal(result, reads_data(x)), "the eager result");
  expect(log.size() == 1 && lenient.stats().eager_calls == 2, "two eager calls, one warning");
  return 0;
}
