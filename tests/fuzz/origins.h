#pragma once

#include "fuzz/draft.h"

/// What a program works on.
namespace tandem::fuzz {

/// The arguments and what is closed over.
void make_origins(Draft& draft);

/// Other data for leaves, all of which the function then gets as they are.
void give_new_data(Draft& draft);

}  // namespace tandem::fuzz
