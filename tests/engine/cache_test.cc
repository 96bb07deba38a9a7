#include "engine/cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace hayfork::engine {
namespace {

constexpr int32_t kHeads = 2, kDim = 3;

StateSpec attention_spec(int32_t window = 0) {
  return {.n_kv_heads = kHeads, .k_dim = kDim, .v_dim = kDim, .window = window, .state_bytes = 0};
}

// Writes and reads one float a position (head 0, column 0 of K; V holds its negative) through the block tables.
class Probe {
 public:
  explicit Probe(std::vector<StateSpec> specs, int32_t n_blocks = 16, int32_t n_sequences = 4)
      : context_(make_cpu_context(DType::f32)), cache(*context_, std::move(specs), DType::f32, n_blocks, n_sequences) {}
  Probe(std::vector<StateSpec> specs, int32_t n_near, int32_t n_parked, int32_t n_sequences)
      : context_(make_cpu_context(DType::f32)),
        cache(*context_, std::move(specs), DType::f32, n_near, n_parked, n_sequences) {}

  float* k(SeqId seq, int32_t layer, int32_t position) const { return at(cache.kv(layer).k, seq, layer, position); }
  float* v(SeqId seq, int32_t layer, int32_t position) const { return at(cache.kv(layer).v, seq, layer, position); }
  int32_t block(SeqId seq, int32_t layer, int32_t position) const {
    return cache.view(seq, 0).blocks[cache.kv(layer).group][position / kBlockTokens];
  }
  void append(SeqId seq, int32_t layer, const std::vector<float>& values) {
    const int32_t begin = cache.length(seq);
    ASSERT_TRUE(cache.extend(seq, begin + static_cast<int32_t>(values.size())));
    for (size_t i = 0; i < values.size(); ++i) {
      *k(seq, layer, begin + static_cast<int32_t>(i)) = values[i];
      *v(seq, layer, begin + static_cast<int32_t>(i)) = -values[i];
    }
  }

 private:
  float* at(void* base, SeqId seq, int32_t layer, int32_t position) const {
    const int32_t id = block(seq, layer, position);
    EXPECT_GE(id, 0);
    return static_cast<float*>(base) + (int64_t{id} * kHeads * kBlockTokens + position % kBlockTokens) * kDim;
  }

  std::unique_ptr<Context> context_;

