#include "engine/text/text_input.h"

#include "base/error.h"
#include "base/utf8.h"

namespace hayfork::engine {
namespace {

constexpr size_t kMaxBytes = (size_t{1} << 31) - 1;

void check_size(size_t bytes) {
  if (bytes <= kMaxBytes) return;
  throw Error(ErrorCode::resource, ErrorSubject::memory, "text too long to tokenize in one piece",
              {.where = {}, .why = std::to_string(bytes) + " bytes, at most " + std::to_string(kMaxBytes), .next = {}});
}

}  // namespace

TextInput::TextInput(std::string_view text) : text_(text), first_invalid_(find_invalid_utf8(text)) {
  check_size(text.size());
  if (!first_invalid_) return;
  repaired_ = replace_invalid_utf8(text);
  check_size(repaired_.size());
  text_ = repaired_;
}

}  // namespace hayfork::engine
