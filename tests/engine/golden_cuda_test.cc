// Golden checkpoints on a GPU: float32 against the float64 reference, bf16 against transformers' own bf16 error, greedy
// continuations, and the same bits under every batch, chunk, order and prefix reuse. Cases come from
// tests/golden/models and, when it is there, from HAYFORK_TEST_DATA; kinds without CUDA kernels are named and left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "engine/cuda/devices.h"
#include "engine/scheduler.h"
#include "tests/support/golden_model.h"
#include "tests/support/paths.h"

namespace hayfork::engine {
namespace {

using test::GoldenModel;

std::vector<std::filesystem::path> cases() {
  std::vector<std::filesystem::path> all;
  const auto take = [&](const std::filesystem::path& root) {
    if (!std::filesystem::exists(root)) return;
    for (const auto& folder : test::golden_cases(root)) all.push_back(folder);
  };
  take(test::source_dir() / "tests/golden/models");
  for (const char* kind : {"golden/hf", "golden/reference"}) {
    if (const auto root = test::data_path(kind)) take(*root);
  }
  return all;
}

class GoldenCuda : public testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    const auto found = cuda::list_devices();
    if (found.devices.empty()) GTEST_SKIP() << "needs a GPU: " << found.problem;
  }
  std::unique_ptr<GoldenModel> load(DType type) {
    return std::make_unique<GoldenModel>(GetParam(), cuda::make_cuda_context(0, type));
  }
};

struct Switches {
  int32_t batch, chunk;
  Order order;
  bool reuse;
  bool graphs;
};
constexpr Switches kSwitches[] = {
    {64, 512, Order::given, true, false}, {1, 16, Order::reverse, true, true}, {7, 1, Order::shuffle, false, true}};

SchedulerOptions options_of(const Switches& s, DType kv) {
  SchedulerOptions options;
  options.memory.batch_size = s.batch;
  options.memory.chunk = s.chunk;
  options.memory.kv_dtype = kv;
  options.order = s.order;
  options.order_seed = 5;
  options.prefix_reuse = s.reuse;
  options.graphs = s.graphs;
  options.allow_beyond_window = true;
  return options;
}

std::vector<std::vector<float>> all_logits(GoldenModel& golden, const Switches& s, DType kv) {
  const auto vocab = static_cast<size_t>(golden.model().info().vocab_size);
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> logits;
  for (const auto& sequence : golden.sequences()) {
    ids.push_back(sequence.ids);
    logits.emplace_back(sequence.ids.size() * vocab);
  }
  Scheduler scheduler(golden.model(), golden.context(), nullptr, options_of(s, kv));
  scheduler.logits(ids, true, [&](size_t i, int32_t position, const float* row) {
    std::copy_n(row, vocab, logits[i].begin() + position * static_cast<long>(vocab));
  });
  return logits;
}

TEST_P(GoldenCuda, LogitsMatchTheReferenceWithTheSameBitsUnderEverySwitch) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::unique_ptr<GoldenModel> golden = load(type);
    const std::vector<std::vector<float>> first = all_logits(*golden, kSwitches[0], type);
    const auto sequences = golden->sequences();
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (type == DType::f32) {
        const double worst = test::relative_max(first[i], sequences[i].logits64);
        EXPECT_LE(worst, 1e-4) << "sequence " << i;
        if (i + 1 == sequences.size()) std::printf("%s f32 %.1e\n", GetParam().filename().c_str(), worst);
        continue;
      }
      // transformers' own error, or that of the same model token by token, where the recurrences run
      // unfused with a state in float32.
      const bool has_recurrence = Cache::bytes_per_state(golden->model().state_specs()) > 0;
      if ((sequences[i].logits_bf16.empty() && !has_recurrence) || sequences[i].ids.size() == 1) continue;
      const double theirs =
          test::rms(sequences[i].logits_bf16.empty() ? golden->logits(sequences[i].ids, 1, RowKind::decode)
                                                     : sequences[i].logits_bf16,
                    sequences[i].logits64);
      const double ours = test::rms(first[i], sequences[i].logits64);
      EXPECT_LE(ours, 1.5 * theirs) << "sequence " << i;
      std::printf("%s bf16 rms %.4f, %s %.4f\n", GetParam().filename().c_str(), ours,
                  sequences[i].logits_bf16.empty() ? "token by token" : "transformers", theirs);
    }
    for (const Switches& s : kSwitches) {
      EXPECT_TRUE(all_logits(*golden, s, type) == first)
          << name(type) << " bits, batch " << s.batch << " chunk " << s.chunk;
    }
  }
}

TEST_P(GoldenCuda, GreedyAnswersEqualTheReference) {
  std::vector<Request> requests;
  std::vector<std::vector<int64_t>> want;
  const std::unique_ptr<GoldenModel> golden = load(DType::f32);
  for (const GoldenModel::Sequence& s : golden->sequences()) {
    // transformers keeps keys rotated by an outdated table there.
    if (GetParam().filename() == "llama_dynamic" && s.ids.size() > 64) continue;
    requests.push_back(GenerateRequest{.prompt = s.ids, .max_new_tokens = 24, .ignore_eos = true});
    want.push_back(s.greedy);
  }
  for (const Switches& s : kSwitches) {
    Scheduler scheduler(golden->model(), golden->context(), nullptr, options_of(s, DType::f32));
    const auto check = [&](const Answer& answer) {
      const auto& got = std::get<GenerateAnswer>(answer.result);
      EXPECT_EQ(std::vector<int64_t>(got.ids.begin(), got.ids.end()), want[answer.index])
          << "sequence " << answer.index;
    };
    scheduler.answer(requests, check, StopFlag{});
  }
}

