#include "engine/text/tokenizer_json.h"

#include <deque>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/json.h"
#include "base/utf8.h"
#include "engine/text/component_json.h"
#include "engine/text/json_cursor.h"

namespace hayfork::engine {
namespace {

using Members = std::map<std::string, std::string_view, std::less<>>;  // key → text of its value

// The file's top level and that of its model, as texts still to be read: the order of keys does not matter then.
struct Outline {
  Members top, model;
};

Members read_members(JsonCursor& cursor, Members* model) {
  Members out;
  std::string scratch;
  cursor.expect('{');
  for (bool first = true; cursor.next(first, '}');) {
    std::string key(cursor.string(scratch));
    cursor.expect(':');
    std::string_view value;
    if (model != nullptr && key == "model" && cursor.peek() == '{') {
      *model = read_members(cursor, nullptr);
    } else {
      value = cursor.value();
    }
    if (!out.emplace(key, value).second) cursor.fail(fmt::format("key \"{}\" stands twice", printable(key)));
  }
  return out;
}

Outline read_outline(std::string_view text, const std::string& name) {
  JsonCursor cursor(text, name);
  if (const auto bad = find_invalid_utf8(text)) cursor.fail(fmt::format("not UTF-8 at byte {}", *bad));
  Outline out;
  out.top = read_members(cursor, &out.model);
  cursor.end();
  return out;
}

nlohmann::json parse_member(const Members& members, const char* key, const std::string& name) {
  const auto found = members.find(key);
  if (found == members.end()) return nullptr;
  return parse_json(found->second, name + ", " + key, ErrorSubject::model);
}

void check_model(const Outline& outline, const std::string& name) {
  const nlohmann::json type = parse_member(outline.model, "type", name);
  const bool no_merges = !outline.model.contains("merges") || !outline.model.contains("vocab");
  if (outline.model.empty()) bad_component("model", "absent or not an object");
  if (type.is_string() && type != "BPE") unsupported_component("model", type.get<std::string>());
  if (!type.is_string() && !type.is_null()) bad_component("model", "\"type\" should be a string");
  if (no_merges && type.is_null()) unsupported_component("model", "without type, vocabulary and merges (not BPE)");
  if (no_merges) bad_component("model", "no vocabulary or no merges");
  const nlohmann::json dropout = parse_member(outline.model, "dropout", name);
  if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0))
    unsupported_component("model", "BPE with dropout (encoding would be random)");
  const nlohmann::json version = parse_member(outline.top, "version", name);
  if (!version.is_null() && version != "1.0") unsupported_component("version", version.dump());
}

BpeOptions read_options(const Members& model, const std::string& name) {
  nlohmann::json fields = {{"type", "BPE"}};
  for (const char* key :
       {"unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"})
    fields[key] = parse_member(model, key, name);
  BpeOptions out;
  if (!fields["unk_token"].is_null()) out.unk_token = get_string(fields, "unk_token");
  out.continuing_subword_prefix = get_string(fields, "continuing_subword_prefix", "");
  out.end_of_word_suffix = get_string(fields, "end_of_word_suffix", "");
  out.fuse_unk = get_bool(fields, "fuse_unk", false);
  out.byte_fallback = get_bool(fields, "byte_fallback", false);
  out.ignore_merges = get_bool(fields, "ignore_merges", false);
  return out;
}

Vocabulary read_vocabulary(std::string_view text, const std::string& name) {
  JsonCursor cursor(text, name + ", model.vocab");
  Vocabulary out;
  std::string scratch;
  cursor.expect('{');
  for (bool first = true; cursor.next(first, '}');) {
    const std::string_view token = cursor.string(scratch);
    cursor.expect(':');
    out.add(token, cursor.integer());
  }
  out.close();
  return out;
}

// Merges point into the file's text, or into `kept` where the text had escapes.
class MergeReader {
 public:
  MergeReader(std::string_view text, const std::string& name) : cursor_(text, name + ", model.merges") {}

