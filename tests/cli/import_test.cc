// hayfork import and export of lm-evaluation-harness's files through the program: our own round trip, and files with
// faults.
#include <cmath>

#include <fmt/format.h>

#include "base/file_map.h"
#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

// A results file of lm-evaluation-harness 0.4 with 30 made-up questions, two thirds right.
json results() {
  return {{"results",
           {{"arc_easy",
             {{"alias", "arc_easy"},
              {"acc,none", 20.0 / 30},
              {"acc_stderr,none", 0.0875},
              {"acc_norm,none", 0.5},
              {"acc_norm_stderr,none", 0.0}}}}},
          {"group_subtasks", json::object()},
          {"configs",
           {{"arc_easy",
             {{"task", "arc_easy"},
              {"output_type", "multiple_choice"},
              {"metric_list", {{{"metric", "acc"}}, {{"metric", "acc_norm"}}}}}}}},
          {"versions", {{"arc_easy", 1.0}}},
          {"n-shot", {{"arc_easy", 0}}},
          {"higher_is_better", {{"arc_easy", {{"acc", true}, {"acc_norm", true}}}}},
          {"n-samples", {{"arc_easy", {{"original", 2376}, {"effective", 30}}}}},
          {"config",
           {{"model", "hf"},
            {"model_args", "pretrained=made/up"},
            {"model_dtype", "torch.bfloat16"},
            {"model_num_parameters", 134515008},
            {"random_seed", 0}}},
          {"git_hash", "abc"},
          {"model_name", "made/up"},
          {"max_length", 8192},
          {"chat_template", nullptr},
          {"total_evaluation_time_seconds", "12.5"}};
}

// One line of a samples file, values as sanitize_list leaves them.
json sample(int i) {
  const bool right = i < 20;
  const json no = json::array({"-3.5", "False"}), yes = json::array({right ? "-1.25" : "-9.0", "True"});
  return {{"doc_id", i},
          {"doc", {{"id", fmt::format("Q{}", i)}, {"question", fmt::format("What is {}?", i)}}},
          {"target", "1"},
          {"arguments",
           {{"gen_args_0", {{"arg_0", fmt::format("Question: {}\nAnswer:", i)}, {"arg_1", " no"}}},
            {"gen_args_1", {{"arg_0", fmt::format("Question: {}\nAnswer:", i)}, {"arg_1", " yes, ä"}}}}},
          {"resps", json::array({json::array({no}), json::array({yes})})},
          {"filtered_resps", json::array({no, yes})},
          {"filter", "none"},
          {"metrics", json::array({"acc", "acc_norm"})},
          {"doc_hash", fmt::format("{:064x}", i)},
          {"prompt_hash", fmt::format("{:064x}", i + 1000)},
          {"target_hash", "aa"},
          {"acc", right ? 1.0 : 0.0},
          {"acc_norm", i % 2 == 0 ? 1.0 : 0.0}};
}

class ImportTest : public test::CliTest {
 protected:
  std::string write_results(const json& value = results()) const {
    return write("lm/results_2026-11-01.json", value.dump(2));
  }
  std::string write_samples(int n = 30) const {
    std::string lines;
    for (int i = 0; i < n; ++i) lines += sample(i).dump() + "\n";
    return write("lm/samples_arc_easy_2026-11-01.jsonl", lines);
  }
  std::vector<fs::path> files_under(const std::string& folder) const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::recursive_directory_iterator(path(folder))) {
      if (entry.is_regular_file()) out.push_back(entry.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
};

TEST_F(ImportTest, LmEvalResultsWithSamples) {
  const ProcessResult result = import_of({"lm-eval", write_results(), "--samples", write_samples(), "--name", "first"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("HAY-W031"));
  EXPECT_THAT(result.err, HasSubstr("HAY-W032"));
  const json metrics = json_of({"export", "metrics", "first"})["metrics"];
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0]["metric"], "acc");
  EXPECT_EQ(metrics[0]["protocol"], "lm-eval/arc_easy/1.0");
  EXPECT_EQ(metrics[0]["model"], "made/up");
  EXPECT_EQ(metrics[0]["n"], 30);
  EXPECT_EQ(metrics[0]["ci_method"], "wilson");  // the samples give the same mean
  EXPECT_TRUE(metrics[1]["stderr"].is_null());   // 0.0 says nothing
  const json samples = json_of({"export", "samples", "first"})["samples"];
  ASSERT_EQ(samples.size(), 30u);
  EXPECT_EQ(samples[0]["gold"], 1);
  EXPECT_EQ(samples[0]["pred"], 1);
  EXPECT_EQ(samples[0]["prompt_text"], "Question: 0\nAnswer:");
  EXPECT_EQ(samples[0]["requests"][0]["loglikelihood"], -3.5);
  EXPECT_EQ(samples[0]["requests"][1]["n_chars"], 6);
  EXPECT_EQ(samples[0]["metrics"]["acc"], 1.0);
  expect_error(import_of({"lm-eval", path("lm/results_2026-11-01.json"), path("lm/samples_arc_easy_2026-11-01.jsonl")}),
               2, {"in the database already"});
  expect_intact();
}

