#include "datasets/import.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include <nlohmann/json.hpp>

#include "base/file_map.h"
#include "datasets/gzip.h"
#include "datasets/records.h"
#include "tests/support/paths.h"

namespace hayfork::datasets {
namespace {

using nlohmann::ordered_json;

class Import : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    const auto path = folder.path() / name;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, text);
    return path;
  }
  std::vector<ordered_json> rows(const std::string& set, const std::filesystem::path& path,
                                 const std::filesystem::path& labels = {}) {
    std::vector<ordered_json> out;
    for (const std::string& line : import_rows(set, path, labels).lines) out.push_back(ordered_json::parse(line));
    return out;
  }
  test::TempDir folder;
};

TEST_F(Import, OriginalQuestionsBecomeRows) {
  const auto path = write(
      "arc.jsonl",
      R"({"id":"1","question":{"stem":"q","choices":[{"text":"a","label":"A"},{"text":"b","label":"B"}]},"answerKey":"B"})");
  const auto arc = rows("arc_easy", path);
  ASSERT_EQ(arc.size(), 1u);
  EXPECT_EQ(arc[0].dump(),
            R"({"id":"1","question":"q","choices":{"text":["a","b"],"label":["A","B"]},"answerKey":"B"})");
  EXPECT_EQ(rows("openbookqa", path)[0]["question_stem"], "q");
}

TEST_F(Import, OlmesRequestsBecomeOneRowADocument) {
  const auto path = write(
      "olmes.jsonl",
      R"({"request_type":"loglikelihood","doc":{"id":"x","query":"Question: q?\nAnswer:","choices":["a","b"],"gold":1},"doc_id":0})"
      "\n"
      R"({"request_type":"loglikelihood","doc":{"id":"x","query":"Question: q?\nAnswer:","choices":["a","b"],"gold":1},"doc_id":0})"
      "\n"
      R"({"request_type":"loglikelihood","doc":{"id":"x","query":"Answer:","choices":["a","b"],"gold":1},"doc_id":1000000})"
      "\n");
  const auto all = rows("arc_challenge", path);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["question"], "q?");
  EXPECT_EQ(all[0]["answerKey"], "B");
  const auto lettered = write(
      "mc.jsonl",
      R"({"request_type":"loglikelihood","doc":{"id":"x","query":"Question: q\n A. one\n B. two\nAnswer:","choices":["A","B"],"gold":0},"doc_id":0})");
  EXPECT_EQ(rows("commonsense_qa", lettered)[0]["choices"]["text"], (ordered_json{"one", "two"}));
}

TEST_F(Import, FoldersOfExamsGetTheirSubjects) {
  write("test/virology_test.csv", "\"q, with\nlines\",1,2,3,4,C\n");
  write("test/anatomy_test.csv", "q,1,2,3,4,A\n");
  const auto all = rows("mmlu", folder.path() / "test");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].dump(), R"({"question":"q","subject":"anatomy","choices":["1","2","3","4"],"answer":0})");
  EXPECT_EQ(all[1]["question"], "q, with\nlines");
  EXPECT_EQ(all[1]["answer"], 2);
  const auto path = write("agronomy.csv", ",Question,A,B,C,D,Answer\n0,q,1,2,3,4,B\n");
  EXPECT_EQ(rows("cmmlu_agronomy", path)[0].dump(), R"({"Question":"q","A":"1","B":"2","C":"3","D":"4","Answer":"B"})");
}

