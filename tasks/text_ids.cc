#include "tasks/text_ids.h"

#include <bit>
#include <cstring>

#include "base/digest.h"
#include "engine/text/tokenizer.h"

namespace hayfork::tasks {

static_assert(std::endian::native == std::endian::little);  // ids are hashed as they lie in memory

Ids encode_after(const engine::Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  if (text.empty()) return {};
  // A full stop comes first, because that is what mostly stands before a needle; the others do not merge with a line
  // feed that opens the text.
  for (const std::string_view anchor : {".", "a", "x", ")", "0", "\n"}) {
    const std::string whole = std::string(anchor) + std::string(text);
    const engine::Encoding all =
        tokenizer.encode_with_offsets(whole, {.add_special = false, .parse_special = parse_special});
    size_t first = 0;
    while (first < all.ids.size() && all.byte_offsets[first].second <= static_cast<int32_t>(anchor.size())) ++first;
    if (first < all.ids.size() && all.byte_offsets[first].first >= static_cast<int32_t>(anchor.size()))
      return {all.ids.begin() + static_cast<std::ptrdiff_t>(first), all.ids.end()};
  }
  return tokenizer.encode(text, {.add_special = false, .parse_special = parse_special});
}

Ids encode_start(const TextContext& text, std::string_view piece) {
  Ids ids;
  if (text.add_bos && !text.chat) {
    if (!text.tokenizer->bos_id())
      throw Error(ErrorCode::usage, ErrorSubject::model, "the tokenizer has no BOS token",
                  {"", "a BOS was asked for", "leave it out with --add-bos off"});
    ids.push_back(*text.tokenizer->bos_id());
  }
  const bool special = text.chat != nullptr || text.parse_special;
  if (!piece.empty()) {
    const Ids more = text.tokenizer->encode(piece, {.add_special = false, .parse_special = special});
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

Frame make_frame(const TextContext& text, std::string_view user_before, std::string_view user_after,
                 std::string_view answer_start) {
  if (!text.chat) {
    std::string after(user_after);
    if (!answer_start.empty()) after += (after.empty() ? "" : " ") + std::string(answer_start);
    return {std::string(user_before), std::move(after), false};
  }
  // With white space of every kind, so that a template that changes it is found out.
  static constexpr std::string_view kPlace = "[[the document\n\n stands\t here]]";
  std::vector<ChatMessage> messages;
  if (!text.system.empty()) messages.push_back({"system", text.system});
  messages.push_back({"user", std::string(user_before) + std::string(kPlace) + std::string(user_after)});
  const std::string whole = text.chat(messages, true);
  const size_t at = whole.find(kPlace);
  if (at == std::string::npos || whole.find(kPlace, at + 1) != std::string::npos)
    throw Error(ErrorCode::usage, ErrorSubject::model, "the chat template does not give the user's text back",
                {"chat template", "the user's turn must appear in it once, unchanged", "run without --chat-template"});
  return {whole.substr(0, at), whole.substr(at + kPlace.size()) + std::string(answer_start), true};
}

std::string ids_sha256(std::span<const int32_t> ids) {
  const Sha256 digest = sha256(std::as_bytes(ids));
  return hex(digest);
}

void describe_prompt(Sample& sample, const engine::Tokenizer& tokenizer) {
  const engine::Request& request = sample.requests.front();
  const std::vector<int32_t>* ids = nullptr;
  if (const auto* generate = std::get_if<engine::GenerateRequest>(&request)) ids = &generate->prompt;
  if (const auto* score = std::get_if<engine::ScoreRequest>(&request)) ids = &score->context;
  if (const auto* nll = std::get_if<engine::NllRequest>(&request)) ids = &nll->tokens;
  std::string text = tokenizer.decode(*ids, false);
  sample.prompt_sha256 = sha256_hex(text);
  sample.ids_sha256 = ids_sha256(*ids);
  sample.prompt_tokens = static_cast<int64_t>(ids->size());
  if (text.size() <= 16384) sample.prompt_text = std::move(text);
}

}  // namespace hayfork::tasks