TEST_F(ImportTest, ExportedLmEvalFilesAreImportedAsTheSame) {
  import_of({"lm-eval", write_results(), write_samples(), "--name", "first"});
  ASSERT_EQ(run({"export", "lm-eval", "first", "--out", path("out")}).status, 0);
  const auto files = files_under("out");
  ASSERT_EQ(files.size(), 2u);
  std::vector<std::string> arguments = {"lm-eval", "--name", "again"};
  for (const fs::path& file : files) arguments.push_back(file.string());
  const ProcessResult result = import_of(arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  const json row = json_of({"compare", "first", "again"})["comparison"][0];
  EXPECT_EQ(row["verdict"], "same");
  EXPECT_EQ(row["pairs"], 30);
  EXPECT_EQ(row["note"], "unverified model");
  const json before = json::parse(read("lm/results_2026-11-01.json"));
  const json after = json::parse(read_file(files[0], ErrorSubject::general));
  EXPECT_EQ(after["results"]["arc_easy"]["acc,none"], before["results"]["arc_easy"]["acc,none"]);
  EXPECT_EQ(after["versions"], before["versions"]);
  EXPECT_EQ(after["higher_is_better"], before["higher_is_better"]);
}

// Corpus metrics hold [log-likelihood, words or bytes] for each document.
TEST_F(ImportTest, LmEvalRollingLosses) {
  const json file = {{"results", {{"wikitext", {{"word_perplexity,none", 20.0}, {"byte_perplexity,none", 2.0}}}}},
                     {"configs",
                      {{"wikitext",
                        {{"output_type", "loglikelihood_rolling"},
                         {"metric_list", {{{"metric", "word_perplexity"}}, {{"metric", "byte_perplexity"}}}}}}}},
                     {"versions", {{"wikitext", 2.0}}},
                     {"n-samples", {{"wikitext", {{"effective", 3}}}}},
                     {"model_name", "made/up"}};
  const auto line = [](int i, const char* loss) {
    return fmt::format(
        R"({{"doc_id":{0},"doc":{{"page":"p{0}"}},"target":"t","arguments":{{"gen_args_0":{{"arg_0":"p{0}"}}}},"resps":[["{1}"]],)"
        R"("filtered_resps":["{1}"],"filter":"none","word_perplexity":[{1},10],"byte_perplexity":[{1},50]}})"
        "\n",
        i, loss);
  };
  write("r/results_1.json", file.dump());
  write("r/samples_wikitext_1.jsonl", line(0, "-20.0") + line(1, "-30.5") + line(2, "NaN"));
  const ProcessResult result =
      import_of({"lm-eval", path("r/results_1.json"), path("r/samples_wikitext_1.jsonl"), "--name", "first"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json samples = json_of({"export", "samples", "first"})["samples"];
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0]["metrics"], json({{"loglikelihood", -20.0}, {"words", 10.0}, {"bytes", 50.0}}));
  EXPECT_NEAR(samples[0]["score"].get<double>(), std::exp(2.0), 1e-12);
  EXPECT_NEAR(samples[1]["score"].get<double>(), std::exp(3.05), 1e-12);
  EXPECT_EQ(samples[2]["status"], "failed");
  EXPECT_EQ(samples[2]["error"], "word_perplexity is not finite");

  ASSERT_EQ(run({"export", "lm-eval", "first", "--out", path("out")}).status, 0);
  const auto files = files_under("out");
  ASSERT_EQ(files.size(), 2u);
  const std::string lines = read_file(files[1], ErrorSubject::general);
  const json first = json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first["word_perplexity"], json({-20.0, 10.0}));
  EXPECT_EQ(first["byte_perplexity"], json({-20.0, 50.0}));
  EXPECT_EQ(first["filtered_resps"], json({"-20"}));
  EXPECT_EQ(first["metrics"], json({"word_perplexity", "byte_perplexity", "bits_per_byte"}));
  ASSERT_EQ(import_of({"lm-eval", files[0].string(), files[1].string(), "--name", "again"}).status, 0);
  const json row = json_of({"compare", "first", "again", "--allow-partial"})["comparison"][0];
  EXPECT_EQ(row["verdict"], "same");
  EXPECT_EQ(row["pairs"], 2);
}

