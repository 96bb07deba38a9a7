// Context and continuation to ids as lm-evaluation-harness does (lm_eval/api/model.py, _encode_pair): blanks at the
// context's end move to the continuation; the continuation's ids are what the whole text has beyond the context's.
// Where a token reaches over the border the context keeps its own ids: characters may be lost or doubled, as upstream.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tasks/text_ids.h"

namespace hayfork::tasks {

struct PairIds {
  Ids context;
  std::vector<Ids> continuations;
};

// How a text becomes ids: BOS when the context asks for it (never a second one, never under a chat template); special
// tokens spelled out in it become control ids, as upstream's tokenizers read them.
Ids encode_whole(const TextContext& text, std::string_view piece);

// All continuations of one context. Throws: corrupt (data) when a continuation adds no id or the tokenizer has no first
// token for an empty context.
PairIds encode_pairs(const TextContext& text, const std::string& context,
                     const std::vector<std::string>& continuations);

// What stands in for an empty context, and for one of blanks alone (with which upstream stops): BOS, else EOS.
Ids prefix_token(const engine::Tokenizer& tokenizer);

}  // namespace hayfork::tasks
