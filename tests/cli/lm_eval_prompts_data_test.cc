// Every document of the lm_eval golden files: strings, ids and hashes equal what lm-evaluation-harness sent.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file_map.h"
#include "cli/chat.h"
#include "engine/text/tokenizer.h"
#include "tasks/tasks.h"
#include "tests/support/lm_eval_golden.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/smollm2.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;

TEST(LmEvalPrompts, EveryGoldenDocumentIsAskedAsUpstreamAsksIt) {
  HAY_NEED_SMOLLM2(model);
  HAY_NEED_DATA(golden, "golden/lm_eval");
  HAY_NEED_DATA(mc, "mc");
  test::TempDir folder;
  const auto tokenizer = engine::Tokenizer::load(model);
  int n_documents = 0;
  for (const test::LmEvalCase& one : test::lm_eval_cases()) {
    SCOPED_TRACE(one.file);
    test::add_lm_eval_data(one, mc, folder.path());
    tasks::TextContext text{.tokenizer = tokenizer.get()};
    if (one.chat) text.chat = chat_renderer(load_chat_template(*tokenizer, "default", "smollm2"), *tokenizer, {});
    tasks::TaskOptions options;
    options.limit = 60;
    options.num_fewshot = one.shots;
    options.data_dir = folder.path();
    const auto task = tasks::make_task(one.task, options, text);
    for (const json& row : test::read_jsonl_xz(golden / (one.file + ".jsonl.xz"))) {
      SCOPED_TRACE(row["doc_id"].dump());
      const json ours = json::parse(task->upstream_row(row["doc_id"]));
      for (const char* key : {"choices", "gold", "prompt_hash", "target_hash", "context", "context_ids", "native_id"}) {
        if (row.contains(key) && ours.contains(key)) {
          EXPECT_EQ(ours[key], row[key]) << key;
        }
      }
      ASSERT_EQ(ours.contains("context"), row.contains("context"));
      ASSERT_EQ(ours["requests"].size(), row["requests"].size());
      for (size_t j = 0; j < row["requests"].size(); ++j) {
        for (const char* key : {"context", "continuation", "context_ids", "continuation_ids"}) {
          if (row["requests"][j].contains(key)) {
            EXPECT_EQ(ours["requests"][j][key], row["requests"][j][key]) << key;
          }
        }
      }
      ++n_documents;
      if (HasFailure()) break;
    }
  }
  EXPECT_EQ(n_documents, 758);
}

TEST(LmEvalPrompts, RollingWindowsAreUpstreams) {
  HAY_NEED_SMOLLM2(model);
  HAY_NEED_DATA(golden, "golden/lm_eval/rolling_wikitext.json.xz");
  const json all = json::parse(test::read_xz(golden));
  const test::TempDir folder;
  const auto tokenizer = engine::Tokenizer::load(model);
  const tasks::TaskOptions options = test::add_lm_eval_rolling(all, folder.path());
  const auto task = tasks::make_task("wikitext", options, {.tokenizer = tokenizer.get()});
  for (size_t i = 0; i < all["documents"].size(); ++i) {
    const json& document = all["documents"][i];
    const tasks::Sample sample = task->sample(static_cast<int64_t>(i));
    EXPECT_EQ(*sample.prompt_text, document["scored_text"].get<std::string>());
    ASSERT_EQ(sample.requests.size(), document["windows"].size());
    std::vector<int32_t> scored;
    for (size_t w = 0; w < sample.requests.size(); ++w) {
      const auto& request = std::get<engine::ScoreRequest>(sample.requests[w]);
      const json& window = document["windows"][w];
      EXPECT_EQ(json(request.context), window["context_ids"]);
      EXPECT_EQ(request.continuations[0].size(), window["n_continuation"].get<size_t>());
      scored.insert(scored.end(), request.continuations[0].begin(), request.continuations[0].end());
    }
    EXPECT_EQ(json(scored), document["ids"]);
  }
}

TEST(LmEvalPrompts, DataAddAndShowPromptsGiveTheSame) {
  HAY_NEED_SMOLLM2(model);
  HAY_NEED_DATA(golden, "golden/lm_eval");
  HAY_NEED_DATA(mc, "mc");
  test::TempDir folder;
  const std::string data = folder.path().string();
  const auto added = test::hayfork({"data", "add", "--data", data, "arc_easy",
                                    "test=" + (mc / "arc/olmes_arc_easy_test_rc_5shot.requests.jsonl.gz").string(),
                                    "train=" + (mc / "arc/olmes_arc_easy_val_rc_0shot.requests.jsonl.gz").string()});
  ASSERT_EQ(added.status, 0) << added.err;
  const auto verified = test::hayfork({"data", "verify", "--data", data, "-o", "json"});
  EXPECT_EQ(verified.status, 0) << verified.err;
  const auto shown = test::hayfork({"show", "prompts", "arc_easy", "--model", model.string(), "--num-fewshot", "5",
                                    "--limit", "2", "--data", data, "-o", "jsonl"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  const json first = json::parse(shown.out.substr(0, shown.out.find('\n')));
  const json wanted = test::read_jsonl_xz(golden / "arc_easy_5shot.jsonl.xz").front();
  EXPECT_EQ(first["context"], wanted["context"]);
  EXPECT_EQ(first["requests"][3]["continuation_ids"], wanted["requests"][3]["continuation_ids"]);
}

}  // namespace
}  // namespace hayfork::cli