 public:
  Cache cache;
};

std::vector<float> numbers(float first, int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(first + static_cast<float>(i));
  return values;
}

TEST(Cache, ForkSharesBlocksAndCopiesASharedTailOnWrite) {
  Probe p({attention_spec()});
  const SeqId a = p.cache.create();
  p.append(a, 0, numbers(0, 100));
  const SeqId b = p.cache.fork(a, 100);
  EXPECT_EQ(p.cache.free_blocks(), 14);
  EXPECT_EQ(p.block(a, 0, 70), p.block(b, 0, 70));
  EXPECT_EQ(p.cache.blocks_needed(b, 101), 1);
  p.append(b, 0, numbers(1000, 5));
  p.append(a, 0, numbers(2000, 5));
  EXPECT_EQ(p.block(a, 0, 0), p.block(b, 0, 0));
  EXPECT_NE(p.block(a, 0, 70), p.block(b, 0, 70));
  for (int32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(*p.k(a, 0, i), static_cast<float>(i));
    EXPECT_EQ(*p.v(b, 0, i), -static_cast<float>(i));
  }
  EXPECT_EQ(*p.k(b, 0, 102), 1002);
  EXPECT_EQ(*p.k(a, 0, 102), 2002);
  p.cache.release(a);
  p.cache.release(b);
  EXPECT_EQ(p.cache.free_blocks(), 16);
}

TEST(Cache, ForkInTheMiddleLeavesTheParentsTailAlone) {
  Probe p({attention_spec()});
  const SeqId a = p.cache.create();
  p.append(a, 0, numbers(0, 60));
  const SeqId b = p.cache.fork(a, 10);
  p.append(b, 0, numbers(500, 3));
  EXPECT_EQ(*p.k(a, 0, 11), 11);
  EXPECT_EQ(*p.k(b, 0, 11), 501);
  EXPECT_EQ(*p.k(b, 0, 9), 9);
}

TEST(Cache, ExtendFailsWithoutChangingAnything) {
  Probe p({attention_spec()}, 3);
  const SeqId a = p.cache.create();
  p.append(a, 0, numbers(0, 100));
  const SeqId b = p.cache.fork(a, 100);
  EXPECT_FALSE(p.cache.extend(b, 160));  // one block for the tail's copy, one more for 128…159
  EXPECT_EQ(p.cache.length(b), 100);
  EXPECT_EQ(p.cache.free_blocks(), 1);
  EXPECT_TRUE(p.cache.extend(b, 128));
  EXPECT_EQ(p.cache.free_blocks(), 0);
}

TEST(Cache, BlocksBehindAWindowAreFreedUnlessAForkHoldsThem) {
  Probe p({attention_spec(100), attention_spec(0)}, 32);
  const SeqId a = p.cache.create();
  ASSERT_TRUE(p.cache.extend(a, 300));
  const SeqId b = p.cache.fork(a, 300);
  EXPECT_EQ(p.block(b, 0, 64), -1);  // position 300 sees 201 and later
  EXPECT_EQ(p.block(b, 0, 200) >= 0, true);
  ASSERT_TRUE(p.cache.extend(a, 600));
  ASSERT_TRUE(p.cache.extend(a, 601));
  EXPECT_EQ(p.block(a, 0, 447), -1);  // position 600 sees 501 and later, in the block of 448
  EXPECT_GE(p.block(a, 0, 501), 0);
  EXPECT_GE(p.block(b, 0, 201), 0);  // still b's
  EXPECT_GE(p.block(a, 1, 0), 0);    // the full layer keeps everything
  p.cache.release(a);
  p.cache.release(b);
  EXPECT_EQ(p.cache.free_blocks(), 32);
}

TEST(Cache, AWindowedGroupNeedsFewBlocksHoweverLongTheSequence) {
  auto context = make_cpu_context(DType::f32);
  const std::vector<StateSpec> specs{attention_spec(128)};
  Cache cache(*context, specs, DType::f32, 4, 1);
  const SeqId a = cache.create();
  for (int32_t n = 64; n <= 64000; n += 64) ASSERT_TRUE(cache.extend(a, n)) << n;
}

TEST(Cache, RecurrentStatesAreZeroAtFirstAndCopiedByAFork) {
  StateSpec recurrent{.state_bytes = 100};
  Probe p({attention_spec(), recurrent}, 8, 2);
  const SeqId a = p.cache.create();
  const int32_t slot = p.cache.view(a, 0).state_slot;
  auto* state = static_cast<char*>(p.cache.state(1, slot));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(state[i], 0);
  std::memset(state, 7, 100);
  ASSERT_TRUE(p.cache.extend(a, 5));
  EXPECT_EQ(p.cache.free_sequences(), 1);
  const SeqId b = p.cache.fork(a, 5);
  auto* copy = static_cast<char*>(p.cache.state(1, p.cache.view(b, 0).state_slot));
  EXPECT_NE(copy, state);
  EXPECT_EQ(std::memcmp(copy, state, 100), 0);
  EXPECT_THROW(p.cache.fork(b, 4), Error);
  p.cache.release(a);
  const SeqId c = p.cache.create();  // gets a's slot, which must not show its old state
  auto* fresh = static_cast<char*>(p.cache.state(1, p.cache.view(c, 0).state_slot));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(fresh[i], 0);
  p.cache.release(b);
  p.cache.release(c);
  EXPECT_EQ(p.cache.free_sequences(), 2);
}

TEST(Cache, TruncateForgetsAndFrees) {
  Probe p({attention_spec()});
  const SeqId a = p.cache.create();
  p.append(a, 0, numbers(0, 200));
  p.cache.truncate(a, 64);
  EXPECT_EQ(p.cache.length(a), 64);
  EXPECT_EQ(p.cache.free_blocks(), 15);
  p.append(a, 0, numbers(300, 2));
  EXPECT_EQ(*p.k(a, 0, 65), 301);
}

TEST(Cache, HeldBlocksOutliveTheirSequenceAndReplaceATail) {
  Probe p({attention_spec()});
  const SeqId a = p.cache.create();
  p.append(a, 0, numbers(0, 130));
  const std::vector<int32_t> first = p.cache.hold(a, 0), second = p.cache.hold(a, 1);
  p.cache.release(a);
  EXPECT_EQ(p.cache.held_blocks(), 2);
  const SeqId b = p.cache.create();
  p.append(b, 0, numbers(500, 70));
  p.cache.append(b, second, kBlockTokens);  // in place of its own 64…69
  EXPECT_EQ(p.cache.length(b), 128);
  EXPECT_EQ(*p.k(b, 0, 63), 563);
  EXPECT_EQ(*p.k(b, 0, 64), 64);
  p.append(b, 0, numbers(900, 1));
  EXPECT_EQ(*p.k(b, 0, 128), 900);
  const SeqId c = p.cache.create();
  p.cache.append(c, first, kBlockTokens);
  p.cache.append(c, second, kBlockTokens);
  EXPECT_EQ(*p.k(c, 0, 127), 127);
  p.cache.drop(first);
  p.cache.drop(second);
  p.cache.release(c);
  p.cache.release(b);
  EXPECT_EQ(p.cache.held_blocks(), 0);
}

TEST(Cache, PartsOfHeldBlocksAreTakenOverAndCopied) {
  Probe p({attention_spec(), attention_spec(8)});
  const SeqId a = p.cache.create();
  p.append(a, 0, numbers(0, 100));
  const std::vector<int32_t> tail = p.cache.hold(a, 1);
  EXPECT_TRUE(p.cache.holds(a, 1));
  p.append(a, 0, numbers(700, 1));  // grows into a copy
  EXPECT_EQ(*p.k(a, 0, 99), 99);
  EXPECT_EQ(*p.k(a, 0, 100), 700);
  const SeqId b = p.cache.create();
  p.append(b, 0, numbers(500, 64));
  p.cache.append(b, tail, 20);
  EXPECT_EQ(p.cache.length(b), 84);
  EXPECT_EQ(*p.k(b, 0, 83), 83);
  p.append(b, 0, numbers(900, 1));  // a copy again: the held one stays as it is
  const SeqId c = p.cache.create();
  p.append(c, 0, numbers(300, 74));
  p.cache.copy_in(c, tail, 36);  // behind 64…73, which the caller writes again
  EXPECT_EQ(p.cache.length(c), 100);
  for (int32_t t = 64; t < 74; ++t) *p.k(c, 0, t) = static_cast<float>(300 + t);
  EXPECT_EQ(*p.k(c, 0, 73), 373);
  EXPECT_EQ(*p.k(c, 0, 74), 74);
  EXPECT_EQ(*p.k(c, 0, 99), 99);
  p.cache.drop(tail);
  for (const SeqId seq : {a, b, c}) p.cache.release(seq);
  EXPECT_EQ(p.cache.held_blocks(), 0);
}

// The oldest blocks make room, behind what base rows read; what is shared stays where it is.
TEST(Cache, ParksBlocksThatBaseRowsDoNotReadAnyMore) {
  StateSpec spec = attention_spec();
  spec.base_window = 70;
  Probe p({spec, spec}, 4, 6, 4);  // 4 near, 6 parked
  const SeqId a = p.cache.create();
  p.append(a, 0, numbers(0, 256));
  EXPECT_EQ(p.cache.parked_blocks(), 0);
  p.append(a, 0, numbers(256, 64));  // rows from 256 on see 187 … : blocks 0 and 1 are free to go
  EXPECT_EQ(p.cache.parked_blocks(), 1);
  EXPECT_GE(p.block(a, 0, 0), 4);
  EXPECT_LT(p.block(a, 0, 319), 4);
  for (int32_t t = 0; t < 320; ++t) ASSERT_EQ(*p.k(a, 0, t), static_cast<float>(t));
  const SeqId b = p.cache.fork(a, 320);
  p.append(b, 0, numbers(320, 1));  // every near block is shared: a parked one is written
  EXPECT_GE(p.block(b, 0, 320), 4);
  p.cache.release(a);
  p.append(b, 0, numbers(321, 127));
  for (int32_t t = 0; t < 448; ++t) ASSERT_EQ(*p.k(b, 0, t), static_cast<float>(t));
  EXPECT_EQ(p.cache.parked_bytes(), 6 * p.cache.bytes() / 4);
  p.cache.release(b);
  EXPECT_EQ(p.cache.parked_blocks(), 0);
}

TEST(Cache, AccountsForItsMemory) {
  const std::vector<StateSpec> specs{attention_spec(), attention_spec(8), StateSpec{.state_bytes = 65}};
  EXPECT_EQ(Cache::windows(specs), (std::vector<int32_t>{0, 8}));
  EXPECT_EQ(Cache::bytes_per_block(specs, DType::bf16, 1), 2 * kHeads * kBlockTokens * kDim * 2);
  EXPECT_EQ(Cache::bytes_per_block(specs, DType::bf16), 4 * kHeads * kBlockTokens * kDim * 2);
  EXPECT_EQ(Cache::bytes_per_state(specs), 128);
  auto context = make_cpu_context(DType::f32);
  Cache cache(*context, specs, DType::bf16, 5, 3);
  EXPECT_EQ(cache.bytes(), 5 * Cache::bytes_per_block(specs, DType::bf16) + 3 * 128);
  EXPECT_EQ(cache.touched_bytes(), 0);
  const int64_t block = Cache::bytes_per_block(specs, DType::bf16);
  const SeqId a = cache.create(), b = cache.create();
  ASSERT_TRUE(cache.extend(a, kBlockTokens + 1));
  EXPECT_EQ(cache.touched_bytes(), 2 * block + 2 * 128);
  cache.release(a);
  ASSERT_TRUE(cache.extend(b, 1));  // in what was in use before
  EXPECT_EQ(cache.touched_bytes(), 2 * block + 2 * 128);
}

// Random creates, forks, appends, truncates and releases against a plain copy of every sequence's values.
TEST(Cache, AgreesWithPlainCopiesUnderRandomUse) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    Probe p({attention_spec()}, 40);
    std::map<SeqId, std::vector<float>> plain;
    float next = 1;
    for (int step = 0; step < 400; ++step) {
      const auto pick = [&] { return std::next(plain.begin(), static_cast<long>(rng.below(plain.size())))->first; };
      switch (plain.empty() ? 0 : rng.below(5)) {
        case 0:
          plain[p.cache.create()] = {};
          break;
        case 1: {
          const SeqId from = pick();
          const auto n = static_cast<int32_t>(rng.below(plain[from].size() + 1));
          const std::vector<float> head(plain[from].begin(), plain[from].begin() + n);
          plain[p.cache.fork(from, n)] = head;
          break;
        }
        case 2: {
          const SeqId seq = pick();
          const auto n = static_cast<int32_t>(rng.below(plain[seq].size() + 1));
          p.cache.truncate(seq, n);
          plain[seq].resize(static_cast<size_t>(n));
          break;
        }
        case 3: {
          const SeqId seq = pick();
          p.cache.release(seq);
          plain.erase(seq);
          break;
        }
        default: {
          const SeqId seq = pick();
          const auto n = static_cast<int32_t>(rng.below(90));
          const int32_t length = p.cache.length(seq);
          if (p.cache.blocks_needed(seq, length + n) > p.cache.free_blocks()) {
            EXPECT_FALSE(p.cache.extend(seq, length + n));
            break;
          }
          p.append(seq, 0, numbers(next, n));
          const std::vector<float> added = numbers(next, n);
          plain[seq].insert(plain[seq].end(), added.begin(), added.end());
          next += 1000;
        }
      }
      for (const auto& [seq, values] : plain) {
        ASSERT_EQ(p.cache.length(seq), static_cast<int32_t>(values.size()));
        for (size_t i = 0; i < values.size(); i += 7) ASSERT_EQ(*p.k(seq, 0, static_cast<int32_t>(i)), values[i]);
      }
    }
    for (const auto& entry : plain) p.cache.release(entry.first);
    EXPECT_EQ(p.cache.free_blocks(), 40);
  }
}

}  // namespace
}  // namespace hayfork::engine
