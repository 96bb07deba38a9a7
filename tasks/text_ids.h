// Text to ids where a prompt is put together from pieces: each piece is tokenized once, as it would be in the middle of
// a text, and the ids are joined. The model then gets exactly these ids; the text of a prompt is what they decode to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/tasks.h"

namespace hayfork::tasks {

using Ids = std::vector<int32_t>;

// Ids of `text` as it continues another text: no BOS, and no blank that a tokenizer puts before the first word of a
// text. Found by tokenizing a short anchor before it, one whose border stays a border.
Ids encode_after(const engine::Tokenizer& tokenizer, std::string_view text, bool parse_special = false);

// Ids of `text` at the start of a prompt: BOS when the context asks for it, then the text.
// Throws: usage when BOS is asked for and the tokenizer has none.
Ids encode_start(const TextContext& text, std::string_view piece);

// What stands around a document: before + document + after. Under a chat template the template's own text is part of
// both, and `answer_start` follows the generation prompt; without one the document's frame is all there is.
struct Frame {
  std::string before, after;
  bool chat = false;
};
// `user_before` + document + `user_after` is the user's turn (and the whole prompt without a chat template, with
// `answer_start` joined by a blank if it is not empty).
// Throws: usage when the template changes, drops or repeats the document's place.
Frame make_frame(const TextContext& text, std::string_view user_before, std::string_view user_after,
                 std::string_view answer_start);

// SHA-256 of ids as int32, little-endian.
std::string ids_sha256(std::span<const int32_t> ids);

// Fills prompt_sha256, ids_sha256, prompt_tokens and, up to 16 KiB, prompt_text from the first request's context.
void describe_prompt(Sample& sample, const engine::Tokenizer& tokenizer);

}  // namespace hayfork::tasks
