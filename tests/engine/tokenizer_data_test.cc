// Tokenizers against the reference library: every row of the golden corpus for five vocabularies (ids, offsets, decoded
// text, streams), SentencePiece models, invalid UTF-8, whole documents and whole vocabularies.
#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "engine/text/tokenizer.h"
#include "tests/support/paths.h"
#include "tests/support/tokenizer_archives.h"

namespace hayfork::engine {
namespace {

using nlohmann::json;
constexpr EncodeOptions kPlain{.add_special = false, .parse_special = true};
constexpr EncodeOptions kLiteral{.add_special = false, .parse_special = false};

void for_each_line(const std::string& text, const std::function<void(const json&)>& f) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) f(json::parse(line));
}

std::vector<int32_t> flat(const Encoding& encoding) {
  std::vector<int32_t> out;
  for (const auto& [begin, end] : encoding.offsets) out.insert(out.end(), {begin, end});
  return out;
}

class TokenizerGolden : public testing::TestWithParam<std::string> {
 protected:
  static const Tokenizer& tokenizer(const std::string& name) {
    static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
    std::unique_ptr<Tokenizer>& slot = loaded[name];
    if (!slot) slot = test::load_archived_tokenizer(name);
    return *slot;
  }
};

TEST_P(TokenizerGolden, EncodesAndDecodesTheCorpus) {
  HAY_NEED_DATA(file, "golden/tokenizers/" + GetParam() + ".jsonl.xz");
  const Tokenizer& t = tokenizer(GetParam());
  int rows = 0;
  for_each_line(test::read_xz(file), [&](const json& row) {
    const std::string text = row["text"];
    const std::string id = row["id"];
    const std::vector<int32_t> ids = row["ids"];
    const std::vector<int32_t> special = row["ids_special"];
    EXPECT_EQ(t.encode(text, kPlain), ids) << id;
    EXPECT_EQ(t.encode(text), special) << id;
    EXPECT_EQ(t.encode(text, kLiteral), row.value("ids_literal", ids)) << id;
    const Encoding tracked = t.encode_with_offsets(text, kPlain);
    EXPECT_EQ(tracked.ids, ids) << id;
    EXPECT_EQ(flat(tracked), row["offsets"].get<std::vector<int32_t>>()) << id;
    EXPECT_EQ(t.decode(special, true), row["decoded_skip"].get<std::string>()) << id;
    EXPECT_EQ(t.decode(special, false), row["decoded_full"].get<std::string>()) << id;
    ++rows;
  });
  EXPECT_GE(rows, 3000);
}

TEST_P(TokenizerGolden, StreamsTheSameIncrements) {
  HAY_NEED_DATA(file, "golden/tokenizers/stream.jsonl.xz");
  const Tokenizer& t = tokenizer(GetParam());
  int rows = 0;
  for_each_line(test::read_xz(file), [&](const json& row) {
    if (row["tokenizer"] != GetParam()) return;
    const std::vector<int32_t> ids = row["ids"];
    const bool skip = row["skip_special"];
    const auto stream = t.stream(skip);
    json increments = json::array();
    std::string joined;
    for (const int32_t id : ids) {
      const std::optional<std::string> piece = stream->push(id);
      increments.push_back(piece ? json(*piece) : json());
      joined += piece.value_or("");
    }
    const std::string rest = stream->finish();
    EXPECT_EQ(t.decode(ids, skip), row["final"].get<std::string>());
    ++rows;
    if (row["rest"].is_null()) return;  // a later byte changed text that was out: only the final text can be right
    EXPECT_EQ(increments, row["increments"]) << row["ids"];
    EXPECT_EQ(rest, row["rest"].get<std::string>());
    EXPECT_EQ(joined + rest, row["final"].get<std::string>());
  });
  EXPECT_GT(rows, 100);
}

TEST_P(TokenizerGolden, KnowsItsWholeVocabulary) {
  HAY_NEED_DATA(file, "golden/tokenizers/bulk.json");
  const json want = json::parse(read_file(file, ErrorSubject::data))["vocabulary"][GetParam()];
  const Tokenizer& t = tokenizer(GetParam());
  EXPECT_EQ(t.vocab_size(), want["ids"].get<int32_t>());
  std::string decoded, spelled;
  for (int32_t id = 0; id < t.vocab_size(); ++id) {
    decoded += t.decode(std::vector<int32_t>{id}, false) + "\n";
    spelled += t.token_text(id) + "\n";
  }
  EXPECT_EQ(sha256_hex(decoded), want["sha256_of_decoded_ids"]);
  EXPECT_EQ(sha256_hex(spelled), want["sha256_of_token_strings"]);
  EXPECT_EQ(t.digest(), want["tokenizer_json_sha256"]);
}

