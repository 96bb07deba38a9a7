#include "tests/support/ruler_golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "engine/text/tokenizer.h"
#include "tasks/tasks.h"
#include "tests/support/paths.h"

namespace hayfork::test {
namespace {

using nlohmann::json;

// The stand-in that upstream's runs used for a word file that is not published.
void write_english_words(const std::filesystem::path& file) {
  std::ofstream out(file);
  for (int i = 0; i < 466000; ++i) {
    const std::string number = std::to_string(i);
    out << (i == 0 ? "{" : ",") << '"' << number << "\":\"w" << std::string(6 - number.size(), '0') << number << '"';
  }
  out << "}";
}

int check_run(const json& run, const tasks::Task& task) {
  EXPECT_EQ(task.n_samples(), static_cast<int64_t>(run["samples"].size()));
  // From the last to the first: a sample does not depend on what was asked for before.
  for (int64_t i = task.n_samples(); i-- > 0;) {
    const json& want = run["samples"][static_cast<size_t>(i)];
    const tasks::Sample s = task.sample(i);
    EXPECT_EQ(s.prompt_sha256, want["prompt_sha256"].get<std::string>());
    EXPECT_EQ(s.targets, want["outputs"].get<std::vector<std::string>>());
    EXPECT_EQ(s.prompt_tokens + s.max_new_tokens, want["length"].get<int64_t>());
    if (run["max_seq_length"] > 4096) continue;
    const json row = json::parse(task.upstream_row(i));
    EXPECT_EQ(sha256_hex(row["input"].get<std::string>()), want["input_sha256"].get<std::string>());
    for (const char* key : {"index", "outputs", "length", "answer_prefix", "token_position_answer"})
      if (want.contains(key)) {
        EXPECT_EQ(row[key], want[key]) << key;
      }
  }
  return static_cast<int>(task.n_samples());
}

}  // namespace

int check_ruler_runs(const std::filesystem::path& ruler, const std::filesystem::path& tokenizer_archive, int64_t low,
                     int64_t high) {
  const TempDir dir;
  const std::string unpack = "tar -xJf '" + tokenizer_archive.string() + "' -C '" + dir.path().string() + "'";
  if (std::system(unpack.c_str()) != 0) throw std::runtime_error("cannot unpack " + tokenizer_archive.string());
  const auto tokenizer = engine::Tokenizer::load(dir.path() / "qwen3");
  const std::filesystem::path english = dir.path() / "english_words.json";
  write_english_words(english);
  const json golden = json::parse(read_file(ruler / "golden_hf/ruler_hf_qwen3.json", ErrorSubject::data));
  int n = 0;
  for (const json& run : golden["runs"]) {
    const int64_t length = run["max_seq_length"];
    if (length < low || length > high) continue;
    const std::string name = "ruler_" + run["task"].get<std::string>();
    SCOPED_TRACE(name + " " + run["template"].get<std::string>() + " at " + std::to_string(length));
    tasks::TaskOptions options;
    options.lengths = {length};
    options.samples = static_cast<int64_t>(run["samples"].size());
    options.data_dir = ruler.parent_path();
    options.extra["template"] = run["template"];
    if (run.value("uses_stand_in_english_words", false)) options.extra["english-words"] = english.string();
    n += check_run(run, *tasks::make_task(name, options, {.tokenizer = tokenizer.get()}));
  }
  return n;
}

}  // namespace hayfork::test
