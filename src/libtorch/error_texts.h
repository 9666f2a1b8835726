#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace tandem::libtorch {

/// What an error of libtorch's means to a trace. libtorch has no codes for its errors: they are
/// known by words.
enum class ErrorMeaning {
  ReadsData,        // a data pointer was asked for of a tensor without data
  UnfollowedWrite,  // an op writes or returns an argument, and functionalization does not know how
  UnfollowedView,   // a view is written that as_strided took, of what it cannot be taken of again
  OldMemory,        // what is written lies in memory that its owner has left by set_
  GrowingView,      // a tensor grows while another one shows its memory
  KernelRefuses,    // a dtype, a number that does not fit, or memory that empty operands lack
  InferenceView,    // a view of an ordinary tensor is made in inference mode
};

struct ErrorText {
  ErrorMeaning meaning;
  std::string_view words;
};

/// Every text that Tandem matches. The test of each runs with every supported libtorch, makes it
/// raise, and looks at the words.
std::span<const ErrorText> error_texts();

/// What a text of an error means, if it is one of them.
std::optional<ErrorMeaning> meaning_of(std::string_view text);

}  // namespace tandem::libtorch
