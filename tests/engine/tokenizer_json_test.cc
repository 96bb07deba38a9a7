// Small tokenizer.json files made here: the pipeline's rules one by one.
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "engine/text/byte_level.h"
#include "engine/text/tokenizer.h"
#include "tests/support/paths.h"
#include "tests/support/small_tokenizer.h"

namespace hayfork::engine {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;
constexpr EncodeOptions kPlain{.add_special = false, .parse_special = true};

std::vector<std::string> spelled(const Tokenizer& t, const std::string& text, EncodeOptions options = kPlain) {
  std::vector<std::string> out;
  for (const int32_t id : t.encode(text, options)) out.push_back(t.token_text(id));
  const Encoding tracked = t.encode_with_offsets(text, options);
  EXPECT_EQ(tracked.ids, t.encode(text, options)) << text;
  EXPECT_EQ(tracked.offsets.size(), tracked.ids.size());
  return out;
}

using Tokens = std::vector<std::string>;

TEST(ByteLevel, AlphabetIsThatOfGpt2) {
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = kByteToChar[static_cast<size_t>(byte)];
    EXPECT_EQ(char_to_byte(c), byte);
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    EXPECT_EQ(c == static_cast<char32_t>(byte), itself);
  }
  EXPECT_EQ(kByteToChar[0x20], 0x120u);
  EXPECT_EQ(kByteToChar[0x0A], 0x10Au);
  EXPECT_EQ(kByteToChar[0x7F], 0x121u);
  EXPECT_EQ(kByteToChar[0xA0], 0x142u);
  EXPECT_EQ(kByteToChar[0xAD], 0x143u);
  EXPECT_EQ(char_to_byte(0x144), -1);
}

TEST(ByteLevel, RoundTripsEveryText) {
  const auto t = test::load_json(test::byte_level_json({"h e", "\u0120 he", "l l"}));
  EXPECT_EQ(t->kind(), "byte-level BPE");
  EXPECT_EQ(spelled(*t, "he hell"), (Tokens{"he", "\u0120he", "ll"}));
  Rng rng(5, "byte level");
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (uint64_t n = rng.below(30); n > 0; --n) append_utf8(text, static_cast<char32_t>(rng.below(0x110000)));
    EXPECT_EQ(t->decode(t->encode(text)), text);
    const auto stream = t->stream();
    std::string joined;
    for (const int32_t id : t->encode(text)) {
      const std::string piece = stream->push(id).value_or("");
      EXPECT_FALSE(find_invalid_utf8(piece));
      joined += piece;
    }
    EXPECT_EQ(joined + stream->finish(), text);
  }
}

TEST(AddedTokens, LongestAtTheLeftmostPlaceWins) {
  json j = test::byte_level_json({});
  j["added_tokens"] = {test::added_token(256, "<a", false), test::added_token(257, "<ab>", false),
                       test::added_token(258, "b>c", false)};
  const auto t = test::load_json(j);
  EXPECT_EQ(spelled(*t, "<ab>c"), (Tokens{"<ab>", "c"}));
  EXPECT_EQ(spelled(*t, "<ab"), (Tokens{"<a", "b"}));
  EXPECT_EQ(spelled(*t, "b>c<a"), (Tokens{"b>c", "<a"}));
}

TEST(AddedTokens, SpecialOnesCanBeReadAsText) {
  json j = test::byte_level_json({});
  j["added_tokens"] = {test::added_token(256, "<s>", true), test::added_token(257, "<t>", false)};
  const auto t = test::load_json(j);
  EXPECT_EQ(spelled(*t, "<s><t>"), (Tokens{"<s>", "<t>"}));
  EXPECT_EQ(spelled(*t, "<s><t>", {.add_special = false, .parse_special = false}), (Tokens{"<", "s", ">", "<t>"}));
  EXPECT_TRUE(t->is_special(256));
  EXPECT_FALSE(t->is_special(257));
  EXPECT_EQ(t->decode(Ids{256, 257, 'a'}), "<t>a");
  EXPECT_EQ(t->decode(Ids{256, 257, 'a'}, false), "<s><t>a");
}

