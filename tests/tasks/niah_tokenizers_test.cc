// NIAH prompts with a real tokenizer: that of the shipped checkpoints, whose training prompts they must look like.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/text/tokenizer.h"
#include "tasks/tasks.h"
#include "tests/support/paths.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;

TEST(NiahTokenizers, DemoPromptsAreTokenizedAsInTraining) {
  const auto tokenizer = engine::Tokenizer::load(test::source_dir() / "demo" / "full");
  const TextContext text{
      .tokenizer = tokenizer.get(), .max_length = 4608, .hints_json = R"({"niah":{"kind":"secret"}})"};
  const TaskOptions options{.samples = 3, .share_dirs = {test::source_dir() / "datasets"}};
  const auto task = make_task("niah", options, text);
  EXPECT_EQ(task->n_samples(), 4 * 11 * 3);  // 512 to 4096 fit the window
  for (int64_t i = 0; i < task->n_samples(); ++i) {
    const Sample s = task->sample(i);
    const auto& prompt = std::get<engine::GenerateRequest>(s.requests[0]).prompt;
    EXPECT_EQ(static_cast<int64_t>(prompt.size()), *s.ctx_len - 32);
    EXPECT_EQ(*s.needle_tokens, 13);  // " The secret number of", one city, " is", a blank, five digits, a full stop
    EXPECT_EQ(json::parse(s.recipe_json)["needles"][0]["edge"], "sentence");
    // What the model reads is what its tokenizer makes of the same text from the question on.
    const std::string whole = tokenizer->decode(prompt, false);
    const auto question = std::span(prompt).subspan(json::parse(s.recipe_json)["question_tok"].get<size_t>());
    const std::string asked = tokenizer->decode(question, false);
    EXPECT_TRUE(whole.ends_with(asked));
    EXPECT_EQ(std::vector<int32_t>(question.begin(), question.end()), tokenizer->encode(asked, {.add_special = false}));
  }
}

}  // namespace
}  // namespace hayfork::tasks
