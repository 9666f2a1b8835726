// What did the compiler do? Counters, the reason of every new entry, the signature, the graphs, the
// guards.
#include "tandem/tandem.h"

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

// An example is a test too: it fails if what it shows is not true.
void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::exit(1);
}

int main() {
  torch::manual_seed(2);
  torch::nn::Linear linear(4, 3);
  at::Tensor calls = torch::zeros({});

  // It counts its calls in a tensor that it closes over. Eager would write that tensor, so Tandem
  // does, too.
  auto fn = tandem::compile(linear, [=](const at::Tensor& x) mutable {
    calls.add_(1);
    return linear->forward(x).relu().sum();
  });

  // What a call would do, before the first one.
  const at::Tensor x = torch::randn({2, 4});
  std::cout << "--- explain, before any call\n" << fn.explain(x) << "\n";
  expect(fn.stats().calls == 0 && calls.item<double>() == 0, "explain has no effect");

  fn(x).backward();
  fn(torch::randn({2, 4})).backward();  // other numbers, same entry
  fn(torch::randn({5, 4})).backward();  // another size: the same entry
  {
    torch::NoGradGuard no_grad;
    fn(x);  // nothing to differentiate: an inference entry
  }

  const tandem::Stats stats = fn.stats();
  std::cout << "--- stats\n" << stats << "\n";
  for (const tandem::Miss& miss : stats.misses) std::cout << "compiled because " << miss << "\n";
  expect(stats.calls == 4 && stats.hits == 1 && stats.entries == 2,
         "four calls, one hit, two entries");
  expect(calls.item<double>() == 4, "the closed-over counter counts every call once");

  for (const tandem::Entry& entry : fn.entries()) {
    const bool training = entry.kind() == tandem::EntryKind::training;
    std::cout << "\n=== " << (training ? "training" : "inference") << " entry\n";
    std::cout << "--- signature: what the call does to every argument and result\n"
              << entry.signature();
    std::cout << "--- forward\n" << tandem::ir::print(entry.forward());
    if (training) {
      std::cout << "--- backward\n" << tandem::ir::print(entry.backward());
      std::cout << "--- saved for the backward\n";
      for (const tandem::Saved& saved : entry.saved()) {
        std::cout << "%" << saved.name << ", " << saved.bytes << " bytes: " << saved.why << "\n";
      }
    }
    std::cout << "--- serves a call when\n";
    for (const tandem::Guard& guard : entry.guards()) std::cout << guard.text << "\n";

    // The text of a graph parses back to the same graph.
    const std::string text = tandem::ir::print(entry.forward());
    expect(tandem::ir::print(tandem::ir::parse(text)) == text, "graph text parses back");
  }

  const tandem::Entry first = fn.entries().front();
  expect(first.kind() == tandem::EntryKind::training, "the first entry trains");
  expect(first.signature().writes_any_input(), "the signature knows of the counter");

  std::cout << "\n--- explain, for arguments that an entry serves\n" << fn.explain(x) << "\n";
  std::cout << "--- report\n" << fn.report();
  return 0;
}
