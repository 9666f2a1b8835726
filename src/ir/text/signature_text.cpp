#include "ir/text/records.h"
#include "ir/text/signature_fields.h"
#include "tandem/ir/text.h"

namespace tandem::ir {

std::string print(const Signature& signature) {
  std::string out = "signature ";
  RecordWriter(out).write(signature);
  return out + "\n";
}

Signature parse_signature(std::string_view text) {
  Cursor cursor(text);
  cursor.expect_word("signature");
  Signature signature = RecordReader(cursor).read<Signature>();
  if (!cursor.at_end()) cursor.fail_expected("the end of the text");
  return signature;
}

}  // namespace tandem::ir
