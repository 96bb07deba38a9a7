// Rows of RULER's protocols beside their authors' programs: the paper's generators, main's for chats,
// lm-evaluation-harness', and main's where they draw again until a sample fits. tests/golden/ruler_protocols.json holds
// digests of what those wrote.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "engine/text/tokenizer.h"
#include "tasks/tasks.h"
#include "tests/support/paths.h"
#include "tests/support/tokenizer_archives.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;

TEST(RulerProtocolsData, EveryRowEqualsItsAuthors) {
  HAY_NEED_DATA(ruler, "ruler");
  HAY_NEED_DATA(tokenizers, "tokenizers/qwen3.tar.xz");
  ASSERT_FALSE(tokenizers.empty());
  const auto tokenizer = test::load_archived_tokenizer("qwen3");
  const json golden =
      json::parse(read_file(test::source_dir() / "tests/golden/ruler_protocols.json", ErrorSubject::data));
  int n = 0;
  for (const json& run : golden["runs"]) {
    const std::string protocol = run["protocol"], name = "ruler_" + run["task"].get<std::string>();
    SCOPED_TRACE(protocol + " " + name);
    TaskOptions options{.lengths = {run["length"].get<int64_t>()},
                        .samples = static_cast<int64_t>(run["rows"].size()),
                        .data_dir = ruler.parent_path()};
    if (protocol == "lm-eval") {
      options.extra["variant"] = protocol;
    } else {
      options.extra["protocol"] = protocol;
      options.extra["template"] = run["template"];
    }
    if (protocol == "p1") options.seed = run["seed"].get<uint64_t>();
    const auto task = make_task(name, options, {.tokenizer = tokenizer.get()});
    for (size_t i = 0; i < run["rows"].size(); ++i, ++n) {
      const json row = json::parse(task->upstream_row(static_cast<int64_t>(i))), &want = run["rows"][i];
      EXPECT_EQ(sha256_hex(row["input"].get<std::string>()), want["input"]) << i;
      EXPECT_EQ(row["length"], want["length"]) << i;
      std::string outputs;
      for (const json& one : row["outputs"]) outputs += (outputs.empty() ? "" : "\n") + one.get<std::string>();
      EXPECT_EQ(sha256_hex(outputs), want["outputs"]) << i;
      const char* prefix = protocol == "lm-eval" ? "gen_prefix" : "answer_prefix";
      EXPECT_EQ(row.contains(prefix), want.contains("prefix")) << i;
      if (row.contains(prefix)) {
        EXPECT_EQ(sha256_hex(row[prefix].get<std::string>()), want["prefix"]) << i;
      }
    }
  }
  EXPECT_EQ(n, 42 + 24);
}

}  // namespace
}  // namespace hayfork::tasks
