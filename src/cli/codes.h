// Every stable code of a warning or error, with what it means and what to do. `hayfork explain` prints it, and a test
// holds it against the sources.
#pragma once

#include <span>
#include <string_view>

namespace hayfork::cli {

struct CodeText {
  std::string_view code;     // "HAY-W003", or an exit status: "6"
  std::string_view summary;  // one line
  std::string_view detail;   // why it happens and what to do
};

std::span<const CodeText> code_texts();

}  // namespace hayfork::cli
