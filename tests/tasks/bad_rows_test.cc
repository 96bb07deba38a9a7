// Every field of a row of every form of lm-evaluation-harness taken away or replaced by values of other types: the
// document is asked as it stands or fails with one Error that names its line, and nothing else happens.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/support/data_folder.h"

namespace hayfork::tasks {
namespace {

using nlohmann::ordered_json;

const std::vector<ordered_json>& strange_values() {
  static const std::vector<ordered_json> kValues = {nullptr,
                                                    true,
                                                    -1,
                                                    7,
                                                    0.5,
                                                    1e300,
                                                    INT64_MAX,
                                                    UINT64_MAX,
                                                    "",
                                                    " ",
                                                    "yes",
                                                    "\xC3\xA9",
                                                    "-1",
                                                    "1e3",
                                                    "99999999999999999999",
                                                    ordered_json::array(),
                                                    ordered_json::object(),
                                                    ordered_json::array({1, 2}),
                                                    ordered_json::array({"", ""}),
                                                    ordered_json::array({ordered_json::array()}),
                                                    ordered_json{{"text", 1}},
                                                    "[",
                                                    "[{}]",
                                                    "[{'question': 1}]",
                                                    "[{'question': 'q', 'answer': 'E', 'options': ['a', 'b']}]",
                                                    "'''",
                                                    std::string(300, '[')};
  return kValues;
}

// All rows that differ from this one in one place.
void mutants_of(const ordered_json& root, const ordered_json::json_pointer& at, std::vector<ordered_json>& out) {
  const ordered_json& value = root[at];
  const auto replaced = [&](const ordered_json& by) {
    out.push_back(root);
    out.back()[at] = by;
  };
  if (!at.empty()) {
    for (const ordered_json& strange : strange_values()) replaced(strange);
    out.push_back(root);
    ordered_json& parent = out.back()[at.parent_pointer()];
    if (parent.is_array())
      parent.erase(std::stoul(at.back()));
    else
      parent.erase(at.back());
  }
  if (value.is_object())
    for (const auto& [key, inner] : value.items()) mutants_of(root, at / key, out);
  if (value.is_array())
    for (size_t i = 0; i < std::min<size_t>(value.size(), 2); ++i) mutants_of(root, at / i, out);
}

class BadRows : public testing::TestWithParam<std::string> {};

TEST_P(BadRows, AreAskedOrNamed) {
  const std::string name = GetParam();
  const std::filesystem::path rows = test::source_dir() / "tests/golden/lm_eval_rows" / name;
  test::DataFolder data;
  data.text.window = 1 << 20;
  size_t n_rows = 0;
  for (const auto& file : std::filesystem::directory_iterator(rows)) {
    std::ifstream in(file.path());
    std::string line, lines;
    std::getline(in, line);
    std::vector<ordered_json> mutants;
    mutants_of(ordered_json::parse(line), ordered_json::json_pointer(), mutants);
    for (const ordered_json& row : mutants)
      lines += row.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    data.add(name, file.path().stem().string(), lines);
    n_rows = std::max(n_rows, mutants.size());
  }
  ASSERT_GE(n_rows, strange_values().size());
  const auto task = data.make(name);
  int64_t n_failed = 0;
  for (int64_t i = 0; i < task->n_samples(); ++i) {
    SCOPED_TRACE(i);
    try {
      const Sample sample = task->sample(i);
      EXPECT_FALSE(task->upstream_row(i).empty());
      EXPECT_FALSE(sample.requests.empty());
    } catch (const Error& error) {
      ++n_failed;
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.render();
      EXPECT_NE(error.render().find(".jsonl, line " + std::to_string(i + 1)), std::string::npos) << error.render();
    }
  }
  EXPECT_GT(n_failed, 0);
  EXPECT_LT(n_failed, task->n_samples());
  const auto result = data.run(*task);
  for (const SampleScore& score : result.scores) EXPECT_TRUE(score.status == Status::ok || !score.error.empty());
}

std::vector<std::string> sets() {
  std::set<std::string> out;
  for (const auto& folder : std::filesystem::directory_iterator(test::source_dir() / "tests/golden/lm_eval_rows"))
    out.insert(folder.path().filename().string());
  return {out.begin(), out.end()};
}

INSTANTIATE_TEST_SUITE_P(All, BadRows, testing::ValuesIn(sets()), [](const auto& one) {
  std::string name = one.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace hayfork::tasks