  std::vector<Bpe::Merge> read() {
    std::vector<Bpe::Merge> out;
    cursor_.expect('[');
    for (bool first = true; cursor_.next(first, ']');) {
      if (cursor_.peek() == '[') {
        out.push_back(pair());
      } else if (const std::string_view line = string(); !line.starts_with("#version")) {
        out.push_back(split(line));
      }
    }
    return out;
  }

 private:
  std::string_view string() {
    const std::string_view text = cursor_.string(scratch_);
    return text.data() == scratch_.data() ? std::string_view(kept_.emplace_back(text)) : text;
  }

  Bpe::Merge pair() {
    cursor_.expect('[');
    const std::string_view left = string();
    cursor_.expect(',');
    const std::string_view right = string();
    cursor_.expect(']');
    return {left, right};
  }

  Bpe::Merge split(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      cursor_.fail(
          fmt::format("a merge should be two tokens with a space between: \"{}\"", printable(line.substr(0, 100))));
    return {line.substr(0, space), line.substr(space + 1)};
  }

  JsonCursor cursor_;
  std::string scratch_;
  std::deque<std::string> kept_;
};

std::vector<AddedToken> read_added_tokens(const nlohmann::json& json) {
  std::vector<AddedToken> out;
  if (json.is_null()) return out;
  if (!json.is_array()) bad_component("added_tokens", "should be a list");
  for (const nlohmann::json& item : json) {
    if (!item.is_object()) bad_component("added_tokens", "an entry is not an object");
    AddedToken token;
    token.id = static_cast<int32_t>(get_integer(item, "id", 0, (int64_t{1} << 31) - 2));
    token.content = get_string(item, "content");
    token.single_word = get_bool(item, "single_word", false);
    token.lstrip = get_bool(item, "lstrip", false);
    token.rstrip = get_bool(item, "rstrip", false);
    token.special = get_bool(item, "special", false);
    token.normalized = get_bool(item, "normalized", !token.special);
    out.push_back(std::move(token));
  }
  return out;
}

bool mistral(const std::string& model_type) {
  return model_type.starts_with("mistral") || model_type.starts_with("ministral") || model_type.starts_with("pixtral");
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer_json(std::string_view text, const std::string& name,
                                               const TokenizerConfig& config, const TokenizerOptions& options) {
  const Outline outline = read_outline(text, name);
  check_model(outline, name);
  std::vector<std::string> warnings;
  auto normalizer = make_normalizer(parse_member(outline.top, "normalizer", name));
  PreTokenizerPipeline pre_tokenizer(parse_member(outline.top, "pre_tokenizer", name), options.fix_mistral_regex);
  PostProcessor post_processor(parse_member(outline.top, "post_processor", name));
  DecoderChain decoder(parse_member(outline.top, "decoder", name));
  const BpeOptions bpe_options = read_options(outline.model, name);
  if (!bpe_options.allows_bytes()) pre_tokenizer.spell_bytes();
  std::string digest = sha256_hex(text);
  if (pre_tokenizer.has_llama3_pattern() && options.fix_mistral_regex) {
    digest = sha256_hex(digest + " fix_mistral_regex");
  } else if (pre_tokenizer.has_llama3_pattern() && mistral(config.model_type)) {
    warnings.push_back(
        "this Mistral checkpoint ships the cl100k split pattern by mistake; its ids differ from those it "
        "was trained with (the option fix_mistral_regex puts it right)");
  }
  MergeReader merges(outline.model.at("merges"), name);
  Bpe model(read_vocabulary(outline.model.at("vocab"), name), merges.read(), bpe_options, pre_tokenizer.byte_level());
  AddedTokens added(read_added_tokens(parse_member(outline.top, "added_tokens", name)), model.vocabulary(),
                    normalizer.get(), warnings);
  return std::make_unique<BpeTokenizer>(
      BpeTokenizerParts{std::move(normalizer), std::move(pre_tokenizer), std::move(model), std::move(added),
                        std::move(post_processor), std::move(decoder), std::move(digest), std::move(warnings)},
      config, options);
}

}  // namespace hayfork::engine