TEST_F(Import, SuperGlueLabelsBecomeNumbers) {
  EXPECT_EQ(rows("cb", write("cb.jsonl", R"({"label":"neutral"})"))[0]["label"], 2);
  EXPECT_EQ(rows("sglue_rte", write("rte.jsonl", R"({"label":"not_entailment"})"))[0]["label"], 1);
  EXPECT_EQ(rows("wic", write("wic.jsonl", R"({"label":false})"))[0]["label"], 0);
  EXPECT_EQ(rows("wic", write("wic2.jsonl", R"({"label":"true"})"))[0]["label"], 1);
  const auto flat = rows(
      "multirc",
      write(
          "m.jsonl",
          R"({"idx":3,"passage":{"text":"p","questions":[{"idx":4,"question":"q","answers":[{"idx":5,"text":"a","label":1},{"idx":6,"text":"b","label":0}]}]}})"));
  ASSERT_EQ(flat.size(), 2u);
  EXPECT_EQ(flat[1].dump(),
            R"({"paragraph":"p","question":"q","answer":"b","idx":{"paragraph":3,"question":4,"answer":6},"label":0})");
  const auto record = rows(
      "record",
      write(
          "r.jsonl",
          R"({"idx":0,"passage":{"text":"Ann met Bo","entities":[{"start":0,"end":2},{"start":8,"end":9}]},"qas":[{"idx":1,"query":"@placeholder left","answers":[{"start":8,"end":9,"text":"Bo"}]}]})"));
  EXPECT_EQ(record[0]["entities"], (ordered_json{"Ann", "Bo"}));
}

TEST_F(Import, SpansOfWinogradSchemasAreMendedAsHuggingFaceMendsThem) {
  const auto path = write(
      "wsc.jsonl",
      R"({"text":"The tall man and his dog ran home . It barked","target":{"span1_index":3,"span2_index":8,"span1_text":"And his\ndog.","span2_text":"it"},"idx":0,"label":true})"
      "\n"
      R"({"text":"a b c","target":{"span1_index":0,"span2_index":7,"span1_text":"a b","span2_text":"X"},"idx":1,"label":false})"
      "\n");
  const auto all = rows("wsc", path);
  EXPECT_EQ(all[0]["span1_text"], "and his dog");
  EXPECT_EQ(all[0]["span2_text"], "It");
  EXPECT_EQ(all[0]["label"], 1);
  EXPECT_EQ(all[1]["span1_text"], "a b");
  EXPECT_EQ(all[1]["span2_text"], "X");  // there is no such word
}

TEST_F(Import, ArticlesAndLabelsApart) {
  write("high/2.txt",
        R"({"answers":["B"],"options":[["1","2","3","4"]],"questions":["q"],"article":"a","id":"high2.txt"})");
  write("high/1.txt",
        R"({"answers":["A"],"options":[["1","2","3","4"]],"questions":["p"],"article":"b","id":"high1.txt"})");
  const auto race = rows("race", folder.path() / "high");
  EXPECT_EQ(race[0]["id"], "high1.txt");
  EXPECT_EQ(race[1]["problems"], R"([{"question":"q","answer":"B","options":["1","2","3","4"]}])");
  const auto dev = write("dev.jsonl", "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\"}\n");
  EXPECT_EQ(rows("piqa", dev, write("one.lst", "1\n"))[0]["label"], 1);
  EXPECT_THROW(import_rows("piqa", dev, write("two.lst", "1\n0\n")), Error);
}

TEST_F(Import, RowsInTheRightFormKeepTheirBytesAndBrokenLinesAreTold) {
  const auto path = write("x.jsonl", "{\"text\": 1.50}\r\n{broken\n");
  const Imported all = import_rows("anything", path, {});
  ASSERT_EQ(all.lines.size(), 2u);
  EXPECT_EQ(all.lines[0], "{\"text\": 1.50}");
  EXPECT_EQ(all.lines[1], "{broken");
  ASSERT_EQ(all.faults.size(), 1u);
  EXPECT_NE(all.faults[0].find("x.jsonl, line 2"), std::string::npos);
  ASSERT_EQ(all.where.size(), 2u);
  EXPECT_EQ(all.where[0], path.string() + ", line 1");
}

TEST_F(Import, GzippedFilesAreReadAndDamagedOnesRefused) {
  const auto path = write("a.jsonl", "{\"text\":\"t\"}\n");
  ASSERT_EQ(std::system(("gzip -k " + path.string()).c_str()), 0);
  EXPECT_EQ(rows("anything", path.string() + ".gz")[0]["text"], "t");
  std::string bytes = read_file(path.string() + ".gz", ErrorSubject::data);
  bytes.resize(bytes.size() - 9);
  EXPECT_THROW(gunzip(bytes, "cut.gz", 1000), Error);
  EXPECT_THROW(gunzip(read_file(path.string() + ".gz", ErrorSubject::data), "bomb.gz", 3), Error);
}

}  // namespace
}  // namespace hayfork::datasets