// Two readings of the same answers: one of them is the score, in every table and whatever the order of the lines.
TEST_F(ImportTest, LmEvalFiltersOfOneAnswer) {
  const json file = {
      {"results", {{"gsm8k", {{"exact_match,strict-match", 0.25}, {"exact_match,flexible-extract", 0.75}}}}},
      {"configs", {{"gsm8k", {{"output_type", "generate_until"}}}}},
      {"versions", {{"gsm8k", 3.0}}},
      {"n-samples", {{"gsm8k", {{"effective", 4}}}}},
      {"model_name", "made/up"}};
  std::string lines;
  for (const auto& [filter, right] : {std::pair{"strict-match", 1}, {"flexible-extract", 3}}) {
    for (int i = 0; i < 4; ++i)
      lines += json{{"doc_id", i},
                    {"doc_hash", fmt::format("{:064x}", i)},
                    {"target", "5"},
                    {"arguments", {{"gen_args_0", {{"arg_0", "q"}, {"arg_1", json::object()}}}}},
                    {"resps", {{"it is 5"}}},
                    {"filtered_resps", {i < right ? "5" : "[invalid]"}},
                    {"filter", filter},
                    {"exact_match", i < right ? 1 : 0}}
                   .dump() +
               "\n";
  }
  write("f/results_1.json", file.dump());
  write("f/samples_gsm8k_1.jsonl", lines);
  ASSERT_EQ(import_of({"lm-eval", path("f/results_1.json"), path("f/samples_gsm8k_1.jsonl"), "--name", "first"}).status,
            0);
  EXPECT_THAT(run({"show", "first"}).out, HasSubstr("exact_match,flexible-extract ↑  0.750"));
  EXPECT_THAT(run({"table"}).out, HasSubstr("75.00"));
  const json samples = json_of({"export", "samples", "first"})["samples"];
  EXPECT_EQ(samples[1]["metrics"], json({{"exact_match,flexible-extract", 1.0}, {"exact_match,strict-match", 0.0}}));
  EXPECT_EQ(samples[1]["score"], 1.0);
  EXPECT_EQ(samples[1]["answer"], "5");
  EXPECT_EQ(samples[3]["answer"], "[invalid]");
  ASSERT_EQ(run({"export", "lm-eval", "first", "--out", path("out")}).status, 0);
  const auto files = files_under("out");
  ASSERT_EQ(files.size(), 2u);
  ASSERT_EQ(import_of({"lm-eval", files[0].string(), files[1].string(), "--name", "again"}).status, 0);
  const json row = json_of({"compare", "first", "again"})["comparison"][0];
  EXPECT_EQ(row["verdict"], "same");
  EXPECT_EQ(row["base"], 0.75);
}

