// Golden checkpoints on a GPU: float32 against the float64 reference, bf16 against transformers' own bf16 error, greedy
// continuations, and the same bits under every batch, chunk, order and prefix reuse. Cases come from
// tests/golden/models and, when it is there, from HAYFORK_TEST_DATA; kinds without CUDA kernels are named and left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

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
  // Null, with the test marked as skipped, for what the CUDA backend refuses.
  std::unique_ptr<GoldenModel> load(DType type) {
    return std::make_unique<GoldenModel>(GetParam(), cuda::make_cuda_context(0, type));
  }
};

struct Switches {
  int32_t batch, chunk;
  Order order;
  bool reuse;
};
constexpr Switches kSwitches[] = {
    {64, 512, Order::given, true}, {1, 16, Order::reverse, true}, {7, 1, Order::shuffle, false}};

SchedulerOptions options_of(const Switches& s, DType kv) {
  SchedulerOptions options;
  options.memory.batch_size = s.batch;
  options.memory.chunk = s.chunk;
  options.memory.kv_dtype = kv;
  options.order = s.order;
  options.order_seed = 5;
  options.prefix_reuse = s.reuse;
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
    std::unique_ptr<GoldenModel> golden;
    std::vector<std::vector<float>> first;
    try {
      golden = load(type);
      first = all_logits(*golden, kSwitches[0], type);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      GTEST_SKIP() << "no CUDA kernel: " << error.what();
    }
    const auto sequences = golden->sequences();
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (type == DType::f32) {
        EXPECT_LE(test::relative_max(first[i], sequences[i].logits64), 1e-4) << "sequence " << i;
      } else if (!sequences[i].logits_bf16.empty()) {
        const double theirs = test::rms(sequences[i].logits_bf16, sequences[i].logits64);
        const double ours = test::rms(first[i], sequences[i].logits64);
        if (sequences[i].ids.size() > 1) {
          EXPECT_LE(ours, 1.5 * theirs) << "sequence " << i;
        }
        std::printf("%s bf16 rms %.4f, transformers %.4f\n", GetParam().filename().c_str(), ours, theirs);
      }
    }
    for (const Switches& s : kSwitches) {
      EXPECT_TRUE(all_logits(*golden, s, type) == first)
          << name(type) << " bits, batch " << s.batch << " chunk " << s.chunk;
    }
  }
}

TEST_P(GoldenCuda, GreedyAnswersEqualTheReference) {
  std::unique_ptr<GoldenModel> golden;
  std::vector<Request> requests;
  std::vector<std::vector<int64_t>> want;
  try {
    golden = load(DType::f32);
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
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    GTEST_SKIP() << "no CUDA kernel: " << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenCuda, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.parent_path().filename().string() + "_" + test.param.filename().string() + "_" +
         std::to_string(test.index);
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenCuda);

}  // namespace
}  // namespace hayfork::engine
