// Orthros checkpoints that are wrong in config.json or in their affine tensors: the key or the tensor is named, nothing
// is run; a window longer than the input is no mistake.
#include <limits>

#include "tests/support/cli_test.h"
#include "tests/support/tiny_orthros.h"

namespace hayfork::cli {
namespace {

using test::OrthrosShape;
using test::TinyCheckpoint;

constexpr const char* kScale = "model.layers.1.self_attn.q_affine.output.scale";

class BadOrthrosTest : public test::BadInputTest {
 protected:
  ProcessResult nll(const TinyCheckpoint& checkpoint) const {
    const auto folder = folder_.path() / "m";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    checkpoint.write(folder);
    return BadInputTest::nll("m");
  }
  // The good one with a key of its block changed.
  ProcessResult with(const std::string& key, const json& value) const {
    TinyCheckpoint changed = good();
    changed.config["orthros"][key] = value;
    return nll(changed);
  }
  static TinyCheckpoint good() { return tiny_orthros(OrthrosShape{.name = "good", .stage = "pre_norm"}); }
};

TEST_F(BadOrthrosTest, TheUndamagedOneRunsAndSoDoesOneWithAWideWindow) {
  const ProcessResult result = nll(good());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(with("window_size", 4096).status, 0);
}

TEST_F(BadOrthrosTest, AffineTensorsMissingOrTooMany) {
  TinyCheckpoint c = good();
  c.tensors.erase(kScale);
  expect_error(nll(c), 7, {kScale});
  c = good();
  c.config["orthros"]["scale_offset"] = false;
  expect_error(nll(c), 7, {"q_affine"});
  c = good();
  c.config["orthros"]["layers"] = {0, 2};  // layer 1 has tensors all the same
  expect_error(nll(c), 7, {"model.layers.1.self_attn.q_affine"});
}

TEST_F(BadOrthrosTest, AffineTensorsOfAnotherLengthOrNotFinite) {
  TinyCheckpoint c = good();
  c.tensors[kScale].values.pop_back();
  --c.tensors[kScale].shape[0];
  expect_error(nll(c), 7, {kScale, "64", "63"});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    c = good();
    c.tensors[kScale].values[5] = bad;
    expect_error(nll(c), 7, {kScale});
  }
}

TEST_F(BadOrthrosTest, KeysOfTheBlock) {
  expect_error(with("layers", {0, 3}), 7, {"layers"});
  expect_error(with("layers", {-1}), 7, {"layers"});
  expect_error(with("layers", {0, 0}), 7, {"layers", "twice"});
  expect_error(with("layers", "all"), 7, {"layers"});
  expect_error(with("window_size", 0), 7, {"window_size"});
  expect_error(with("window_size", -5), 7, {"window_size"});
  expect_error(with("window_size", nullptr), 7, {"window_size"});
  expect_error(with("backbone_model_type", "t5"), 7, {"t5"});
  expect_error(with("backbone_model_type", "orthros"), 7, {"orthros"});
  expect_error(with("scale_offset_stage", "mid_norm"), 7, {"scale_offset_stage", "pre_norm or post_norm"});
  expect_error(with("scale_offset", "yes"), 7, {"scale_offset"});
  expect_error(with("version", 2), 7, {"version"});
  expect_error(with("windows", 5), 7, {"windows"});
}

TEST_F(BadOrthrosTest, NoBlockAtAll) {
  TinyCheckpoint c = good();
  c.config.erase("orthros");
  expect_error(nll(c), 7, {"orthros"});
  c.config["orthros"] = 3;
  expect_error(nll(c), 7, {"orthros"});
}

}  // namespace
}  // namespace hayfork::cli
