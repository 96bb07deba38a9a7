// Hand-written scanners for the split patterns of the known model families. Each gives the same pieces as its regular
// expression under Unicode 16.0 classes, at a hundred times the speed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hayfork::engine {

enum class SplitPattern { gpt2, qwen2, qwen3_5, llama3, o200k, tekken };

// The exact expression of a pattern, and back: nothing for an expression that is none of them.
const std::string& pattern_text(SplitPattern pattern);
std::optional<SplitPattern> known_pattern(std::string_view expression);

// End of the piece that starts at `begin`; always beyond `begin`. Requires: begin < text.size(), valid UTF-8, and
// `begin` is 0 or an end given before (the patterns match everywhere, so pieces follow each other without gaps).
size_t piece_end(SplitPattern pattern, std::string_view text, size_t begin);

}  // namespace hayfork::engine
