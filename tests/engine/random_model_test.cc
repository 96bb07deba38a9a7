#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/model.h"
#include "engine/models/random.h"
#include "engine/models/registry.h"
#include "engine/weights.h"

namespace hayfork::engine {
namespace {

using testing::HasSubstr;

ModelSpec spec_of(const std::string& name) {
  const RandomModel random = parse_random(name);
  ResolvedModel resolved =
      resolve_model(Config::parse(random.config, name), [](const std::string&) { return false; }, {});
  apply_modifiers(resolved.spec, random);
  return resolved.spec;
}

std::string refusal(const std::string& name) {
  try {
    spec_of(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.render();
  }
  return "accepted";
}

TEST(RandomModel, EveryShapeHasASpec) {
  for (const char* name :
       {"qwen3-0.6b", "qwen3-8b", "llama-1.3b", "llama3-8b", "qwen3.5-4b", "qwen3.5-9b", "gpt-oss-20b", "gemma4-31b"}) {
    EXPECT_GE(spec_of(std::string("random:") + name).layers.size(), 24u) << name;
  }
}

TEST(RandomModel, ModifiersChangeTheLayers) {
  const ModelSpec orthros = spec_of("random:qwen3-8b+orthros128:7");
  EXPECT_TRUE(orthros.two_streams);
  EXPECT_EQ(std::get<SoftmaxSpec>(orthros.layers[5].mixer).orthros->window, 128);
  const ModelSpec swa = spec_of("random:llama3-8b+swa512@0-2,30");
  for (const int i : {0, 2, 3, 30, 31}) {
    const int32_t want = i <= 2 || i == 30 ? 512 : 0;
    EXPECT_EQ(std::get<SoftmaxSpec>(swa.layers[static_cast<size_t>(i)].mixer).window, want) << i;
  }
  EXPECT_EQ(parse_random("random:qwen3-8b:42").seed, 42u);
}

TEST(RandomModel, AnUnknownNameListsThemAll) {
  EXPECT_THAT(refusal("random:qwen9-1b"), HasSubstr("gemma4-31b"));
  EXPECT_THAT(refusal("random:qwen3-8b+moe"), HasSubstr("no modifier \"moe\""));
  EXPECT_THAT(refusal("random:qwen3-8b:x"), HasSubstr("\"x\" is not a number"));
  EXPECT_THAT(refusal("random:qwen3-8b+swa0"), HasSubstr("at least one token"));
  EXPECT_THAT(refusal("random:qwen3-8b+swa4@5-2"), HasSubstr("range of layers"));
}

TEST(RandomWeights, DependOnSeedNameAndShapeAlone) {
  const std::vector<int64_t> shape = {30, 16};
  const auto values = [&](uint64_t seed, const std::string& name) {
    Weights weights = Weights::random(seed);
    return weights.vector(name, shape);
  };
  const auto a = values(1, "a.weight");
  EXPECT_EQ(values(1, "a.weight"), a);
  EXPECT_NE(values(2, "a.weight"), a);
  EXPECT_NE(values(1, "b.weight"), a);
  double sum = 0, squares = 0;
  for (const float x : a) sum += x, squares += static_cast<double>(x) * x;
  EXPECT_NEAR(sum / 480, 0, 0.05);
  EXPECT_NEAR(squares / 480 * 16, 1, 0.15);  // variance 1 / fan-in
}

}  // namespace
}  // namespace hayfork::engine
