// hayfork bench on the CPU: every row says what was measured on what, and --save stores it.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/floor.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;
using test::hayfork;
using ::testing::HasSubstr;

std::string demo(const std::string& name) {
  return (test::source_dir() / "demo" / name).string();
}

TEST(Bench, SaysWhatWasMeasuredAndOnWhat) {
  const auto result =
      hayfork({"bench", "--model", demo("swa") + "," + demo("orthros"), "--prompt", "40,70", "--gen", "3", "--depth",
               "0,65", "--batch", "1,3", "--reps", "2", "--warmup", "0", "--rates", "0.5,0.02", "-o", "json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["schema"], "hayfork/bench/1");
  ASSERT_EQ(out["bench"].size(), 2u * 2 * 2 * 2 * 2);
  for (const json& row : out["bench"]) {
    EXPECT_GT(row["tokens_per_s"].get<double>(), 0);
    EXPECT_GT(row["floor_ms"].get<double>(), 0);
    EXPECT_NEAR(row["x_floor"].get<double>(), row["ms"].get<double>() / row["floor_ms"].get<double>(), 1e-9);
    EXPECT_GT(row["busy"].get<double>(), 0.1);
    EXPECT_LE(row["busy"].get<double>(), 1);
    EXPECT_GT(row["peak_bytes"].get<int64_t>(), 0);
    EXPECT_EQ(row["reps"], 2);
    const bool prefill = row["n_prompt"].get<int64_t>() > 0;
    const auto n = prefill ? row["n_prompt"].get<int64_t>() : row["n_gen"].get<int64_t>();
    EXPECT_EQ(row["test"], (prefill ? "pp" : "tg") + std::to_string(n));
    EXPECT_EQ(prefill ? row["ttft_ms"] : row["e2e_ms"], prefill ? row["ms"] : row["e2e_ms"]);
  }
  ASSERT_EQ(out["engine"].size(), 2u);
  for (const json& row : out["engine"]) {
    EXPECT_FALSE(row["device_name"].get<std::string>().empty());
    EXPECT_FALSE(row["commit"].get<std::string>().empty());
    EXPECT_THAT(row["flop_convention"].get<std::string>(), HasSubstr("FLOP"));
    EXPECT_GT(row["first_token_s"].get<double>(), row["open_s"].get<double>());
    EXPECT_GT(row["host_peak_bytes"].get<int64_t>(), 0);
  }
}

TEST(Bench, StoresItsRows) {
  const test::TempDir folder;
  const std::string db = (folder.path() / "b.db").string();
  const auto result = hayfork({"bench", "--model", demo("full"), "--prompt", "20", "--gen", "2", "--reps", "1",
                               "--warmup", "0", "--save", "--name", "first", "--db", db, "-o", "csv"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto runs = hayfork({"list", "runs", "--db", db, "-o", "json"});
  ASSERT_EQ(runs.status, 0) << runs.err;
  EXPECT_THAT(runs.out, HasSubstr("\"first\""));
  EXPECT_THAT(runs.out, HasSubstr("\"done\""));
  EXPECT_EQ(hayfork({"db", "check", "--db", db}).status, 0);
}

TEST(Bench, RefusesWhatCanNotBeMeasured) {
  const auto none = hayfork({"bench", "--model", demo("full"), "--prompt", "0", "--gen", "4"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("nothing to measure"));
  EXPECT_EQ(hayfork({"bench", "--model", demo("full"), "--rates", "1"}).status, 2);
  EXPECT_EQ(hayfork({"bench", "--model", demo("full"), "--batch", "0"}).status, 2);
  EXPECT_EQ(hayfork({"bench", "--model", "random:nothing"}).status, 2);
  EXPECT_EQ(hayfork({"bench", "--model", demo("full"), "--prompt", "16m", "--gen", "0", "--batch", "4096"}).status, 8);
}

// Rulings A8: Qwen3-8B's shape on an H200.
TEST(Floor, IsTheRulingsForQwen3OfEightBillion) {
  engine::ModelInfo info;
  info.dtype = "bf16";
  info.hidden_size = 4096;
  info.vocab_size = 151936;
  info.n_params_no_embedding = 36 * (int64_t{4096} * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 12288);
  engine::LayerInfo layer{
      .kind = "full", .n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .state_bytes_per_token = 4096};
  info.layers.assign(36, layer);
  const auto rates = engine::known_rates("NVIDIA H200");
  ASSERT_TRUE(rates);
  const auto prefill = [&](int64_t n) { return engine::prefill_work(info, 0, n, 1).seconds(*rates); };
  EXPECT_NEAR(prefill(8192), 0.172, 0.001);
  EXPECT_NEAR(prefill(32768), 0.996, 0.005);
  EXPECT_NEAR(prefill(131072), 8.887, 0.05);
  const auto tokens_a_second = [&](int64_t at, int64_t batch) {
    return static_cast<double>(batch) / engine::decode_work(info, at, at + 1, batch).seconds(*rates);
  };
  EXPECT_NEAR(tokens_a_second(2048, 1), 272, 1.5);
  EXPECT_NEAR(tokens_a_second(131072, 1), 121.9, 0.5);
  EXPECT_NEAR(tokens_a_second(2048, 8), 1914, 10);
  layer.kind = "orthros";
  layer.window = 128;
  info.layers.assign(36, layer);
  EXPECT_NEAR(prefill(131072), 2.362, 0.02);
  EXPECT_FALSE(engine::known_rates("a processor"));
}

}  // namespace
}  // namespace hayfork::cli
