// hayfork import of what is not lm-evaluation-harness: llama-bench, RULER's predictions, another database.
#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

using ImportOthersTest = test::CliTest;

TEST_F(ImportOthersTest, LlamaBench) {
  const json test = {{"build_commit", "abc"},
                     {"cpu_info", "a processor"},
                     {"gpu_info", ""},
                     {"backends", "CPU"},
                     {"model_filename", "/models/tiny.gguf"},
                     {"model_type", "llama 1B"},
                     {"model_n_params", 1100},
                     {"n_threads", 2},
                     {"type_k", "f16"},
                     {"n_prompt", 512},
                     {"n_gen", 0},
                     {"n_depth", 0},
                     {"avg_ns", 1000000000},
                     {"stddev_ns", 10},
                     {"avg_ts", 512.0},
                     {"stddev_ts", 1.5},
                     {"samples_ts", json::array({511.0, 513.0})}};
  json decode = test;
  decode["n_prompt"] = 0;
  decode["n_gen"] = 128;
  decode["n_depth"] = 4096;
  const ProcessResult result = import_of({"llama-bench", write("bench.json", json{test, decode}.dump()), "-o", "json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["import"]["bench"], 2);
  EXPECT_EQ(import_of({"llama-bench", write("bench.jsonl", decode.dump() + "\n")}).status, 0);
  json bad = test;
  bad["avg_ts"] = "fast";
  expect_error(import_of({"llama-bench", write("bad.json", json::array({bad}).dump())}), 11, {"avg_ts", "entry 1"});
  expect_error(import_of({"llama-bench", write("empty.json", "[]")}), 11, {"no test"});
}

TEST_F(ImportOthersTest, RulerPredictionsAreScoredHere) {
  const auto line = [](int i, const std::string& pred) {
    return json{{"index", i},
                {"pred", pred},
                {"input", "find it"},
                {"outputs", json::array({"1234567", "7654321"})},
                {"length", 4001}}
               .dump() +
           "\n";
  };
  const std::string file = write("out/4096/pred/niah_multiquery.jsonl",
                                 line(0, " They are 1234567 and 7654321.") + line(1, "1234567\x01") + line(2, "none"));
  const ProcessResult result = import_of({"ruler", file, "--map", "model=m", "--name", "r"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json metrics = json_of({"export", "metrics", "r"})["metrics"];
  EXPECT_EQ(metrics[0]["task"], "ruler_niah_multiquery");
  EXPECT_EQ(metrics[0]["protocol"], "ruler/p1/niah_multiquery");
  EXPECT_NEAR(metrics[0]["value"].get<double>(), 0.5, 1e-12);
  EXPECT_EQ(metrics[1]["slice"], "ctx_len=4096");
  expect_error(import_of({"ruler", write("other.jsonl", line(0, "x"))}), 11, {"other.jsonl", "niah_single_1"});
  expect_error(import_of({"ruler", write("vt.jsonl", line(0, "x"))}), 11, {"length"});
  expect_error(import_of({"ruler", write("4096/vt.jsonl", "{\"index\":0}\n")}), 11, {"pred", "line 1"});
}

TEST_F(ImportOthersTest, AnotherDatabaseAndOneThatDisagrees) {
  runs::Store other = test::open_new(path("other.db"));
  const std::string id = test::make_run(other, {.tasks = {{.scores = test::ones(5, 30)}}});
  other.close();
  ASSERT_EQ(import_of({"hayfork", path("other.db")}).status, 0);
  EXPECT_EQ(json_of({"list", "runs"})["runs"][0]["run"], id);
  test::raw_sql(path("other.db"), "update samples set score = 0.25, answer = 'x' where id = 1");
  expect_error(import_of({"hayfork", path("other.db")}), 2, {"disagree", id});
  EXPECT_EQ(json_of({"list", "runs"})["runs"].size(), 1u);
  expect_intact();
  EXPECT_EQ(json_of({"export", "samples", id})["samples"][0]["score"], 1.0);
}

}  // namespace
}  // namespace hayfork::cli
