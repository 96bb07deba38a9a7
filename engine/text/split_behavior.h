// What a splitting pre-tokenizer does with the places where its pattern matches (the reference's
// SplitDelimiterBehavior).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/regex.h"

namespace hayfork::engine {

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// "Isolated", … Throws: corrupt naming the value.
SplitBehavior parse_split_behavior(const std::string& name);

struct Segment {
  size_t begin, end;
  bool match;
};

// Matches and the gaps between them, covering [0, size). `invert` exchanges the two.
std::vector<Segment> with_gaps(const Matches& matches, size_t size, bool invert);
// The pieces to keep, in order; some may be empty.
Matches apply_behavior(const std::vector<Segment>& segments, SplitBehavior behavior);

}  // namespace hayfork::engine