TEST(AddedTokens, TakeTheWhiteSpaceTheySayTheyTake) {
  json j = test::byte_level_json({});
  json left = test::added_token(256, "<l>", false);
  left["lstrip"] = true;
  json right = test::added_token(257, "<r>", false);
  right["rstrip"] = true;
  j["added_tokens"] = {left, right};
  const auto t = test::load_json(j);
  EXPECT_EQ(spelled(*t, "a \n<l> b"), (Tokens{"a", "<l>", "\u0120", "b"}));
  EXPECT_EQ(spelled(*t, "a <r>\u3000 b"), (Tokens{"a", "\u0120", "<r>", "b"}));
  const Encoding e = t->encode_with_offsets("a \n<l> b", kPlain);
  EXPECT_EQ(e.offsets[1], (std::pair<int32_t, int32_t>(1, 6)));
  EXPECT_EQ(spelled(*t, "<r>  <l>"), (Tokens{"<r>", "<l>"}));  // spaces go to the one on the left
}

TEST(AddedTokens, SingleWordsStandAlone) {
  json j = test::byte_level_json({});
  json word = test::added_token(256, "cat", false);
  word["single_word"] = true;
  j["added_tokens"] = json::array({word});
  const auto t = test::load_json(j);
  EXPECT_EQ(spelled(*t, "cat"), (Tokens{"cat"}));
  EXPECT_EQ(spelled(*t, "(cat)"), (Tokens{"(", "cat", ")"}));
  EXPECT_EQ(spelled(*t, "cats"), (Tokens{"c", "a", "t", "s"}));
  EXPECT_EQ(spelled(*t, "\u00E9cat").size(), 5u);  // a letter before it, of two bytes
  EXPECT_EQ(spelled(*t, "_cat"), (Tokens{"_", "c", "a", "t"}));
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  json j = test::byte_level_json({});
  j["normalizer"] = {{"type", "Lowercase"}};
  json raw = test::added_token(256, "RAW", false);
  json normal = test::added_token(257, "Day", false);
  normal["normalized"] = true;
  j["added_tokens"] = {raw, normal};
  const auto t = test::load_json(j);
  EXPECT_EQ(t->encode("DAYRAW", kPlain), (Ids{257, 256}));
  EXPECT_EQ(t->encode("raw", kPlain), (Ids{'r', 'a', 'w'}));
}

TEST(AddedTokens, FollowTheReferencesNumbersAndSaySo) {
  json j = test::byte_level_json({});
  j["added_tokens"] = json::array({test::added_token(300, "<far>", false)});
  const auto t = test::load_json(j);
  EXPECT_EQ(t->encode("<far>", kPlain), (Ids{256}));
  ASSERT_EQ(t->warnings().size(), 1u);
  EXPECT_NE(t->warnings()[0].find("<far>"), std::string::npos);
}

TEST(Bpe, LowestRankThenLeftmost) {
  const auto t = test::load_json(test::character_json("abc", {"b c", "a b", "ab c"}));
  EXPECT_EQ(spelled(*t, "abc"), (Tokens{"a", "bc"}));
  EXPECT_EQ(spelled(*t, "ababab"), (Tokens{"ab", "ab", "ab"}));
  const auto runs = test::load_json(test::character_json("a", {"a a", "aa aa"}));
  EXPECT_EQ(spelled(*runs, "aaaaaaa"), (Tokens{"aaaa", "aa", "a"}));
}

