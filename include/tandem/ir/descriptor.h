#pragma once

#include "tandem/export.h"

#include <cstdint>
#include <string>

namespace tandem::ir {

/// What an input or output of a graph is to the caller.
enum class Role : uint8_t {
  // inputs
  UserInput,  // index: position among the flattened tensor arguments
  Param,      // name: path in the module
  Buffer,     // name: path in the module
  Lifted,     // index: position among all lifted tensors
  Tangent,    // index: position among the tangents of the signature
  Symbol,     // an integer size
  Seed,       // index: random state
  Token,      // index: order of effects (input and output)
  Base,       // index: base of several aliasing inputs (input) or outputs (output)
  // outputs
  Output,   // index: position among the flattened tensor results
  Mutated,  // index: position among the inputs of the forward; its new data
  Saved,    // index: position among the saved values (output of forward, input of backward)
  Grad,     // index: position among the inputs of the forward, further ones beyond them as the
            // signature lists them; name: that input's, if it has one
};

struct TANDEM_API Descriptor {
  Role role = Role::UserInput;
  int64_t index = 0;
  std::string name{};  // of Param, Buffer and, if known, Grad

  static Descriptor user_input(int64_t index) { return {Role::UserInput, index}; }
  static Descriptor param(std::string name) { return {Role::Param, 0, std::move(name)}; }
  static Descriptor buffer(std::string name) { return {Role::Buffer, 0, std::move(name)}; }
  static Descriptor lifted(int64_t index) { return {Role::Lifted, index}; }
  static Descriptor tangent(int64_t index) { return {Role::Tangent, index}; }
  static Descriptor output(int64_t index) { return {Role::Output, index}; }
  static Descriptor mutated(int64_t index) { return {Role::Mutated, index}; }
  static Descriptor base(int64_t index) { return {Role::Base, index}; }
  static Descriptor saved(int64_t index) { return {Role::Saved, index}; }
  static Descriptor grad(int64_t index, std::string name = {}) {
    return {Role::Grad, index, std::move(name)};
  }

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

/// `user_input 0`, `param "fc.weight"`, `grad 3 "fc.weight"`: the words of the graph text.
TANDEM_API std::string to_string(const Descriptor& descriptor);

}  // namespace tandem::ir
