// NFC, NFD, NFKC, NFKD at Unicode 9.0, the version of the reference library's tables: characters assigned later have no
// decomposition, no composition and combining class 0. Unicode's stability policy makes that exact with newer data
// gated by age. The result is a list of changes, so that offsets can follow (UAX #15; D108–D117 of the standard).
#pragma once

#include <string_view>
#include <vector>

#include "engine/text/aligned_text.h"

namespace hayfork::engine {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// True when no character of `text` can change or interact under `form`: the usual case, found without a copy.
bool surely_normalized(std::string_view text, NormalForm form);
std::vector<CharChange> normalize_changes(std::string_view text, NormalForm form);

}  // namespace hayfork::engine
