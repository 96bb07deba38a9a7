#include "engine/generation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "tests/support/byte_tokenizer.h"

namespace hayfork::engine {
namespace {

const std::vector<int32_t> kEos{0};

// Feeds the bytes of `text` as ids until the answer is complete.
GenerateAnswer generate(const GenerateRequest& request, const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Generation generation(request, &tokenizer, kEos);
  for (const int32_t id : ids) {
    if (generation.push({id, -1})) break;
  }
  EXPECT_TRUE(generation.done());
  return generation.take();
}

std::vector<int32_t> bytes(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST(Generation, EndsAtAStopStringThatCrossesTokens) {
  const test::ByteTokenizer tokenizer;
  const GenerateRequest request{.prompt = {1}, .max_new_tokens = 100, .stops = {"END", "zz"}};
  const GenerateAnswer answer = generate(request, tokenizer, bytes("hello ENdEND more"));
  EXPECT_EQ(answer.text, "hello ENd");
  EXPECT_EQ(answer.finish, Finish::stop);
  EXPECT_EQ(answer.stop, "END");
  EXPECT_EQ(answer.ids, bytes("hello ENdEND"));
  EXPECT_EQ(answer.logprobs.size(), answer.ids.size());
}

TEST(Generation, ReleasesWhatLookedLikeAStopStringWhenTheLengthIsReached) {
  const test::ByteTokenizer tokenizer;
  const GenerateRequest request{.prompt = {1}, .max_new_tokens = 4, .stops = {"cdef"}};
  const GenerateAnswer answer = generate(request, tokenizer, bytes("abcdef"));
  EXPECT_EQ(answer.text, "abcd");
  EXPECT_EQ(answer.finish, Finish::length);
}

TEST(Generation, KeepsTheEndOfTextIdAndNotItsText) {
  const test::ByteTokenizer tokenizer;
  GenerateRequest request{.prompt = {1}, .max_new_tokens = 10};
  std::vector<int32_t> ids = bytes("ab");
  ids.push_back(0);
  const GenerateAnswer answer = generate(request, tokenizer, ids);
  EXPECT_EQ(answer.text, "ab");
  EXPECT_EQ(answer.finish, Finish::eos);
  EXPECT_EQ(answer.ids, ids);
  request.ignore_eos = true;
  request.max_new_tokens = 3;
  EXPECT_EQ(generate(request, tokenizer, ids).finish, Finish::length);
}

TEST(Generation, HoldsACharacterBackUntilItIsWhole) {
  const test::ByteTokenizer tokenizer;
  const GenerateRequest request{.prompt = {1}, .max_new_tokens = 3, .stops = {"é"}};
  const GenerateAnswer answer = generate(request, tokenizer, bytes("xé"));
  EXPECT_EQ(answer.text, "x");
  EXPECT_EQ(answer.finish, Finish::stop);
}

TEST(Generation, HasNoTextWithoutATokenizer) {
  const GenerateRequest request{.prompt = {1}, .max_new_tokens = 2};
  Generation generation(request, nullptr, kEos);
  EXPECT_FALSE(generation.push({5, -0.5f}));
  EXPECT_TRUE(generation.push({6, -0.25f}));
  const GenerateAnswer answer = generation.take();
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(answer.ids, (std::vector<int32_t>{5, 6}));
}

// ---- sampling

std::map<int32_t, int> draw(const std::vector<float>& logits, Sampling sampling, int n) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < n; ++i) {
    sampling.seed = static_cast<uint64_t>(i);
    ++counts[sample(logits, sampling, i * 3).id];
  }
  return counts;
}

TEST(Sampling, DrawsByProbability) {
  const std::vector<float> logits{0, std::log(2.0f), std::log(5.0f)};
  const std::map<int32_t, int> counts = draw(logits, {.temperature = 1}, 8000);
  // Of 8,000 draws, 1/8, 2/8 and 5/8; five standard deviations are below 220.
  EXPECT_NEAR(counts.at(0), 1000, 220);
  EXPECT_NEAR(counts.at(1), 2000, 220);
  EXPECT_NEAR(counts.at(2), 5000, 220);
  const std::map<int32_t, int> hot = draw(logits, {.temperature = 2}, 8000);  // weights 1, √2, √5
  EXPECT_NEAR(hot.at(0), 8000 / (1 + std::sqrt(2.0) + std::sqrt(5.0)), 220);
}

TEST(Sampling, TopKAndTopPKeepTheLargest) {
  const std::vector<float> logits{1, 3, 3, 0, 2};
  EXPECT_EQ(draw(logits, {.temperature = 1, .top_k = 1}, 200), (std::map<int32_t, int>{{1, 200}}));  // the lowest id
  for (const auto& [id, count] : draw(logits, {.temperature = 5, .top_k = 3}, 500)) {
    EXPECT_TRUE(id == 1 || id == 2 || id == 4);
    EXPECT_GT(count, 50);
  }
  // Probabilities of the three largest: 0.41, 0.41, 0.15; 0.5 needs two, 0.01 one.
  EXPECT_EQ(draw(logits, {.temperature = 1, .top_p = 0.5f}, 300).size(), 2u);
  EXPECT_EQ(draw(logits, {.temperature = 1, .top_p = 0.01f}, 300).size(), 1u);
}

TEST(Sampling, DependsOnSeedAndPositionAlone) {
  std::vector<float> logits(100, 0.0f);
  const Sampling sampling{.temperature = 1, .seed = 7};
  std::map<int32_t, int> by_position;
  for (int64_t position = 0; position < 50; ++position) {
    const Choice a = sample(logits, sampling, position), b = sample(logits, sampling, position);
    EXPECT_EQ(a.id, b.id);
    EXPECT_FLOAT_EQ(a.logprob, -std::log(100.0f));
    ++by_position[a.id];
  }
  EXPECT_GT(by_position.size(), 25u);
}

TEST(Sampling, NamesWhatIsWrong) {
  EXPECT_EQ(sampling_fault({}), "");
  EXPECT_NE(sampling_fault({.temperature = NAN}), "");
  EXPECT_NE(sampling_fault({.temperature = 1, .top_p = 1.5f}), "");
  EXPECT_NE(sampling_fault({.temperature = 1, .top_k = -1}), "");
}

}  // namespace
}  // namespace hayfork::engine
