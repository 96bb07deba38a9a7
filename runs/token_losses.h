// What each token of a sample cost, where it stands in the text, and which are key tokens (LongPPL, arXiv 2410.23771):
// two artefacts of the sample and a row of key_tokens. A sample without them has no strip on its page.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runs/rows.h"

namespace hayfork::runs {

// Code points of the text, half open.
using TextRange = std::pair<int32_t, int32_t>;

struct TokenLosses {
  std::vector<float> nll;         // nats, of token i itself; NaN: not scored
  std::vector<TextRange> places;  // one a token; empty: not kept
};

// Kind "token_nll": IEEE half, little-endian, one a token; compressed with zstd. Kept to 11 bits: a strip's figure, not
// a score's.
ArtefactRow token_nll_artefact(std::span<const float> nll);
// Kind "token_places": begin and end as int32, little-endian, compressed with zstd.
ArtefactRow token_places_artefact(std::span<const TextRange> places);

// Of a sample's artefacts; empty without a token_nll. Throws: corrupt (database) for bytes that are none, or when the
// two disagree about the number of tokens.
std::optional<TokenLosses> token_losses(std::span<const ArtefactRow> artefacts);

// key_tokens.spans_json: [[begin, end], …], ascending and apart. Throws: corrupt (database).
std::vector<TextRange> key_spans(std::string_view spans_json);
// Per token whether it is key: all of it lies in one span. A token without characters never is.
std::vector<char> key_marks(std::span<const TextRange> places, std::span<const TextRange> spans);

}  // namespace hayfork::runs