TEST(Bpe, LongWordsAreAsShortOnes) {
  // Merges that make pairs overlap; the long way (a heap) must give what the short way (a scan) gives.
  const auto t = test::load_json(test::character_json("ab", {"a b", "b a", "ab a", "a a", "aa b", "ab ab", "b b"}));
  std::map<std::pair<std::string, std::string>, size_t> rank;
  const std::vector<std::pair<std::string, std::string>> merges = {{"a", "b"},  {"b", "a"},   {"ab", "a"}, {"a", "a"},
                                                                   {"aa", "b"}, {"ab", "ab"}, {"b", "b"}};
  for (size_t i = 0; i < merges.size(); ++i) rank[merges[i]] = i;
  Rng rng(9, "bpe");
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (uint64_t n = 1 + rng.below(120); n > 0; --n) text += static_cast<char>('a' + rng.below(2));
    Tokens want;
    for (const char c : text) want.emplace_back(1, c);
    for (;;) {  // the definition, as slow as it comes
      size_t best = merges.size(), at = 0;
      for (size_t i = 0; i + 1 < want.size(); ++i) {
        const auto found = rank.find({want[i], want[i + 1]});
        if (found != rank.end() && found->second < best) best = found->second, at = i;
      }
      if (best == merges.size()) break;
      want[at] += want[at + 1];
      want.erase(want.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    EXPECT_EQ(spelled(*t, text), want) << text;
  }
}

TEST(Bpe, AWordOfAMillionCharactersIsNoTrouble) {
  const auto t = test::load_json(test::character_json("ab", {"a a", "aa aa", "aaaa aaaa", "b b"}));
  EXPECT_EQ(t->encode(std::string(1 << 20, 'a'), kPlain).size(), (1u << 20) / 8);
}

TEST(Bpe, CharactersWithoutATokenFallBackOrVanish) {
  json j = test::character_json("ab", {});
  EXPECT_EQ(spelled(*test::load_json(j), "a\u00E9b"), (Tokens{"a", "b"}));
  j["model"]["vocab"]["<unk>"] = 2;
  j["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(spelled(*test::load_json(j), "a\u00E9\u00E9b"), (Tokens{"a", "<unk>", "<unk>", "b"}));
  j["model"]["fuse_unk"] = true;
  EXPECT_EQ(spelled(*test::load_json(j), "a\u00E9\u00E9b"), (Tokens{"a", "<unk>", "b"}));
  j["model"]["byte_fallback"] = true;
  j["model"]["vocab"]["<0xC3>"] = 3;
  j["model"]["vocab"]["<0xA9>"] = 4;
  const auto t = test::load_json(j);
  EXPECT_EQ(spelled(*t, "\u00E9b"), (Tokens{"<0xC3>", "<0xA9>", "b"}));
  EXPECT_EQ(spelled(*t, "\u00EA"), (Tokens{"<unk>"}));  // all its bytes or none
}

TEST(Bpe, IgnoreMergesTakesWholeWords) {
  json j = test::byte_level_json({"a b"});
  j["model"]["vocab"]["abc"] = 257;
  EXPECT_EQ(spelled(*test::load_json(j), "abc"), (Tokens{"ab", "c"}));
  j["model"]["ignore_merges"] = true;
  EXPECT_EQ(spelled(*test::load_json(j), "abc"), (Tokens{"abc"}));
}

TEST(Normalizer, PrependAndReplaceKeepOffsets) {
  json j = test::character_json("ab\u2581", {"\u2581 a"});
  j["normalizer"] = {{"type", "Sequence"},
                     {"normalizers",
                      {{{"type", "Prepend"}, {"prepend", "\u2581"}},
                       {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
  const auto t = test::load_json(j);
  EXPECT_EQ(spelled(*t, "a b"), (Tokens{"\u2581a", "\u2581", "b"}));
  using Pairs = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(t->encode_with_offsets("a b", kPlain).offsets, (Pairs{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_TRUE(t->encode("", kPlain).empty());
}

TEST(Normalizer, NfcIsThatOfUnicode9) {
  json j = test::byte_level_json({});
  j["normalizer"] = {{"type", "NFC"}};
  const auto t = test::load_json(j);
  const auto nfc = [&](const std::string& text) { return t->decode(t->encode(text)); };
  EXPECT_EQ(nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(nfc("\u212B\uF900\u0344"), "\u00C5\u8C48\u0308\u0301");
  EXPECT_EQ(nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(nfc("\u0623\u0655"), "\u0625\u0654");  // the mark belongs inside the composite before it
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");  // composes since Unicode 13
  EXPECT_EQ(nfc("a\u0301\u1DFA\u0323"), "\u00E1\u1DFA\u0323");     // a mark of Unicode 14 has class 0 here
}

TEST(PreTokenizer, BehavioursKeepOrDropTheMatches) {
  json j = test::character_json("ab-", {"a -", "- a", "a b", "- -", "ab -"});
  const auto cut = [&](const char* behavior, bool invert) {
    j["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
    return spelled(*test::load_json(j), "ab--a");
  };
  EXPECT_EQ(cut("Isolated", false), (Tokens{"ab", "-", "-", "a"}));
  EXPECT_EQ(cut("Removed", false), (Tokens{"ab", "a"}));
  EXPECT_EQ(cut("Removed", true), (Tokens{"-", "-"}));
  EXPECT_EQ(cut("Contiguous", false), (Tokens{"ab", "--", "a"}));
  EXPECT_EQ(cut("MergedWithPrevious", false), (Tokens{"ab-", "-", "a"}));
  EXPECT_EQ(cut("MergedWithNext", false), (Tokens{"ab", "-", "-a"}));
}

TEST(PreTokenizer, MetaspaceMarksTheStartAsItsSchemeSays) {
  json j = test::character_json("ab\u2581", {"\u2581 a", "\u2581 b"});
  j["added_tokens"] = json::array({test::added_token(5, "<x>", true)});
  const auto cut = [&](const char* scheme) {
    j["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", scheme}, {"split", true}};
    return spelled(*test::load_json(j), "a b<x>a");
  };
  EXPECT_EQ(cut("always"), (Tokens{"\u2581a", "\u2581b", "<x>", "\u2581a"}));
  EXPECT_EQ(cut("first"), (Tokens{"\u2581a", "\u2581b", "<x>", "a"}));
  EXPECT_EQ(cut("never"), (Tokens{"a", "\u2581b", "<x>", "a"}));
}

TEST(PreTokenizer, DigitsThenGpt2KeepsTheSpaceBeforeADigit) {
  json j = test::byte_level_json({"1 2", "\u0120 1"});
  j["pre_tokenizer"] = {{"type", "Sequence"},
                        {"pretokenizers",
                         {{{"type", "Digits"}, {"individual_digits", true}},
                          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}};
  EXPECT_EQ(spelled(*test::load_json(j), "a 12"), (Tokens{"a", "\u0120", "1", "2"}));
}

TEST(Decoder, ByteFallbackTurnsABadRunIntoReplacements) {
  json j = test::character_json("a\u2581", {});
  int id = 2;
  for (const char* byte : {"<0xC3>", "<0xA9>", "<0x64>"}) j["model"]["vocab"][byte] = id++;
  j["decoder"] = {{"type", "Sequence"},
                  {"decoders",
                   {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                    {{"type", "ByteFallback"}},
                    {{"type", "Fuse"}},
                    {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  const auto t = test::load_json(j);
  EXPECT_EQ(t->decode(Ids{1, 0, 2, 3, 1}), "a\u00E9 ");
  EXPECT_EQ(t->decode(Ids{2, 4, 0}), "\uFFFD\uFFFDa");
  EXPECT_EQ(t->token_bytes(2), "\xC3");
  EXPECT_EQ(t->token_bytes(1), " ");
  EXPECT_EQ(t->decode(Ids{-1, 999, 0}), "a");
  const auto stream = t->stream();
  EXPECT_EQ(stream->push(2), std::nullopt);
  EXPECT_EQ(stream->push(3), "\u00E9");
  EXPECT_EQ(stream->push(2), std::nullopt);
  // As one run C3 A9 C3 is no text at all; the first of its three replacements is where é stands already.
  EXPECT_EQ(stream->finish(), "\uFFFD\uFFFD");
}

TEST(PostProcessor, AddsItsTokensOnlyWhenAsked) {
  json j = test::byte_level_json({});
  j["added_tokens"] = {test::added_token(256, "<s>", true), test::added_token(257, "</s>", true)};
  j["post_processor"] = json::parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]},
                                     "</s>": {"id": "</s>", "ids": [257], "tokens": ["</s>"]}}})");
  const auto t = test::load_json(j);
  EXPECT_EQ(t->encode("a"), (Ids{256, 'a', 257}));
  EXPECT_EQ(t->encode("a", kPlain), (Ids{'a'}));
  EXPECT_EQ(t->encode_with_offsets("a").ids, (Ids{256, 'a', 257}));
}

TEST(Config, GivesNamesAndTemplates) {
  const test::TempDir folder;
  json j = test::byte_level_json({});
  j["added_tokens"] = {test::added_token(256, "<s>", true), test::added_token(257, "</s>", true)};
  std::ofstream(folder.path() / "tokenizer.json") << j.dump();
  std::ofstream(folder.path() / "tokenizer_config.json") << R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
      "pad_token": null, "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}],
      "clean_up_tokenization_spaces": true})";
  {
    const auto t = Tokenizer::load(folder.path());
    EXPECT_EQ(t->bos_id(), 256);
    EXPECT_EQ(t->eos_id(), 257);
    EXPECT_FALSE(t->adds_bos());
    EXPECT_EQ(t->special_tokens().size(), 2u);
    EXPECT_EQ(t->chat_template(), "D");
    EXPECT_EQ(t->chat_template("tool_use"), "T");
    EXPECT_EQ(t->chat_template("none"), std::nullopt);
    EXPECT_EQ(t->decode(t->encode("x .")), "x .");
    const auto cleaned = Tokenizer::load(folder.path(), {.clean_up_spaces = true});
    EXPECT_EQ(cleaned->decode(cleaned->encode("x . do n't")), "x. don't");
    EXPECT_NE(cleaned->digest(), t->digest());
  }
  std::ofstream(folder.path() / "chat_template.jinja") << "J";
  EXPECT_EQ(Tokenizer::load(folder.path())->chat_template(), "J");
}

TEST(Mistral, ItsWrongPatternIsNamedAndCanBeFixed) {
  const test::TempDir folder;
  json j = test::byte_level_json({});
  const std::string cl100k =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  j["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", cl100k}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  j["model"]["merges"] = {"1 2"};
  j["model"]["vocab"]["12"] = 256;
  std::ofstream(folder.path() / "tokenizer.json") << j.dump();
  std::ofstream(folder.path() / "config.json") << R"({"model_type": "mistral"})";
  const auto shipped = Tokenizer::load(folder.path());
  EXPECT_EQ(shipped->warnings().size(), 1u);
  EXPECT_EQ(shipped->encode("12"), (Ids{256}));
  const auto fixed = Tokenizer::load(folder.path(), {.fix_mistral_regex = true});
  EXPECT_TRUE(fixed->warnings().empty());
  EXPECT_EQ(fixed->encode("12"), (Ids{'1', '2'}));
  EXPECT_NE(fixed->digest(), shipped->digest());
}

TEST(Tokenizer, ReplacesInvalidBytesAndSaysWhere) {
  const auto t = test::load_json(test::byte_level_json({}));
  const Encoding e = t->encode_with_offsets(
      "ab\xE4\xB8"
      "c");
  EXPECT_EQ(e.first_invalid_byte, 2u);
  EXPECT_EQ(t->decode(e.ids), "ab\uFFFDc");
  EXPECT_EQ(t->encode_with_offsets("abc").first_invalid_byte, std::nullopt);
}

TEST(Tokenizer, ServesManyThreadsAlike) {
  const auto t = test::load_json(test::byte_level_json({"h e", "l l", "he ll", "hell o"}));
  const std::string text = "hello hell he held hello, help";
  const Ids want = t->encode(text);
  std::vector<int> wrong(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < wrong.size(); ++i)
    threads.emplace_back([&, i] {
      for (int n = 0; n < 200; ++n) wrong[i] += t->encode(text) != want;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8));
}

struct Bad {
  const char* path;   // JSON pointer of what is changed
  const char* value;  // its new value
  ErrorCode code;
  const char* says;
};

TEST(TokenizerJson, RefusesWhatItCannotRunAndNamesIt) {
  const Bad cases[] = {
      {"/normalizer", R"({"type": "Magic"})", ErrorCode::unsupported, "Magic"},
      {"/pre_tokenizer", R"({"type": "Magic"})", ErrorCode::unsupported, "Magic"},
      {"/decoder", R"({"type": "WordPiece"})", ErrorCode::unsupported, "WordPiece"},
      {"/post_processor", R"({"type": "Magic"})", ErrorCode::unsupported, "Magic"},
      {"/model/type", R"("Unigram")", ErrorCode::unsupported, "Unigram"},
      {"/model/dropout", "0.1", ErrorCode::unsupported, "dropout"},
      {"/version", R"("2.0")", ErrorCode::unsupported, "2.0"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})",
       ErrorCode::unsupported, "(a"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Odd"})", ErrorCode::corrupt,
       "Odd"},
      {"/pre_tokenizer", R"({"type": "Split", "behavior": "Isolated"})", ErrorCode::corrupt, "pattern"},
      {"/normalizer", R"("NFC")", ErrorCode::corrupt, "normalizer"},
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "////"})", ErrorCode::corrupt, "Precompiled"},
      {"/model/merges", R"(["a bb"])", ErrorCode::corrupt, "bb"},
      {"/model/merges", R"(["a b"])", ErrorCode::corrupt, "ab"},
      {"/model/merges", R"(["a  b"])", ErrorCode::corrupt, "space"},
      {"/model/merges", R"([["a"]])", ErrorCode::corrupt, "','"},
      {"/model/merges", R"({})", ErrorCode::corrupt, "merges"},
      {"/model/vocab", R"({"a": 0, "b": 0})", ErrorCode::corrupt, "same id 0"},
      {"/model/vocab", R"({"a": -1})", ErrorCode::corrupt, "-1"},
      {"/model/vocab", R"({"a": 2000000000})", ErrorCode::corrupt, "2000000000"},
      {"/model/vocab", R"({"a": 99999999999999999999999})", ErrorCode::corrupt, "integer"},
      {"/model/vocab", R"({"a": 1.5})", ErrorCode::corrupt, "integer"},
      {"/model/vocab", R"(["a"])", ErrorCode::corrupt, "vocab"},
      {"/model", "null", ErrorCode::corrupt, "model"},
      {"/model", R"({"type": "BPE"})", ErrorCode::corrupt, "vocabulary"},
      {"/added_tokens", R"([{"id": -3, "content": "x"}])", ErrorCode::corrupt, "id"},
      {"/added_tokens", R"({"a": 1})", ErrorCode::corrupt, "added_tokens"},
      {"/post_processor",
       R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {}})",
       ErrorCode::corrupt, "x"},
  };
  for (const Bad& bad : cases) {
    json j = test::byte_level_json({});
    j[json::json_pointer(bad.path)] = json::parse(bad.value);
    try {
      test::load_json(j);
      ADD_FAILURE() << bad.path << " " << bad.value << " was loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), bad.code) << bad.path << " " << bad.value << ": " << error.render();
      EXPECT_NE(error.render().find(bad.says), std::string::npos) << error.render();
    }
  }
}

TEST(TokenizerJson, RefusesBrokenText) {
  const std::string good = test::byte_level_json({"a b"}).dump();
  EXPECT_NO_THROW(test::load_text(good));
  for (size_t cut : {size_t{0}, size_t{1}, good.size() / 3, good.size() / 2, good.size() - 1})
    EXPECT_THROW(test::load_text(good.substr(0, cut)), Error) << cut;
  EXPECT_THROW(test::load_text(good + "x"), Error);
  EXPECT_THROW(test::load_text(std::string(2000, '[')), Error);
  EXPECT_THROW(test::load_text(R"({"model": {"type": "BPE", "vocab": {"a": 0, "a": 1}, "merges": []}})"), Error);
  EXPECT_THROW(test::load_text(R"({"model": {"type": "BPE", "vocab": {"\ud800": 0}, "merges": []}})"), Error);
  EXPECT_THROW(test::load_text("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\xFF\": 0}, \"merges\": []}}"), Error);
  const test::TempDir empty;
  EXPECT_THROW(Tokenizer::load(empty.path()), Error);
  EXPECT_FALSE(Tokenizer::present(empty.path()));
  std::ofstream(empty.path() / "tokenizer.model") << "not a model";
  EXPECT_THROW(Tokenizer::load(empty.path()), Error);
}

}  // namespace
}  // namespace hayfork::engine
