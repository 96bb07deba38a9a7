// Text as an encoder takes it: valid UTF-8 of a size whose offsets fit 32 bits. Keeps the caller's text when it is
// valid.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hayfork::engine {

class TextInput {
 public:
  // Throws: resource for 2 GiB or more. `text` must outlive the object.
  explicit TextInput(std::string_view text);
  TextInput(const TextInput&) = delete;
  TextInput& operator=(const TextInput&) = delete;
  std::string_view text() const { return text_; }  // invalid bytes replaced by U+FFFD per maximal subpart
  std::optional<size_t> first_invalid_byte() const { return first_invalid_; }

 private:
  std::string repaired_;
  std::string_view text_;
  std::optional<size_t> first_invalid_;
};

}  // namespace hayfork::engine
