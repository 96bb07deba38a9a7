#include "tests/support/small_tokenizer.h"

#include <fstream>

#include "base/utf8.h"
#include "engine/text/byte_level.h"
#include "tests/support/paths.h"

namespace hayfork::test {
namespace {

using nlohmann::json;

json document(json vocabulary, const std::vector<std::string>& merges) {
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    vocabulary.emplace(merge.substr(0, space) + merge.substr(space + 1), vocabulary.size());
  }
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", nullptr},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

}  // namespace

json byte_level_json(const std::vector<std::string>& merges) {
  json vocabulary = json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[engine::token_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  json out = document(vocabulary, merges);
  out["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  out["decoder"] = {{"type", "ByteLevel"}};
  return out;
}

json character_json(const std::string& alphabet, const std::vector<std::string>& merges) {
  json vocabulary = json::object();
  for (const char32_t c : to_code_points(alphabet))
    vocabulary.emplace(to_utf8(std::u32string(1, c)), vocabulary.size());
  return document(vocabulary, merges);
}

json added_token(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

std::unique_ptr<engine::Tokenizer> load_json(const json& value, engine::TokenizerOptions options) {
  const TempDir folder;
  std::ofstream(folder.path() / "tokenizer.json") << value.dump();
  return engine::Tokenizer::load(folder.path(), options);
}

std::unique_ptr<engine::Tokenizer> load_text(const std::string& text) {
  const TempDir folder;
  std::ofstream(folder.path() / "tokenizer.json", std::ios::binary) << text;
  return engine::Tokenizer::load(folder.path());
}

}  // namespace hayfork::test