// A group's figures stand for its members', whose samples are the only ones.
TEST_F(ImportTest, LmEvalGroupsComeBackAsGroups) {
  json file = results();
  const json member = file["results"]["arc_easy"];
  file["results"] = {{"mmlu_stem", {{"acc,none", 0.5}, {"sample_len", 30}}}, {"mmlu_anatomy", member}};
  file["group_subtasks"] = {{"mmlu_stem", {"mmlu_anatomy"}}};
  for (const char* part : {"configs", "versions", "n-shot", "higher_is_better", "n-samples"}) {
    const json own = file[part]["arc_easy"];
    file[part] = {{"mmlu_anatomy", own}};
  }
  write("g/results_1.json", file.dump());
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += sample(i).dump() + "\n";
  write("g/samples_mmlu_anatomy_1.jsonl", lines);
  const ProcessResult result =
      import_of({"lm-eval", path("g/results_1.json"), path("g/samples_mmlu_anatomy_1.jsonl"), "--name", "first"});
  ASSERT_EQ(result.status, 0) << result.err;
  ASSERT_EQ(run({"export", "lm-eval", "first", "--out", path("out")}).status, 0);
  const auto files = files_under("out");
  ASSERT_EQ(files.size(), 2u);
  const json after = json::parse(read_file(files[0], ErrorSubject::general));
  EXPECT_EQ(after["group_subtasks"]["mmlu_stem"], json({"mmlu_anatomy"}));
  EXPECT_EQ(after["groups"]["mmlu_stem"]["acc,none"], 0.5);
  EXPECT_EQ(after["results"]["mmlu_stem"]["sample_len"], 30);
  EXPECT_FALSE(after["configs"].contains("mmlu_stem"));
  ASSERT_EQ(import_of({"lm-eval", files[0].string(), files[1].string(), "--name", "again"}).status, 0);
  const json tables[] = {json_of({"export", "metrics", "first:mmlu_stem"})["metrics"],
                         json_of({"export", "metrics", "again:mmlu_stem"})["metrics"]};
  for (const json& table : tables) {
    ASSERT_EQ(table.size(), 1u);
    EXPECT_EQ(table[0]["value"], 0.5);
    EXPECT_EQ(table[0]["n"], 30);
  }
}

TEST_F(ImportTest, OtherAnswersToTheSameDocumentsAreOtherResults) {
  const std::string file = write_results(), samples = write_samples();
  ASSERT_EQ(import_of({"lm-eval", file, samples}).status, 0);
  std::string lines = read("lm/samples_arc_easy_2026-11-01.jsonl");
  lines.replace(lines.find("-1.25"), 5, "-1.50");
  write("lm/samples_arc_easy_2026-11-01.jsonl", lines);
  const ProcessResult result = import_of({"lm-eval", file, samples});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(json_of({"list", "runs"})["runs"].size(), 2u);
}

TEST_F(ImportTest, FilesWithFaultsMakeNoDatabase) {
  const std::string bad = write("bad.json", R"({"results":{"a":{"x":"y"}}})");
  expect_error(import_of({"lm-eval", bad}), 11, {"bad.json"});
  expect_error(import_of({"llama-bench", bad}), 11, {"bad.json"});
  expect_error(import_of({"hayfork", bad}), 6, {"bad.json"});
  expect_error(run({"db", "merge", bad}), 6, {"bad.json"});
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"rescore", "x"}, {"db", "prune", "--keep", "1"}, {"db", "vacuum"}, {"db", "migrate"}})
    expect_error(run(verb), 6, {"runs.db"});
  EXPECT_FALSE(fs::exists(path("runs.db")));
}

