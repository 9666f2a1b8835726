#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

namespace demo {

/// A text as numbers, and the characters that these stand for.
struct Corpus {
  std::string alphabet;
  at::Tensor codes;

  /// A runtime_error if the file cannot be read.
  static Corpus read(const std::string& file);
  int64_t size() const { return codes.size(0); }
};

struct Batch {
  at::Tensor characters, next;
};

/// Windows from random places, and the same windows one character later.
Batch draw_batch(const Corpus& corpus, int64_t length, int64_t count, at::Generator& generator);

}  // namespace demo
