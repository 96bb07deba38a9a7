// Every form of lm-evaluation-harness beside the harness itself (0.4.13), over invented rows with awkward content:
// tests/golden/lm_eval_forms.jsonl holds the texts that it sends, the made-up answers that it was given and what it
// made of them (scripts/check_lm_eval_prompts.py … --write, over tests/golden/lm_eval_rows).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "tasks/tasks.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/data_folder.h"
#include "tests/support/paths.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;

struct FormCase {
  std::vector<json> documents;
  json version, results;
};

// By task and number of examples.
const std::map<std::pair<std::string, int>, FormCase>& form_cases() {
  static const auto kCases = [] {
    std::map<std::pair<std::string, int>, FormCase> out;
    std::ifstream file(test::source_dir() / "tests/golden/lm_eval_forms.jsonl");
    for (std::string line; std::getline(file, line);) {
      json row = json::parse(line);
      FormCase& one = out[{row["task"], row["shots"]}];
      if (row.contains("doc_id")) {
        one.documents.push_back(std::move(row));
      } else {
        one.version = row["version"];
        one.results = row["results"];
      }
    }
    return out;
  }();
  return kCases;
}

class LmEvalForms : public testing::TestWithParam<std::pair<std::string, int>> {
 protected:
  void SetUp() override {
    TaskOptions options;
    options.data_dir = test::source_dir() / "tests/golden/lm_eval_rows";
    options.num_fewshot = GetParam().second;
    const auto own = test::source_dir() / "tests/golden/lm_eval_tasks" / (GetParam().first + ".yaml");
    task_ = make_task(exists(own) ? own.string() : GetParam().first, options,
                      {.tokenizer = &tokenizer_, .window = 1 << 20});
  }
  const FormCase& golden() const { return form_cases().at(GetParam()); }

  test::ByteTokenizer tokenizer_;
  std::unique_ptr<Task> task_;
};

TEST_P(LmEvalForms, TextsAndHashesAreUpstreams) {
  ASSERT_EQ(task_->n_samples(), static_cast<int64_t>(golden().documents.size()));
  EXPECT_EQ(task_->info().version,
            golden().version.is_string() ? golden().version.get<std::string>() : golden().version.dump());
  for (const json& want : golden().documents) {
    SCOPED_TRACE(want["doc_id"].dump());
    const json ours = json::parse(task_->upstream_row(want["doc_id"]));
    for (const char* key : {"doc_hash", "prompt_hash", "target_hash", "text", "context", "until", "max_gen_toks"}) {
      if (want.contains(key)) {
        EXPECT_EQ(ours.value(key, json()), want[key]) << key;
      }
    }
    const json requests = want.value("requests", json::array());
    ASSERT_EQ(ours.value("requests", json::array()).size(), requests.size());
    std::string context;
    for (size_t j = 0; j < requests.size(); ++j) {
      if (requests[j].size() > 1) context = requests[j][1];
      EXPECT_EQ(ours["requests"][j]["continuation"], requests[j][0]);
      EXPECT_EQ(ours["requests"][j].value("context", ours.value("context", "")), context);
    }
  }
}

// The harness's answers in the place of the model's.
std::vector<engine::Answer> made_up(const Sample& sample, const json& answers) {
  std::vector<engine::Answer> out;
  size_t next = 0;
  for (const engine::Request& request : sample.requests) {
    if (std::holds_alternative<engine::GenerateRequest>(request)) {
      out.push_back({.result = engine::GenerateAnswer{.text = answers.at(next++)}});
      continue;
    }
    engine::ScoreAnswer scores;
    for (const auto& ids : std::get<engine::ScoreRequest>(request).continuations) {
      engine::ContinuationScore score{.token_logprobs = std::vector<float>(ids.size())};
      if (answers[0].is_array()) {
        score.logprob = answers.at(next)[0];
        score.is_greedy = answers.at(next++)[1];
      } else if (next++ == 0) {  // a text in windows: all of it in the first
        score.logprob = answers[0];
      }
      scores.continuations.push_back(std::move(score));
    }
    out.push_back({.result = std::move(scores)});
  }
  return out;
}

void compare_metrics(const SampleScore& score, const json& metrics) {
  for (const auto& [name, value] : metrics.items()) {
    SCOPED_TRACE(name);
    if (value.is_number()) {
      EXPECT_DOUBLE_EQ(test::metric(score, name).value_or(std::nan("")), value.get<double>());
    } else if (name == "f1") {  // cb: (gold, prediction), to be folded
      EXPECT_EQ(test::metric(score, "gold"), value[0].get<double>());
      EXPECT_EQ(test::metric(score, "pred"), value[1].get<double>());
    } else {  // (log-likelihood, words or bytes)
      EXPECT_EQ(test::metric(score, "loglikelihood"), value[0].get<double>());
      EXPECT_EQ(test::metric(score, name == "word_perplexity" ? "words" : "bytes"), value[1].get<double>());
    }
  }
}