TEST_F(ImportTest, LmEvalFilesWithFaultsChangeNothing) {
  const auto refused = [&](const json& value, const std::vector<std::string>& words) {
    SCOPED_TRACE(words[0]);
    expect_error(import_of({"lm-eval", write_results(value)}), 11, words);
    EXPECT_EQ(json_of({"list", "runs"})["runs"].size(), 0u);
  };
  test::open_new(path("runs.db")).close();
  json value = results();
  value.erase("results");
  refused(value, {"results"});
  value = results();
  value["results"] = json::object();
  refused(value, {"results"});
  value = results();
  value["results"]["arc_easy"] = 3;
  refused(value, {"arc_easy"});
  value = results();
  value["results"]["arc_easy"] = {{"alias", "x"}};
  refused(value, {"arc_easy", "number"});
  std::string text = results().dump();
  const size_t at = text.find("0.6666");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, text.find_first_of(",}", at) - at, "NaN");
  expect_error(import_of({"lm-eval", write("nan.json", text)}), 11, {"acc,none", "not finite"});
  expect_error(import_of({"lm-eval", write("cut.json", text.substr(0, 100))}), 11, {"cut.json"});
  expect_error(import_of({"lm-eval", path("none.json")}), 11, {"none.json"});
  expect_error(import_of({"lm-eval", write_samples()}), 2, {"results file"});
  write_results();
  const std::string stray = write("lm/samples_piqa_2026.jsonl", sample(0).dump());
  expect_error(import_of({"lm-eval", path("lm/results_2026-11-01.json"), stray}), 11, {"samples_piqa", "fits no task"});
  const std::string broken = write("lm/samples_arc_easy_x.jsonl", sample(0).dump() + "\n{\"doc\": 1}\n");
  expect_error(import_of({"lm-eval", path("lm/results_2026-11-01.json"), broken}), 11, {"doc_id", "line 2"});
  EXPECT_EQ(json_of({"list", "runs"})["runs"].size(), 0u);
  expect_error(import_of({"wandb", stray}), 2, {"wandb", "llama-bench"});
  expect_error(import_of({"lm-eval", path("lm/results_2026-11-01.json"), "--map", "color=red"}), 2,
               {"color", "train_tokens"});
}

TEST_F(ImportTest, ResultsWithoutSamplesShowTheirMetricsAndHaveNoPairs) {
  ASSERT_EQ(import_of({"lm-eval", write_results(), "--name", "first"}).status, 0);
  json other = results();
  other["model_name"] = "other";
  ASSERT_EQ(import_of({"lm-eval", write("other.json", other.dump()), "--name", "second"}).status, 0);
  EXPECT_EQ(json_of({"export", "metrics", "first"})["metrics"][0]["n"], 30);
  const ProcessResult result = run({"compare", "first", "second"});
  EXPECT_EQ(result.status, 5);
  EXPECT_THAT(result.err, HasSubstr("only aggregates"));
  EXPECT_EQ(json_of({"table", "--tasks", "arc_easy"})["table"].size(), 2u);
}

TEST_F(ImportTest, ASampleThatIsNotFiniteIsFailed) {
  std::string lines = sample(0).dump() + "\n" + sample(1).dump() + "\n";
  const size_t at = lines.find("\"acc\":1.0");
  ASSERT_NE(at, std::string::npos);
  lines.replace(at, 9, "\"acc\":NaN");
  ASSERT_EQ(import_of({"lm-eval", write_results(), write("lm/samples_arc_easy_n.jsonl", lines), "--name", "n"}).status,
            0);
  const json samples = json_of({"export", "samples", "n"})["samples"];
  EXPECT_EQ(samples[0]["status"], "failed");
  EXPECT_TRUE(samples[0]["score"].is_null());
  EXPECT_EQ(samples[1]["status"], "ok");
}

TEST_F(ImportTest, ExportsAreSafeForSpreadsheetsTerminalsAndLatex) {
  runs::Store store = test::open_new(path("runs.db"));
  test::MadeTask task{.scores = test::ones(1, 2)};
  task.answer = "=1+1\n<script>\xE2\x80\xA8\xE2\x80\xAE\x1b[2J";
  task.target = std::string("a\0b", 3);
  test::make_run(store, {.tasks = {task}});
  store.close();
  for (const char* format : {"csv", "table", "latex", "md", "jsonl", "json"}) {
    const ProcessResult result = run({"export", "samples", "@last", "-o", format});
    EXPECT_EQ(result.status, 0) << format << result.err;
    if (std::string_view(format) != "csv") {  // which holds data as it is, but for formulas and NULs
      EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << format;
    }
    if (std::string_view(format) == "csv") {
      EXPECT_THAT(result.out, HasSubstr("'=1+1"));
    }
    if (std::string_view(format) == "jsonl") {
      const json first = json::parse(result.out.substr(0, result.out.find('\n')));
      EXPECT_EQ(first["answer"], task.answer);
      EXPECT_EQ(first["target"], task.target);
    }
  }
}

}  // namespace
}  // namespace hayfork::cli
