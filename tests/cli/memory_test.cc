// Peak memory of the program: at most 1.3 × the weights in the compute type + keys, values and states + 64 MB; with and
// without the CUDA backend, whose library is not loaded before a GPU is used.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file_map.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/sanitizer.h"
#include "tests/support/smollm2.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;
using test::ProcessResult;

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::kSanitized) GTEST_SKIP() << "the address sanitizer has memory of its own";
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  // `what`: {"peak_bytes", "weight_bytes", "cache_bytes"} as the program counts them.
  static void expect_bound(const ProcessResult& result, const json& what, const std::string& run) {
    const double weights = what["weight_bytes"].get<double>(), cache = what["cache_bytes"].get<double>();
    const double bound = 1.3 * weights + cache + 64e6;
    std::printf("%s: resident %.1f MB of %.1f MB: weights %.1f MB, keys, values and states %.1f MB\n", run.c_str(),
                static_cast<double>(result.peak_bytes) / 1e6, bound / 1e6, weights / 1e6, cache / 1e6);
    EXPECT_GT(weights, 0);
    EXPECT_GT(cache, 0);
    EXPECT_LE(static_cast<double>(result.peak_bytes), bound) << run;
    EXPECT_GE(static_cast<double>(result.peak_bytes), what["peak_bytes"].get<double>()) << run;  // nothing uncounted
  }
  // A prompt of n tokens, then 8 new ones.
  void generate(const std::filesystem::path& model, const std::string& dtype, int32_t n) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < n; ++i) ids.push_back(20 + i * 37 % 1000);
    std::ofstream(path("requests.jsonl"))
        << json{{"prompt", ids}, {"max_new_tokens", 8}, {"ignore_eos", true}}.dump() << "\n";
    const ProcessResult result =
        test::hayfork({"probe", "generate", "--model", model.string(), "--requests", path("requests.jsonl"), "--device",
                       "cpu", "--dtype", dtype, "--stats", path("stats")});
    ASSERT_EQ(result.status, 0) << result.err;
    expect_bound(result, json::parse(read_file(path("stats"), ErrorSubject::general)),
                 model.filename().string() + " " + dtype + " " + std::to_string(n) + " tokens");
  }
  void run_niah(const std::filesystem::path& model, const std::string& dtype, const std::vector<std::string>& grid) {
    std::vector<std::string> arguments = {"run",  "--model",  model.string(), "--tasks", "niah",
                                          "--db", path("db"), "--device",     "cpu",     "--dtype",
                                          dtype,  "--quiet",  "--events",     "jsonl"};
    arguments.insert(arguments.end(), grid.begin(), grid.end());
    const ProcessResult result = test::hayfork(arguments, {.environment = {{"HAYFORK_CACHE", path("cache")}}});
    ASSERT_EQ(result.status, 0) << result.err;
    const size_t end = result.err.find("{\"event\":\"end\"");
    ASSERT_NE(end, std::string::npos) << result.err;
    expect_bound(result, json::parse(result.err.substr(end, result.err.find('\n', end) - end)),
                 model.filename().string() + " " + dtype + " niah");
  }
  const std::filesystem::path demo_ = test::source_dir() / "demo";
  test::TempDir folder_;
};

TEST_F(MemoryTest, DemoCheckpoints) {
  for (const char* name : {"full", "swa", "gdn"}) {
    for (const char* dtype : {"f32", "bf16"}) generate(demo_ / name, dtype, 4000);
  }
  run_niah(demo_ / "full", "f32", {"--lengths", "256,4k", "--depths", "0-100+50", "--samples", "2"});
}

TEST_F(MemoryTest, SmolLM2) {
  HAY_NEED_SMOLLM2(model);
  for (const char* dtype : {"bf16", "f32"}) {
    generate(model, dtype, 512);
    run_niah(model, dtype, {"--lengths", "256", "--depths", "0-100+50", "--samples", "2"});
  }
}

}  // namespace
}  // namespace hayfork::cli
