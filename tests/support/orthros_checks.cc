#include "tests/support/orthros_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "engine/safetensors.h"
#include "engine/scheduler.h"
#include "tests/support/orthros_reference.h"

namespace hayfork::test {

using engine::DType;
using Ids = OrthrosRunner::Ids;
using Logits = OrthrosRunner::Logits;

namespace {

constexpr int32_t kLength = 150;  // three blocks of the cache, the last one not full

Ids random_ids(int32_t n, int32_t vocab = 41) {
  Rng rng(11);
  Ids ids(static_cast<size_t>(n));
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
  return ids;
}

Ids first(const Ids& ids, int32_t n) {
  return {ids.begin(), ids.begin() + n};
}

std::vector<float> flat(const Logits& logits) {
  std::vector<float> all;
  for (const auto& row : logits) all.insert(all.end(), row.begin(), row.end());
  return all;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0, largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return most / largest;
}

int32_t n_layers(OrthrosRunner& runner) {
  return static_cast<int32_t>(runner.model().state_specs().size());
}

// The values of one position in what kv() gives: K and V, one behind the other.
std::vector<float> at_position(const std::vector<float>& kv, int32_t position, int32_t n) {
  const auto width = static_cast<std::ptrdiff_t>(kv.size()) / 2 / n;
  std::vector<float> values;
  for (const std::ptrdiff_t part : {std::ptrdiff_t{0}, static_cast<std::ptrdiff_t>(kv.size()) / 2}) {
    const auto begin = kv.begin() + part + position * width;
    values.insert(values.end(), begin, begin + width);
  }
  return values;
}

TinyCheckpoint read_checkpoint(const std::filesystem::path& folder) {
  TinyCheckpoint c;
  c.config = nlohmann::json::parse(read_file(folder / "config.json", ErrorSubject::data));
  const engine::SafetensorsFile file(folder / "model.safetensors");
  for (const engine::TensorInfo& info : file.tensors()) {
    TinyCheckpoint::Tensor& tensor = c.tensors[info.name];
    tensor.shape = info.shape;
    tensor.values.resize(static_cast<size_t>(info.n_elements()));
    std::memcpy(tensor.values.data(), file.bytes(info).data(), tensor.values.size() * sizeof(float));
  }
  return c;
}

}  // namespace

std::vector<OrthrosShape> orthros_shapes() {
  return {{.name = "llama", .stage = "pre_norm"},
          {.name = "llama_no_affine", .n_heads = 6, .window = 3},
          {.name = "llama_layers", .stage = "pre_norm", .n_layers = 4, .n_kv_heads = 4, .layers = {0, 2}},
          {.name = "qwen3_pre", .backbone = "qwen3", .stage = "pre_norm", .n_kv_heads = 1, .head_dim = 8},
          {.name = "qwen3_post", .backbone = "qwen3", .stage = "post_norm", .window = 70},
          {.name = "window_one", .stage = "pre_norm", .window = 1}};
}

void check_mask_oracle(const OrthrosShape& shape, const MakeContext& make_context, double tolerance) {
  const TinyCheckpoint checkpoint = tiny_orthros(shape);
  OrthrosRunner runner(checkpoint, make_context, DType::f32);
  const Ids ids = random_ids(kLength);
  const Logits logits = runner.scores(ids, all_positions(kLength), 64);
  EXPECT_LE(difference(flat(logits), mask_oracle(checkpoint, shape, ids)), tolerance);
}

void check_backbone_with_wide_window(OrthrosShape shape, const MakeContext& make_context, DType type,
                                     double tolerance) {
  shape.identity = true;
  const Ids ids = random_ids(kLength);
  for (const int32_t window : {kLength, 4 * kLength}) {
    shape.window = window;
    const TinyCheckpoint checkpoint = tiny_orthros(shape);
    OrthrosRunner orthros(checkpoint, make_context, type), backbone(backbone_of(checkpoint), make_context, type);
    for (const int32_t chunk : {kLength, 40}) {
      const Logits a = orthros.scores(ids, all_positions(kLength), chunk);
      const Logits b = backbone.scores(ids, all_positions(kLength), chunk);
      if (tolerance == 0) {
        EXPECT_TRUE(a == b) << "window " << window << ", chunk " << chunk;
      } else {
        EXPECT_LE(difference(flat(a), flat(b)), tolerance) << "window " << window << ", chunk " << chunk;
      }
    }
    for (int32_t layer = 0; layer < n_layers(orthros); ++layer) {
      EXPECT_TRUE(orthros.kv(ids, layer, 64, {}) == backbone.kv(ids, layer, 64, {})) << "layer " << layer;
    }
    const Logits a = orthros.decode_scores(ids, kLength - 9), b = backbone.decode_scores(ids, kLength - 9);
    EXPECT_TRUE(std::equal(a.begin() + (tolerance == 0 ? 0 : 1), a.end(), b.begin() + (tolerance == 0 ? 0 : 1)));
  }
}

void check_backbone_in_first_window(OrthrosShape shape, const MakeContext& make_context, DType type, double tolerance) {
  shape.identity = true;
  const TinyCheckpoint checkpoint = tiny_orthros(shape);
  OrthrosRunner orthros(checkpoint, make_context, type), backbone(backbone_of(checkpoint), make_context, type);
  const Ids ids = random_ids(kLength);
  const Logits a = orthros.scores(ids, all_positions(kLength), 64),
               b = backbone.scores(ids, all_positions(kLength), 64);
  for (size_t t = 0; t < static_cast<size_t>(shape.window); ++t) {
    if (tolerance == 0) {
      EXPECT_TRUE(a[t] == b[t]) << t;
    } else {
      EXPECT_LE(difference(a[t], b[t]), tolerance) << t;
    }
  }
  EXPECT_FALSE(a[static_cast<size_t>(shape.window) + 20] == b[static_cast<size_t>(shape.window) + 20]);
}

void check_outputs_alone(const OrthrosShape& shape, const MakeContext& make_context, DType type) {
  OrthrosRunner runner(tiny_orthros(shape), make_context, type);
  const Ids ids = random_ids(kLength);
  const Logits all = runner.scores(ids, all_positions(kLength), kLength);
  for (const int32_t t : {0, 1, shape.window, 63, 64, 100, kLength - 1}) {
    EXPECT_TRUE(runner.scores(ids, {t}, kLength)[0] == all[static_cast<size_t>(t)]) << t;
  }
  const Ids some{0, 7, 64, 65, 149};
  const Logits beside = runner.scores(ids, some, 31), late = runner.late_scores(ids, some);
  for (size_t i = 0; i < some.size(); ++i) {
    EXPECT_TRUE(beside[i] == all[static_cast<size_t>(some[i])]) << some[i];
    EXPECT_TRUE(late[i] == all[static_cast<size_t>(some[i])]) << some[i];
  }
}

void check_truncated_input(const OrthrosShape& shape, const MakeContext& make_context, DType type) {
  OrthrosRunner runner(tiny_orthros(shape), make_context, type);
  const Ids ids = random_ids(kLength);
  const Logits all = runner.scores(ids, all_positions(kLength), kLength);
  for (const int32_t t : {0, shape.window, 64, 127, 140}) {
    EXPECT_TRUE(runner.scores(first(ids, t + 1), {t}, kLength)[0] == all[static_cast<size_t>(t)]) << t;
  }
}

void check_chunks(const OrthrosShape& shape, const MakeContext& make_context, DType type) {
  OrthrosRunner runner(tiny_orthros(shape), make_context, type);
  const Ids ids = random_ids(kLength);
  const Logits logits = runner.scores(ids, all_positions(kLength), kLength);
  for (const int32_t chunk : {1, 7, shape.window}) {
    EXPECT_TRUE(runner.scores(ids, all_positions(kLength), chunk) == logits) << "chunk " << chunk;
  }
  for (int32_t layer = 0; layer < n_layers(runner); ++layer) {
    const std::vector<float> whole = runner.kv(ids, layer, kLength, {});
    for (const int32_t chunk : {1, 7, shape.window}) {
      EXPECT_TRUE(runner.kv(ids, layer, chunk, {}) == whole) << "layer " << layer << ", chunk " << chunk;
    }
    // Section 3, property 2: whichever positions are outputs.
    EXPECT_TRUE(runner.kv(ids, layer, 50, all_positions(kLength)) == whole) << "layer " << layer;
  }
}

void check_decode(const OrthrosShape& shape, const MakeContext& make_context, DType type, double tolerance) {
  OrthrosRunner runner(tiny_orthros(shape), make_context, type);
  const Ids ids = random_ids(kLength);
  for (const int32_t n_prompt : {1, 60, kLength - 3}) {
    const Logits stepwise = runner.decode_scores(ids, n_prompt);
    Ids positions = all_positions(kLength);
    positions.erase(positions.begin(), positions.begin() + n_prompt - 1);
    const Logits forced = runner.scores(ids, positions, kLength);
    ASSERT_EQ(stepwise.size(), forced.size());
    EXPECT_LE(difference(flat(stepwise), flat(forced)), tolerance) << n_prompt;
    EXPECT_TRUE(stepwise[0] == forced[0]);  // the prompt's own row is a prefill row in both
  }
}

void check_locality(const OrthrosShape& shape, const MakeContext& make_context, DType type) {
  if (!shape.layers.empty()) return;  // a layer that sees everything has no reach
  OrthrosRunner runner(tiny_orthros(shape), make_context, type);
  const int32_t n = 400, s = 90;
  const Ids ids = random_ids(n);
  Ids edited = ids;
  edited[s] = (edited[s] + 1) % 41;
  for (int32_t layer = 0; layer < n_layers(runner); ++layer) {
    const std::vector<float> before = runner.kv(ids, layer, n, {}), after = runner.kv(edited, layer, n, {});
    const int32_t last = s + layer * (shape.window - 1);  // of the positions that depend on s
    for (int32_t t = 0; t < n; ++t) {
      const bool equal = at_position(before, t, n) == at_position(after, t, n);
      if (t < s || t > last) {
        EXPECT_TRUE(equal) << "layer " << layer << ", position " << t;
      } else if (t == s) {
        EXPECT_FALSE(equal) << "layer " << layer;
      }
    }
    // The bound is tight where a change survives so many attention steps (float32 keeps the last digit).
    if (type == DType::f32 && last < n && shape.window < 10) {
      EXPECT_FALSE(at_position(before, last, n) == at_position(after, last, n)) << "layer " << layer;
    }
  }
}

void check_regimes(const OrthrosShape& shape, const MakeContext& make_context) {
  OrthrosRunner runner(tiny_orthros(shape), make_context, DType::f32);
  const auto n = static_cast<int64_t>(kLength);
  const Ids context = random_ids(kLength);
  const auto ask = [&](const std::vector<engine::Request>& requests) {
    engine::Scheduler scheduler(runner.model(), runner.context(), nullptr, {});
    std::vector<engine::Answer> answers(requests.size());
    int64_t base = 0, output = 0;
    scheduler.answer(
        requests,
        [&](engine::Answer answer) {
          base += answer.effort.rows_base;
          output += answer.effort.rows_output;
          answers[answer.index] = std::move(answer);
        },
        StopFlag{});
    EXPECT_EQ(scheduler.stats().rows_base, base);
    EXPECT_EQ(scheduler.stats().rows_output, output);
    return answers;
  };
  const auto rows = [&](const engine::Request& request) {
    const engine::Effort effort = ask({request})[0].effort;
    return std::pair(effort.rows_base, effort.rows_output);
  };
  const auto generate = [&](const Ids& prompt, int32_t steps) {
    return engine::GenerateRequest{.prompt = prompt, .max_new_tokens = steps, .ignore_eos = true};
  };
  EXPECT_EQ(rows(generate(context, 1)), std::pair(n, int64_t{1}));            // prefill: T + 1
  EXPECT_EQ(rows(generate(context, 6)), std::pair(n + 5, int64_t{6}));        // a pair a step
  EXPECT_EQ(rows(engine::NllRequest{context, {}}), std::pair(n - 1, n - 1));  // full perplexity: T = N − 1
  EXPECT_EQ(rows(engine::NllRequest{context, {{5, 80, kLength - 1}}}), std::pair(n - 1, int64_t{3}));  // sparse
  // Continuation of m tokens: n + 2m − 1.
  EXPECT_EQ(rows(engine::ScoreRequest{.context = context, .continuations = {{1, 2, 3, 4}}}),
            std::pair(n + 3, int64_t{4}));
  // Options share the context and its output row; each adds m − 1 rows of both streams.
  EXPECT_EQ(rows(engine::ScoreRequest{.context = context, .continuations = {{1, 2}, {3, 4, 5}, {6}}}),
            std::pair(n + 3, int64_t{4}));
  // A full prefix hit: one output row, no base row, and the same answer.
  const auto hit = ask({engine::NllRequest{context, {{kLength - 1}}}, generate(first(context, 77), 1)});
  const auto alone = ask({generate(first(context, 77), 1)});
  EXPECT_EQ(hit[0].effort.rows_base + hit[1].effort.rows_base, n - 1);
  EXPECT_EQ(hit[0].effort.rows_output + hit[1].effort.rows_output, 2);
  EXPECT_EQ(hit[1].effort.rows_base, 0);
  EXPECT_EQ(std::get<engine::GenerateAnswer>(hit[1].result).logprobs,
            std::get<engine::GenerateAnswer>(alone[0].result).logprobs);
}

// One haystack with a needle at eleven depths (section 3, property 4).
void check_depth_sweep_reuse(const OrthrosShape& shape, const MakeContext& make_context, DType type) {
  if (!shape.layers.empty()) return;  // a layer that sees everything has no reach
  OrthrosRunner runner(tiny_orthros(shape), make_context, type);
  const int32_t n = 700, needle = 9, n_depths = 11;
  const Ids haystack = random_ids(n);
  std::vector<engine::Request> requests;
  for (int32_t d = 0; d < n_depths; ++d) {
    Ids ids = haystack;
    std::fill_n(ids.begin() + (n - needle) * d / (n_depths - 1), needle, 3);
    requests.emplace_back(engine::GenerateRequest{.prompt = ids, .max_new_tokens = 3, .ignore_eos = true});
  }
  std::vector<std::vector<float>> computed(requests.size());
  for (const bool reuse : {false, true}) {
    engine::SchedulerOptions options;
    options.memory.kv_dtype = type;
    options.memory.batch_size = 2;
    options.prefix_reuse = reuse;
    options.allow_beyond_window = true;
    engine::Scheduler scheduler(runner.model(), runner.context(), nullptr, options);
    scheduler.answer(
        requests,
        [&](const engine::Answer& answer) {
          const auto& values = std::get<engine::GenerateAnswer>(answer.result).logprobs;
          if (!reuse) computed[answer.index] = values;
          EXPECT_TRUE(values == computed[answer.index]) << "depth " << answer.index;
        },
        StopFlag{});
    const int64_t reach = runner.model().info().kv_reach_tokens, rows = scheduler.stats().rows_base;
    if (reuse) {
      EXPECT_LT(rows, 2 * n + (n_depths + 1) * (needle + reach + 70));
    } else {
      EXPECT_EQ(rows, n_depths * (n + 2));
    }
  }
}

void check_parked_keys(const OrthrosShape& shape, const MakeContext& make_context, DType type) {
  if (!shape.layers.empty()) return;  // base rows of a full layer read every key
  OrthrosRunner runner(tiny_orthros(shape), make_context, type);
  const Ids ids = random_ids(500);
  const std::vector<engine::Request> requests{
      engine::GenerateRequest{.prompt = ids, .max_new_tokens = 20, .ignore_eos = true},
      engine::NllRequest{ids, {{77, 300, 499}}}};
  const int64_t block = engine::Cache::bytes_per_block(runner.model().state_specs(), type);
  std::vector<std::vector<float>> first(requests.size());
  for (const bool parked : {false, true}) {
    engine::SchedulerOptions options;
    options.memory.kv_dtype = type;
    options.memory.chunk = 16;
    options.memory.batch_size = 1;
    if (parked) options.memory.bytes = runner.model().scratch_bytes(16 + 2, 16 + 1) + 5 * block;
    options.memory.parked_bytes = 20 * block;
    options.allow_beyond_window = true;
    engine::Scheduler scheduler(runner.model(), runner.context(), nullptr, options);
    scheduler.answer(
        requests,
        [&](const engine::Answer& answer) {
          const auto* generated = std::get_if<engine::GenerateAnswer>(&answer.result);
          ASSERT_FALSE(std::holds_alternative<engine::Failure>(answer.result));
          const auto values =
              generated != nullptr ? generated->logprobs : std::get<engine::NllAnswer>(answer.result).nll;
          if (!parked) first[answer.index] = values;
          EXPECT_TRUE(values == first[answer.index]) << answer.index;
        },
        StopFlag{});
    EXPECT_EQ(scheduler.cache()->parked_bytes() > 0, parked);
  }
}

void check_gdn_base_rows(const std::filesystem::path& folder, const MakeContext& make_context, DType type) {
  OrthrosRunner runner(folder, make_context, type);
  const Ids ids = random_ids(kLength, runner.model().info().vocab_size);
  const int32_t layer = n_layers(runner) - 1;  // attention behind the recurrent layers
  const std::vector<float> alone = runner.kv(ids, layer, kLength, {});
  EXPECT_TRUE(runner.kv(ids, layer, kLength, all_positions(kLength)) == alone);
  EXPECT_TRUE(runner.kv(ids, layer, 7, {3, 50, 149}) == alone);
  const Logits all = runner.scores(ids, all_positions(kLength), kLength);
  EXPECT_TRUE(runner.scores(ids, {70}, kLength)[0] == all[70]);
}

void check_gdn_backbone(const std::filesystem::path& folder, const MakeContext& make_context, double tolerance) {
  TinyCheckpoint checkpoint = read_checkpoint(folder);
  nlohmann::json& block = checkpoint.config["orthros"];
  block["window_size"] = 4096;
  block["scale_offset"] = false;
  block["gdn"] = {{"query_conv", "bypass"}, {"query_act", "silu"}, {"query_affine", false}, {"read", "after_write"}};
  std::erase_if(checkpoint.tensors, [](const auto& t) { return t.first.find("q_affine") != std::string::npos; });
  for (auto& [name, tensor] : checkpoint.tensors) {
    if (name.find("conv1d.weight") == std::string::npos) continue;
    for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = i % 4 == 3 ? 1.0F : 0.0F;
  }
  TinyCheckpoint backbone = checkpoint;
  backbone.config["model_type"] = block["backbone_model_type"];
  backbone.config["architectures"] = {"Qwen3_5ForCausalLM"};
  backbone.config.erase("orthros");
  OrthrosRunner a(checkpoint, make_context, DType::f32), b(backbone, make_context, DType::f32);
  const Ids ids = random_ids(kLength, a.model().info().vocab_size);
  const Logits want = b.scores(ids, all_positions(kLength), kLength);
  EXPECT_LE(difference(flat(a.scores(ids, all_positions(kLength), kLength)), flat(want)), tolerance);
}

}  // namespace hayfork::test
