// Whole prompts of upstream's generators with toy tokenizers: search traces, lengths, answers, SHA-256 of each prompt.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "datasets/haystack.h"
#include "datasets/ruler/ruler.h"
#include "tests/support/paths.h"

namespace hayfork::datasets {
namespace {

using nlohmann::json;

int64_t white_space_pieces(std::string_view text) {
  int64_t n = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    n += !space && !inside;
    inside = !space;
  }
  return n;
}

std::vector<std::string> split_after_marks(const std::string& text) {
  std::vector<std::string> out;
  size_t from = 0;
  for (size_t i = 1; i < text.size(); ++i)
    if (text[i] == ' ' && (text[i - 1] == '.' || text[i - 1] == '!' || text[i - 1] == '?')) {
      out.push_back(text.substr(from, i - from));
      from = i + 1;
    }
  out.push_back(text.substr(from));
  return out;
}

struct Sources {
  WordLists lists;
  WordPairs pairs;
  std::vector<std::string> words, essays;
  QaSet squad, hotpot;

  explicit Sources(const std::filesystem::path& folder)
      : lists(load_word_lists(folder)),
        pairs(lists),
        words(lists.all()),
        squad(load_squad(folder / "squad_dev_v2_3articles.json")),
        hotpot(load_hotpot(folder / "hotpot_dev_distractor_v1_first53.json")) {}

  RulerSources of(const RulerTask& task) const {
    return {&pairs, &words, nullptr, &essays, task.dataset == "squad" ? &squad : &hotpot};
  }
};

void check_run(const json& run, const Sources& sources, int& n_prompts) {
  const std::string name = run["task"];
  SCOPED_TRACE(name + " at " + run["max_seq_length"].dump() + " " + run["toy_tokenizer"].get<std::string>());
  const auto it =
      std::find_if(ruler_tasks().begin(), ruler_tasks().end(), [&](const RulerTask& t) { return t.name == name; });
  ASSERT_NE(it, ruler_tasks().end());
  EXPECT_EQ(it->tokens_to_generate, run["tokens_to_generate"].get<int64_t>());
  RulerOptions options{.max_length = run["max_seq_length"], .seed = run["random_seed"]};
  options.split = split_after_marks;
  if (run["toy_tokenizer"] == "ws")
    options.count = white_space_pieces;
  else
    options.count = [](std::string_view text) { return static_cast<int64_t>((text.size() + 3) / 4); };
  const auto generator = make_ruler_generator(*it, sources.of(*it), options);
  if (!run["search_trace"].empty()) {
    std::vector<std::pair<int64_t, int64_t>> probes;
    for (const RulerSearch& s : generator->searches()) probes.insert(probes.end(), s.probes.begin(), s.probes.end());
    ASSERT_EQ(probes.size(), run["search_trace"].size());
    for (size_t i = 0; i < probes.size(); ++i) {
      EXPECT_EQ(probes[i].first, run["search_trace"][i][0].get<int64_t>()) << i;
      EXPECT_EQ(probes[i].second, run["search_trace"][i][1].get<int64_t>()) << i;
    }
  }
  RulerState state = generator->start();
  for (const json& want : run["samples"]) {
    const RulerSample s = generator->draw(state);
    EXPECT_EQ(s.outputs, want["outputs"].get<std::vector<std::string>>());
    EXPECT_EQ(s.length, want["length"].get<int64_t>());
    EXPECT_EQ(s.answer_prefix, want["answer_prefix"].get<std::string>());
    EXPECT_EQ(s.index, want["upstream_index_field"].get<int64_t>());
    if (want.contains("token_position_answer")) {
      EXPECT_EQ(s.token_position_answer, want["token_position_answer"].get<int64_t>());
    }
    EXPECT_EQ(sha256_hex(s.input + s.answer_prefix), want["full_prompt_sha256"].get<std::string>());
    if (want.contains("input")) {
      EXPECT_EQ(s.input, want["input"].get<std::string>());
    }
    ++n_prompts;
  }
}

TEST(RulerGoldenData, EveryPromptEqualsUpstreams) {
  HAY_NEED_DATA(folder, "ruler");
  HAY_NEED_DATA(essays, "niah/PaulGrahamEssays");
  Sources sources(folder);
  sources.essays = essay_words(load_haystack(essays).text);
  int n_prompts = 0;
  for (const char* file : {"golden_no_essay.json", "golden_essay49_regexsplit.json"})
    for (const json& run : json::parse(read_file(folder / "golden" / file, ErrorSubject::data)))
      check_run(run, sources, n_prompts);
  EXPECT_EQ(n_prompts, 155);
}

}  // namespace
}  // namespace hayfork::datasets
