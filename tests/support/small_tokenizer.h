// A small tokenizer.json made by a test: a byte-level or character vocabulary with merges, to be changed before
// loading.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/text/tokenizer.h"

namespace hayfork::test {

// Byte-level BPE: ids 0…255 are the bytes' characters in ascending order of the bytes; each merge "l r" adds a token.
nlohmann::json byte_level_json(const std::vector<std::string>& merges);
// Characters of `alphabet` from id 0 on; each merge adds a token. No pre-tokenizer, no decoder.
nlohmann::json character_json(const std::string& alphabet, const std::vector<std::string>& merges);
// An added token as tokenizer.json writes it; `id` must be the next free one.
nlohmann::json added_token(int id, const std::string& content, bool special);

std::unique_ptr<engine::Tokenizer> load_json(const nlohmann::json& json, engine::TokenizerOptions options = {});
std::unique_ptr<engine::Tokenizer> load_text(const std::string& text);

}  // namespace hayfork::test
