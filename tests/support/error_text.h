#pragma once

#include <exception>
#include <string>
#include <typeinfo>

namespace tandem::test {

/// The text of the error of exactly this class that `body` raises; anything else gives a text that
/// no expectation equals.
template <class Error, class Body>
std::string error_text(Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    if (typeid(error) == typeid(Error)) return error.what();
    return std::string("(an error of another class) ") + error.what();
  }
  return "(no error)";
}

}  // namespace tandem::test