TEST_P(LmEvalForms, MetricsOfMadeUpAnswersAreUpstreams) {
  std::vector<FoldRow> rows;
  for (const json& want : golden().documents) {
    SCOPED_TRACE(want["doc_id"].dump());
    const Sample sample = task_->sample(want["doc_id"]);
    const SampleScore score = task_->score(sample, made_up(sample, want["answers"]));
    ASSERT_EQ(score.status, Status::ok) << score.error;
    compare_metrics(score, want["metrics"]);
    rows.push_back({sample, score.status, score.score, score.metrics});
  }
  const std::vector<Aggregate> aggregates = task_->fold(rows);
  size_t n_values = 0, n_errors = 0;
  for (const Aggregate& a : aggregates) {
    if (!golden().results.contains(a.metric + ",none")) continue;
    SCOPED_TRACE(a.metric);
    ++n_values;
    ASSERT_TRUE(a.value);
    const double want = golden().results[a.metric + ",none"];
    EXPECT_NEAR(*a.value, want, 1e-12 * std::abs(want));
    const json& error = golden().results[a.metric + "_stderr,none"];
    if (a.metric == "perplexity") continue;  // upstream's is a bootstrap of a hundred thousand draws, ours its limit
    if (!error.is_number()) continue;
    ++n_errors;
    EXPECT_NEAR(a.stderr_value.value_or(0), error.get<double>(), 1e-12);
  }
  EXPECT_EQ(n_values, golden().documents[0]["metrics"].size());
  EXPECT_TRUE(n_errors > 0 || !golden().documents[0].contains("requests"));
}

std::vector<std::pair<std::string, int>> names_of_cases() {
  std::vector<std::pair<std::string, int>> out;
  for (const auto& [name, one] : form_cases()) out.push_back(name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, LmEvalForms, testing::ValuesIn(names_of_cases()), [](const auto& one) {
  std::string name = one.param.first + "_" + std::to_string(one.param.second) + "shot";
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(LmEvalFormCases, EveryFormIsThere) {
  std::set<std::string> tasks;
  size_t n_documents = 0;
  for (const auto& [name, one] : form_cases()) {
    tasks.insert(name.first);
    n_documents += one.documents.size();
  }
  EXPECT_EQ(tasks.size(), 38u);
  EXPECT_EQ(n_documents, 314u);
}

// tests/golden/lm_eval_groups.jsonl: the harness's values of 57 + 57 + 52 + 67 subjects of two to eight documents each,
// and of the groups over them.
TEST(LmEvalGroups, ValuesAndErrorsAreUpstreams) {
  std::map<std::string, json> lines;
  std::ifstream file(test::source_dir() / "tests/golden/lm_eval_groups.jsonl");
  for (std::string line; std::getline(file, line);) {
    const json row = json::parse(line);
    lines[row["task"]] = row;
  }
  const auto aggregates_of = [&](const std::string& name) {
    std::vector<Aggregate> out;
    const json& results = lines.at(name)["results"];
    for (const char* metric : {"acc", "acc_norm"}) {
      if (!results.contains(metric + std::string(",none"))) continue;
      Aggregate a;
      a.metric = metric;
      a.n = results["sample_len"];
      a.value = results[metric + std::string(",none")];
      const double error = results[metric + std::string("_stderr,none")];
      if (error > 0) a.stderr_value = error;
      out.push_back(a);
    }
    return out;
  };
  size_t n_checked = 0;
  const auto check = [&](const std::string& name, const std::vector<Aggregate>& got, const std::string& slice) {
    for (const Aggregate& want : aggregates_of(name)) {
      SCOPED_TRACE(name + " " + want.metric);
      const auto found = std::find_if(got.begin(), got.end(),
                                      [&](const Aggregate& a) { return a.slice == slice && a.metric == want.metric; });
      ASSERT_NE(found, got.end());
      EXPECT_NEAR(*found->value, *want.value, 1e-12);
      EXPECT_NEAR(found->stderr_value.value_or(0), *want.stderr_value, 1e-12);
      EXPECT_EQ(found->n, want.n);
      ++n_checked;
    }
  };
  for (const std::string name : {"mmlu", "mmlu_stem", "mmlu_other", "mmlu_social_sciences", "mmlu_humanities",
                                 "mmlu_continuation", "ceval-valid", "cmmlu"}) {
    const TaskEntry& group = find_task(name);
    EXPECT_EQ(group.version, lines.at(name)["version"]);
    std::map<std::string, std::vector<Aggregate>> members;
    for (const std::string& member : group.members) members[member] = aggregates_of(member);
    const std::vector<Aggregate> folded = group.fold_group(members);
    check(name, folded, "");
    if (name == "mmlu")
      for (const std::string part : {"stem", "other", "social_sciences", "humanities"})
        check("mmlu_" + part, folded, "category=" + part);
    if (name == "mmlu_continuation")
      for (const auto& [part, slice] : {std::pair{"stem", "stem"},
                                        {"other", "other"},
                                        {"social sciences", "social_sciences"},
                                        {"humanities", "humanities"}})
        check("mmlu_continuation::" + std::string(part), folded, "category=" + std::string(slice));
  }
  EXPECT_EQ(n_checked, 18u);
}

}  // namespace
}  // namespace hayfork::tasks
