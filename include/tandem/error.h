#pragma once

#include "tandem/export.h"

#include <stdexcept>
#include <string>

namespace tandem {

/// Base of everything Tandem throws. The text starts with the stage, see docs/reference/errors.md.
class TANDEM_API Error : public std::runtime_error {
 public:
  Error(std::string stage, const std::string& text);

  /// The stage that raised it: `trace`, `joint`, `partition`, `lower`, `call`, `parse`, `options`,
  /// ...
  const std::string& stage() const noexcept { return stage_; }

 private:
  std::string stage_;
};

/// The caller can fix it: the text says what was expected, what came, and a remedy.
class TANDEM_API UserError : public Error {
 public:
  using Error::Error;
};

/// Legal in eager, not done by Tandem yet. It comes before anything has happened to any argument;
/// what concerns create_graph comes in the backward.
class TANDEM_API UnsupportedError : public Error {
 public:
  using Error::Error;
};

/// A defect of Tandem itself.
class TANDEM_API InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace tandem
