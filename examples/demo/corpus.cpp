#include "corpus.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace demo {

Corpus Corpus::read(const std::string& file) {
  std::ifstream in(file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (text.empty()) throw std::runtime_error("cannot read " + file);
  Corpus corpus{.alphabet = text,
                .codes = torch::empty({static_cast<int64_t>(text.size())}, torch::kLong)};
  std::ranges::sort(corpus.alphabet);
  corpus.alphabet.erase(std::unique(corpus.alphabet.begin(), corpus.alphabet.end()),
                        corpus.alphabet.end());
  for (size_t i = 0; i < text.size(); ++i) {
    corpus.codes[static_cast<int64_t>(i)] = static_cast<int64_t>(corpus.alphabet.find(text[i]));
  }
  return corpus;
}

Batch draw_batch(const Corpus& corpus, int64_t length, int64_t count, at::Generator& generator) {
  const at::Tensor starts = torch::randint(corpus.size() - length - 1, {count, 1}, generator);
  const at::Tensor places = starts + torch::arange(length);
  return {corpus.codes.index({places}), corpus.codes.index({places + 1})};
}

}  // namespace demo
