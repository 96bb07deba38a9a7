// scripts/make_orthros.py: what it writes is loaded, labelled, and equal to its source where the window is long enough.
#include <gtest/gtest.h>

#include <gmock/gmock.h>

#include "base/parallel.h"
#include "tests/support/orthros_checks.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"

namespace hayfork::test {
namespace {

using engine::DType;

class MakeOrthros : public testing::Test {
 protected:
  void SetUp() override {
    set_threads(1);
    if (run({"--help"}).status != 0) GTEST_SKIP() << "needs python3";
  }
  static ProcessResult run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"python3", (source_dir() / "scripts/make_orthros.py").string()});
    return run_process("/usr/bin/env", arguments);
  }
  static std::unique_ptr<engine::Context> cpu(DType type) { return engine::make_cpu_context(type); }
  static std::filesystem::path golden(const std::string& name) { return source_dir() / "tests/golden/models" / name; }
  TempDir folder_;
};

TEST_F(MakeOrthros, WithAWideWindowGivesTheSourcesLogitsBitForBit) {
  int n = 0;
  for (const std::string name : {"llama3_rope", "llama_bf16_sharded"}) {  // one file, and two shards
    const auto out = folder_.path() / std::to_string(n++);
    const ProcessResult made = run({golden(name).string(), out.string(), "--window", "4096"});
    ASSERT_EQ(made.status, 0) << made.err;
    OrthrosRunner source(golden(name), cpu, DType::f32), converted(out, cpu, DType::f32);
    EXPECT_EQ(converted.model().info().weights_provenance, "converted-untrained");
    EXPECT_EQ(converted.model().info().arch, "orthros");
    EXPECT_TRUE(converted.model().two_streams());
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 90; ++i) ids.push_back(i * 7 % source.model().info().vocab_size);
    EXPECT_TRUE(converted.scores(ids, all_positions(90), 33) == source.scores(ids, all_positions(90), 33)) << name;
  }
}

TEST_F(MakeOrthros, TakesAWindowAStageAndLayers) {
  TinyCheckpoint::llama().write(folder_.path());
  const auto out = folder_.path() / "out";
  ASSERT_EQ(run({folder_.path().string(), out.string(), "--window", "3", "--stage", "none", "--layers", "1"}).status,
            0);
  OrthrosRunner converted(out, cpu, DType::f32);
  const engine::ModelInfo& info = converted.model().info();
  EXPECT_EQ(info.layers.at(0).kind, "full");
  EXPECT_EQ(info.layers.at(1).kind, "orthros");
  EXPECT_EQ(info.layers.at(1).window, 3);
}

TEST_F(MakeOrthros, SaysWhatItCannotConvert) {
  const auto refused = [&](const std::vector<std::string>& arguments) {
    const ProcessResult result = run(arguments);
    EXPECT_NE(result.status, 0);
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / "out"));
    return result.err;
  };
  const std::string out = (folder_.path() / "out").string();
  EXPECT_THAT(refused({golden("gemma2").string(), out}), testing::HasSubstr("gemma2"));
  EXPECT_THAT(refused({golden("llama3_rope").string(), out, "--layers", "0,9"}), testing::HasSubstr("layer 9"));
  EXPECT_THAT(refused({golden("llama3_rope").string(), out, "--layers", "1,0"}), testing::HasSubstr("ascending"));
  EXPECT_THAT(refused({golden("llama3_rope").string(), out, "--window", "0"}), testing::HasSubstr("--window"));
  EXPECT_THAT(refused({folder_.path().string(), out}), testing::HasSubstr("config.json"));
}

}  // namespace
}  // namespace hayfork::test
