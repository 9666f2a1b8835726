#pragma once

#include "fuzz/chooser.h"
#include "fuzz/program.h"
#include "fuzz/random.h"

#include <cstdint>

/// Programs whose arguments have other sizes in each call. While such a program is made, sizes that
/// will change have values that stand for nothing else, so a number in a statement tells by its
/// value that it comes from one of them.
namespace tandem::fuzz {

/// What is left of the usual rules while such a program is made: its tensors are larger.
inline constexpr int64_t kChangingNumel = 2000;
inline constexpr double kChangingValue = 3000;

/// Other patterns arrange the leaves or the calls in their own way: with one of those nothing
/// changes.
void leave_sizes_to_others(PatternSet& patterns);

/// One or two sizes of the arguments become sizes that change, wherever they occur, and what they
/// are in each call is drawn.
void draw_changing_sizes(Random& random, ProgramSpec& program);

/// The function gets at least one tensor of which a size changes.
void give_changing_size(Chooser& chooser, Origin& origin);

/// Makes the numbers of a statement, and of those before it, fit all sizes: those that come from a
/// size are asked for. False: that cannot be done. The statement has not run yet.
bool ask_for_sizes(Chooser& chooser, Statement& statement);

/// A size of an operand that is being chosen: often one that changes, else `usual`. Draws nothing
/// in programs whose sizes do not change.
int64_t free_size(Chooser& chooser, int64_t usual);

/// The function runs at some other sizes, too. Mostly so: a few programs may fit none but their
/// own.
bool runs_at_other_sizes(const ProgramSpec& program, Random& random);

/// The arguments of call `number`: what stands for a changing size is what it is in that call.
Origin at_sizes_of_call(const ProgramSpec& program, int number);

/// `sizes[0]` of a size that changes, otherwise the number.
std::string size_text(const ProgramSpec& program, int64_t size);

}  // namespace tandem::fuzz
