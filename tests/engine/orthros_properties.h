// The nine properties of orthros.md section 10 and the regimes of section 2, as tests of one device: included by
// orthros_test.cc and orthros_cuda_test.cc, which define the functions declared here and instantiate the suite.
#pragma once

#include <gtest/gtest.h>

#include <ostream>

#include "tests/support/orthros_checks.h"
#include "tests/support/paths.h"

namespace hayfork::test {

MakeContext device();  // empty: there is none, and the tests are skipped
struct Tolerances {    // relative to the largest logit
  double oracle, gated_delta;
  double decode_f32, decode_bf16;
  double backbone_bf16;  // 0: equal bits
};
Tolerances tolerances();

struct DeviceCase {
  OrthrosShape shape;
  engine::DType type;
};

inline void PrintTo(const DeviceCase& tested, std::ostream* out) {
  *out << tested.shape.name << " " << engine::name(tested.type);
}

class Orthros : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "needs a GPU";
  }
  const OrthrosShape& shape() const { return GetParam().shape; }
  engine::DType type() const { return GetParam().type; }
  double backbone_tolerance() const { return type() == engine::DType::f32 ? 0 : tolerances().backbone_bf16; }
};

TEST_P(Orthros, EqualsOrdinaryAttentionUnderTheMask) {
  if (type() != engine::DType::f32) GTEST_SKIP() << "float32 is compared";
  check_mask_oracle(shape(), device(), tolerances().oracle);
}
TEST_P(Orthros, WithAWindowAsLongAsTheInputAndNoAffineIsTheBackbone) {
  check_backbone_with_wide_window(shape(), device(), type(), backbone_tolerance());
}
TEST_P(Orthros, WithoutAffineIsTheBackboneInTheFirstWindow) {
  check_backbone_in_first_window(shape(), device(), type(), backbone_tolerance());
}
TEST_P(Orthros, AnOutputRowIsTheSameAloneAndBesideOthers) {
  check_outputs_alone(shape(), device(), type());
}
TEST_P(Orthros, LogitsDoNotDependOnWhatFollows) {
  check_truncated_input(shape(), device(), type());
}
TEST_P(Orthros, ChunksGiveTheSameKeysValuesAndLogits) {
  check_chunks(shape(), device(), type());
}
TEST_P(Orthros, TeacherForcedScoresEqualStepwiseDecode) {
  check_decode(shape(), device(), type(),
               type() == engine::DType::f32 ? tolerances().decode_f32 : tolerances().decode_bf16);
}
TEST_P(Orthros, AnEditChangesKeysAndValuesWithinTheReachOnly) {
  check_locality(shape(), device(), type());
}
TEST_P(Orthros, EachRegimeComputesTheRowsOfItsFormula) {
  if (type() != engine::DType::f32) GTEST_SKIP() << "rows do not depend on the type";
  check_regimes(shape(), device());
}

TEST_P(Orthros, ADepthSweepHasTheSameBitsWithAndWithoutReuse) {
  check_depth_sweep_reuse(shape(), device(), type());
}
TEST_P(Orthros, ParkedKeysChangeNothing) {
  check_parked_keys(shape(), device(), type());
}

class OrthrosH : public testing::Test {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "needs a GPU";
  }
  std::filesystem::path folder() const { return source_dir() / "tests/golden/models/orthros_h_switches"; }
};

TEST_F(OrthrosH, OutputRowsLeaveBaseRowsAlone) {
  check_gdn_base_rows(folder(), device(), engine::DType::f32);
}
TEST_F(OrthrosH, WithAConvolutionThatPassesThroughIsItsBackbone) {
  check_gdn_backbone(folder(), device(), tolerances().gated_delta);
}

inline std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> cases;
  for (const OrthrosShape& shape : orthros_shapes()) {
    for (const engine::DType type : {engine::DType::f32, engine::DType::bf16}) cases.push_back({shape, type});
  }
  return cases;
}
inline std::string case_name(const testing::TestParamInfo<DeviceCase>& tested) {
  return tested.param.shape.name + "_" + std::string(engine::name(tested.param.type));
}

}  // namespace hayfork::test
