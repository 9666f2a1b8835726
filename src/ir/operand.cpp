#include "tandem/ir/operand.h"

#include "base/same_bits.h"

namespace tandem::ir {

bool operator==(const Operand& a, const Operand& b) { return base::same_bits(a.data, b.data); }

}  // namespace tandem::ir