// The model with other ids that end an answer, and something to do before each pass.
class Wrapped : public Model {
 public:
  Wrapped(Model& model, std::vector<int32_t> eos) : model_(model), info_(model.info()) {
    info_.eos_ids = std::move(eos);
  }
  std::function<void(const Pass&)> before;
  const ModelInfo& info() const override { return info_; }
  bool two_streams() const override { return model_.two_streams(); }
  std::vector<StateSpec> state_specs() const override { return model_.state_specs(); }
  int32_t rope_class(int32_t n) const override { return model_.rope_class(n); }
  ForwardResult forward(Context& context, const Pass& pass, Cache& cache) override {
    return model_.forward(context, pass, cache);
  }
  std::vector<HeadResult> head(Context& context, Matrix hidden, std::span<const HeadQuery> queries) override {
    return model_.head(context, hidden, queries);
  }
  bool records() const override { return model_.records(); }
  QueuedPass queue(Context& context, const Pass& pass, Cache& cache, std::span<const HeadQuery> queries) override {
    if (before) before(pass);
    return model_.queue(context, pass, cache, queries);
  }
  int64_t weight_bytes() const override { return model_.weight_bytes(); }
  int64_t scratch_bytes(int64_t n_rows, int64_t n_want) const override { return model_.scratch_bytes(n_rows, n_want); }

 private:
  Model& model_;
  ModelInfo info_;
};

// Answers of different lengths, some ended by an id that is seen only when the next row has been computed.
TEST_P(GoldenCuda, AnswersHaveTheSameBitsWithGraphsAndWithout) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::unique_ptr<GoldenModel> golden = load(type);
    const auto sequences = golden->sequences();
    const int64_t eos = sequences.front().greedy.size() > 5 ? sequences.front().greedy[5] : 1;
    Wrapped model(golden->model(), {static_cast<int32_t>(eos)});
    std::vector<Request> requests;
    for (const GoldenModel::Sequence& s : sequences) {
      for (const int32_t n : {70, 1, 2, 37, 9, 3}) {
        requests.push_back(GenerateRequest{.prompt = s.ids, .max_new_tokens = n, .ignore_eos = n == 70});
        std::vector<int32_t> shorter(s.ids.begin(), s.ids.begin() + static_cast<int64_t>((s.ids.size() + 1) / 2));
        requests.push_back(GenerateRequest{.prompt = shorter, .max_new_tokens = n + 1, .ignore_eos = n == 70});
      }
    }
    using Got = std::vector<std::pair<std::vector<int32_t>, std::vector<float>>>;
    const auto answer = [&](const Switches& s) {
      Scheduler scheduler(model, golden->context(), nullptr, options_of(s, type));
      Got got(requests.size());
      scheduler.answer(
          requests,
          [&](const Answer& a) {
            const auto& generated = std::get<GenerateAnswer>(a.result);
            got[a.index] = {generated.ids, generated.logprobs};
          },
          StopFlag{});
      return got;
    };
    const Got first = answer({64, 512, Order::given, true, false});
    for (const Switches& s :
         {Switches{64, 512, Order::given, true, true}, Switches{1, 512, Order::given, true, true},
          Switches{5, 16, Order::reverse, false, true}, Switches{2, 7, Order::given, true, false}}) {
      EXPECT_TRUE(answer(s) == first) << name(type) << " batch " << s.batch << " graphs " << s.graphs;
    }
  }
}

// Passes of many rows are refused as an allocation would be: smaller ones give the same bits.
TEST_P(GoldenCuda, AnswersTheSameWhenMemoryRunsOut) {
  const std::unique_ptr<GoldenModel> golden = load(DType::bf16);
  Wrapped model(golden->model(), {});
  std::vector<Request> requests;
  for (const GoldenModel::Sequence& s : golden->sequences()) {
    requests.push_back(GenerateRequest{.prompt = s.ids, .max_new_tokens = 9, .ignore_eos = true});
    requests.push_back(NllRequest{.tokens = s.ids});
  }
  int n_refused = 0;
  const auto answer = [&] {
    std::vector<std::vector<float>> got(requests.size());
    Scheduler scheduler(model, golden->context(), nullptr,
                        options_of({64, 512, Order::given, true, true}, DType::bf16));
    scheduler.answer(
        requests,
        [&](const Answer& a) {
          const auto* generated = std::get_if<GenerateAnswer>(&a.result);
          got[a.index] = generated != nullptr ? generated->logprobs : std::get<NllAnswer>(a.result).nll;
        },
        StopFlag{});
    return got;
  };
  const auto first = answer();
  model.before = [&](const Pass& pass) {
    if (pass.rows.size() <= 20) return;
    ++n_refused;
    throw Error(ErrorCode::resource, ErrorSubject::memory, "injected");
  };
  EXPECT_EQ(answer(), first);
  EXPECT_GT(n_refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenCuda, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.parent_path().filename().string() + "_" + test.param.filename().string() + "_" +
         std::to_string(test.index);
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenCuda);

}  // namespace
}  // namespace hayfork::engine