// A path of the golden file: a file, or "folder/*.txt (…)", all of them joined in byte order of their names.
std::string read_document(const std::string& path) {
  const size_t star = path.find("/*.txt");
  if (star == std::string::npos) return read_file(test::data_path(path).value(), ErrorSubject::data);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(test::data_path(path.substr(0, star)).value()))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string out;
  for (const auto& file : files) out += read_file(file, ErrorSubject::data);
  return out;
}

TEST_P(TokenizerGolden, EncodesWholeDocuments) {
  HAY_NEED_DATA(file, "golden/tokenizers/bulk.json");
  const json documents = json::parse(read_file(file, ErrorSubject::data))["documents"];
  const Tokenizer& t = tokenizer(GetParam());
  for (const auto& [path, want] : documents.items()) {
    const std::string text = read_document(path);
    ASSERT_EQ(sha256_hex(text), want["sha256"]) << path;
    const std::vector<int32_t> ids = t.encode(text, kPlain);
    EXPECT_EQ(ids.size(), want["tokens"][GetParam()]["count"].get<size_t>()) << path;
    std::string bytes;
    for (const int32_t id : ids)
      for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift & 0xFF);
    EXPECT_EQ(sha256_hex(bytes), want["tokens"][GetParam()]["sha256_u32le"]) << path;
    EXPECT_EQ(t.decode(ids, false), text) << path;
  }
}

TEST_P(TokenizerGolden, ReplacesInvalidUtf8ByMaximalSubparts) {
  HAY_NEED_DATA(file, "golden/tokenizers/invalid_utf8.jsonl");
  const Tokenizer& t = tokenizer(GetParam());
  int rows = 0;
  for_each_line(read_file(file, ErrorSubject::data), [&](const json& row) {
    std::string bytes;
    const std::string hex = row["hex"];
    for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    EXPECT_EQ(t.encode(bytes, kPlain), row["ids_if_replaced"][GetParam()].get<std::vector<int32_t>>()) << hex;
    const std::optional<size_t> bad = t.encode_with_offsets(bytes, kPlain).first_invalid_byte;
    ASSERT_TRUE(bad.has_value()) << hex;
    EXPECT_LT(*bad, bytes.size());
    ++rows;
  });
  EXPECT_GT(rows, 40);
}

INSTANTIATE_TEST_SUITE_P(Archives, TokenizerGolden, testing::Values("qwen3", "llama3_1", "gptoss", "gemma3", "llama2"),
                         [](const auto& test_case) { return test_case.param; });

class SentencePieceGolden : public testing::TestWithParam<std::string> {};

TEST_P(SentencePieceGolden, EncodesAndDecodesTheCorpus) {
  HAY_NEED_DATA(packed, "golden/tokenizers/spm_" + GetParam() + ".model.xz");
  HAY_NEED_DATA(rows_file, "golden/tokenizers/spm_" + GetParam() + ".jsonl.xz");
  const test::TempDir folder;
  std::ofstream(folder.path() / "tokenizer.model", std::ios::binary) << test::read_xz(packed);
  const auto t = Tokenizer::load(folder.path());
  int rows = 0;
  for_each_line(test::read_xz(rows_file), [&](const json& row) {
    const std::string text = row["text"];
    const std::vector<int32_t> ids = row["ids"];
    EXPECT_EQ(t->encode(text, kPlain), ids) << row["id"];
    EXPECT_EQ(t->encode_with_offsets(text, kPlain).ids, ids) << row["id"];
    EXPECT_EQ(t->decode(ids), row["decoded"].get<std::string>()) << row["id"];
    ++rows;
  });
  EXPECT_GE(rows, 3000);
  const std::vector<int32_t> with_bos = t->encode("it");
  EXPECT_EQ(with_bos.at(0), t->bos_id());
  // A run of byte pieces that is no character: one U+FFFD per bad byte, the good ones kept.
  EXPECT_EQ(t->decode(std::vector<int32_t>{3 + 0xC3, 3 + 0x64}), "\uFFFDd");
  EXPECT_EQ(t->decode(std::vector<int32_t>{1, -5, 99999999, 2}), "");
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceGolden, testing::Values("mistral_v1", "llama2"),
                         [](const auto& test_case) { return test_case.param; });

}  // namespace
}  // namespace hayfork::engine
