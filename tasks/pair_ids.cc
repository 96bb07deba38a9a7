#include "tasks/pair_ids.h"

#include "engine/text/tokenizer.h"
#include "tasks/doc_fields.h"

namespace hayfork::tasks {
namespace {

[[noreturn]] void no_ids(const std::string& why) {
  throw Error(ErrorCode::corrupt, ErrorSubject::data, "an option cannot be scored", {.why = why});
}

// With an empty context the first token of the text may serve as the context itself.
PairIds without_context(const TextContext& text, const std::vector<std::string>& continuations) {
  PairIds out;
  out.context = prefix_token(*text.tokenizer);
  if (out.context.empty()) no_ids("the context is empty and the tokenizer has neither BOS nor EOS");
  for (const std::string& continuation : continuations) {
    Ids ids = text.tokenizer->encode(continuation, {.add_special = false, .parse_special = true});
    if (ids.size() > 1 && ids.front() == out.context.front()) ids.erase(ids.begin());
    if (ids.empty()) no_ids("it is empty");
    out.continuations.push_back(std::move(ids));
  }
  return out;
}

}  // namespace

Ids prefix_token(const engine::Tokenizer& tokenizer) {
  if (tokenizer.bos_id()) return {*tokenizer.bos_id()};
  if (tokenizer.eos_id()) return {*tokenizer.eos_id()};
  return {};
}

Ids encode_whole(const TextContext& text, std::string_view piece) {
  Ids ids = text.tokenizer->encode(piece, {.add_special = false, .parse_special = true});
  const auto bos = text.tokenizer->bos_id();
  const bool add = text.add_bos && !text.chat && bos && (ids.empty() || ids.front() != *bos);
  if (add) ids.insert(ids.begin(), *bos);
  return ids;
}

PairIds encode_pairs(const TextContext& text, const std::string& context,
                     const std::vector<std::string>& continuations) {
  const std::string kept = rstrip(context);
  const std::string moved = context.substr(kept.size());
  if (kept.empty()) {
    std::vector<std::string> whole;
    for (const std::string& continuation : continuations) whole.push_back(moved + continuation);
    return without_context(text, whole);
  }
  PairIds out;
  out.context = encode_whole(text, kept);
  for (const std::string& continuation : continuations) {
    const Ids whole = encode_whole(text, kept + moved + continuation);
    if (whole.size() <= out.context.size())
      no_ids(continuation.empty() ? "it is empty" : "the tokenizer joins it with the context's end");
    out.continuations.emplace_back(whole.begin() + static_cast<std::ptrdiff_t>(out.context.size()), whole.end());
  }
  return out;
}

}  // namespace hayfork::tasks
