// The recurrences token by token: decode rows of every type, and prefill rows where there is no chunk kernel (float32,
// unusual head sizes). A block has the same columns of the same state of one sequence after another: while it computes
// one's, the next one's state, inputs and row numbers are copied into shared memory, so that a decode step takes the
// time of reading and writing the states once (Pipeline). What is not so common, Walk does on its own.
#include <algorithm>
#include <cstdint>

#include "engine/kernels/mma.cuh"
#include "engine/kernels/recurrent_walk.cuh"

namespace hayfork::engine::cuda {
namespace {

// The common case, one base row a sequence and its state up to date, sequence after sequence.
template <typename T, Form kForm, int kPadded>
class Pipeline {
  using Columns = StepColumns<T, kForm, kPadded, true>;
  using Inputs = typename Columns::Inputs;
  static constexpr int kThreads = Columns::kThreads;
  static constexpr bool kChannel = kForm == Form::channel;
  static constexpr int kWordOf = 4 / static_cast<int>(sizeof(T));  // elements a word
  struct Offsets {
    int64_t key, query, value;  // of this block's head and columns in a row
  };
  // Words that are brought of each sequence besides its vectors. Gates: a and b of delta, log decay and the value's
  // scale of the others.
  enum Word : int { kBasePosition, kOutputPosition, kEntry, kGateA, kGateB, kWords };
  // What is to be done at a sequence: nothing; what only Walk can; a step; one from position 0.
  enum class Task : int { none, apart, step, first };

 public:
  struct Shared {
    float4 state[kStepRows][kThreads];  // of the next sequence, each thread's own part
    alignas(16) float sums[Columns::kSumFloats];
    Inputs inputs[2];  // of this sequence and the next
    float logs[kChannel ? kPadded : 1];
    uint32_t words[2][kWords];
    SequenceSpans spans[3];  // of this sequence and the next two
    Offsets heads;
    Task task[2];
  };

  __device__ Pipeline(const RecurrentCall& call, Shared& shared, int first_kind, int end_kind)
      : call_(call), shared_(shared), first_kind_(first_kind), end_kind_(end_kind), columns_(call, shared.sums) {
    if constexpr (kForm == Form::delta) {
      constant_.first = call.a_log[columns_.state()];
      constant_.second = call.dt_bias[columns_.state()];
    } else {
      constant_.first = call.per_head != nullptr ? call.per_head[columns_.state()] : 0.f;
      constant_.second = 1;
    }
  }

  __device__ void run() {
    const int stride = static_cast<int>(gridDim.z), n = call_.pass.n_sequences;
    int s = static_cast<int>(blockIdx.z), at = 0;
    if (threadIdx.x == 0) {  // divisions, once
      shared_.heads = {
          columns_.key_of(0) - static_cast<const T*>(call_.k),
          columns_.query_of(0, columns_.first_reader()) - static_cast<const T*>(call_.q),
          columns_.value_of(0) - static_cast<const T*>(call_.v) + static_cast<int64_t>(blockIdx.x) * kStepColumns};
    }
    ask_spans(s, 0);
    if (s + stride < n) ask_spans(s + stride, 1);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    wait_for_previous();  // the numbers of the pass were there before any of its kernels
    ask_sequence(shared_.spans[0], 0);
    copy_async_commit();
    for (int turn = 0; s < n; s += stride, turn ^= 1) {
      copy_async_wait<0>();
      prepare(shared_.spans[at], turn);
      __syncthreads();
      const Task task = shared_.task[turn];
      take_state();
      const int next = at == 2 ? 0 : at + 1;
      if (s + stride < n) ask_sequence(shared_.spans[next], turn ^ 1);
      if (s + 2 * stride < n) ask_spans(s + 2 * stride, next == 2 ? 0 : next + 1);
      copy_async_commit();
      if (task == Task::apart) {
        walk_apart<T, kForm, kPadded, true>(call_, s, shared_.inputs[turn], shared_.sums, first_kind_, end_kind_);
      } else if (task != Task::none) {
        step(shared_.spans[at], turn, task == Task::first);
      }
      at = next;
    }
  }

 private:
  static constexpr int kWordThread = kThreads - 32, kSpanThread = kThreads - 16;  // the last warp has fewer vectors
  static constexpr int kSpanWords = sizeof(SequenceSpans) / 4;
  static_assert(kSpanThread + kSpanWords <= kThreads && (kThreads & (kThreads - 1)) == 0);

  __device__ static void ask_word(void* to, const void* from) { copy_async_4(shared_address(to), from, 4); }
  // Words of vectors: of `padded` elements the first n, then zeros; from thread `first` on.
  __device__ static void ask_vector(T* to, int padded, const T* from, int n, int first) {
    for (int w = (static_cast<int>(threadIdx.x) - first) & (kThreads - 1); w < padded / kWordOf; w += kThreads) {
      const bool is_in = w * kWordOf < n;
      copy_async_4(shared_address(to + w * kWordOf), is_in ? from + w * kWordOf : from, is_in ? 4 : 0);
    }
  }
  __device__ void ask_spans(int s, int at) {
    const int i = static_cast<int>(threadIdx.x) - kSpanThread;
    if (i < 0 || i >= kSpanWords) return;
    ask_word(reinterpret_cast<int*>(&shared_.spans[at]) + i,
             reinterpret_cast<const int*>(call_.pass.sequences + s) + i);
  }
  // A gate that the row has of its own; a bf16 number comes with its neighbour.
  __device__ const T* gate_of(const void* gates, int64_t stride, int64_t row) const {
    return static_cast<const T*>(gates) + row * stride + columns_.state();
  }
  __device__ static const void* word_of(const T* element) {
    return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(element) & ~uintptr_t{3});
  }
  __device__ static T element_of(uint32_t word, const T* element) {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(word);
    } else {
      const bool is_high = (reinterpret_cast<uintptr_t>(element) & 2) != 0;
      return __ushort_as_bfloat16(static_cast<unsigned short>(is_high ? word >> 16 : word));
    }
  }
  __device__ void ask_words(const SequenceSpans& spans, int turn) {
    uint32_t* const words = shared_.words[turn];
    const int64_t row = spans.first[first_kind_ * 2];
    ask_word(words + kEntry, columns_.header_of(spans.slot));
    if (spans.n[first_kind_ * 2 + 1] > 0)
      ask_word(words + kOutputPosition, &call_.pass.rows[spans.first[first_kind_ * 2 + 1]].pos);
    ask_word(words + kBasePosition, &call_.pass.rows[row].pos);
    if constexpr (kForm == Form::delta) {
      ask_word(words + kGateA, word_of(gate_of(call_.a, call_.a_stride, row)));
      ask_word(words + kGateB, word_of(gate_of(call_.b, call_.b_stride, row)));
    } else {
      if (call_.per_token != nullptr)
        ask_word(words + kGateA, call_.per_token + row * call_.token_stride + columns_.state());
      if (call_.v_scale != nullptr)
        ask_word(words + kGateB, call_.v_scale + row * call_.scale_stride + columns_.state());
    }
  }
  // Asks for a sequence's state and its first base row's inputs, before it is known where the state stands.
  __device__ void ask_sequence(const SequenceSpans& spans, int turn) {
    if (spans.slot < 0 || spans.n[first_kind_ * 2] != 1) return;  // not the common case
    const float* const matrix = columns_.matrix_of(spans.slot);
#pragma unroll
    for (int i = 0; i < kStepRows; ++i) {
      const bool is_in = columns_.has(i);
      const void* const from = is_in ? static_cast<const void*>(matrix + columns_.offset(i)) : call_.state;
      copy_async_16_of_256(shared_address(&shared_.state[i][threadIdx.x]), from, is_in ? 16 : 0);
    }
    if (threadIdx.x == kWordThread) ask_words(spans, turn);
    const int64_t row = spans.first[first_kind_ * 2];
    const int column = static_cast<int>(blockIdx.x) * kStepColumns;
    Inputs& in = shared_.inputs[turn];
    const Offsets& heads = shared_.heads;
    const auto at = [&](const void* rows, int64_t stride, int64_t head) {
      return static_cast<const T*>(rows) + row * stride + head;
    };
    ask_vector(in.key, kPadded, at(call_.k, call_.k_stride, heads.key), call_.dk, 0);
    ask_vector(in.query, kPadded, at(call_.q, call_.q_stride, heads.query), call_.dk, kPadded / kWordOf);
    ask_vector(in.value, kStepColumns, at(call_.v, call_.v_stride, heads.value), call_.dv - column,
               2 * kPadded / kWordOf);
    if constexpr (kChannel) {
      const float* const logs = columns_.logs_of(row);
      for (int d = threadIdx.x; d < call_.dk; d += kThreads) ask_word(shared_.logs + d, logs + d);
    }
  }

  // What is made of the words that this very thread has asked for; others read it behind the barrier that follows.
  __device__ void prepare(const SequenceSpans& spans, int turn) {
    if constexpr (kChannel) {
      for (int d = threadIdx.x; d < kPadded; d += kThreads)
        shared_.inputs[turn].decays[d] = d < call_.dk ? expf(shared_.logs[d]) : 0.f;
    }
    if (threadIdx.x == kWordThread) {
      shared_.task[turn] = task_of(spans, turn);
      if (shared_.task[turn] >= Task::step) make_gates(spans.first[first_kind_ * 2], turn);
    }
  }
  __device__ Task task_of(const SequenceSpans& spans, int turn) const {
    if (spans.slot < 0) return Task::none;
    const auto word = [&](Word w) { return static_cast<int>(shared_.words[turn][w]); };
    const int n_base = spans.n[first_kind_ * 2], n_output = spans.n[first_kind_ * 2 + 1];
    const bool has_more = end_kind_ - first_kind_ == 2 && spans.n[2] + spans.n[3] > 0;
    if (n_base + n_output == 0) return has_more ? Task::apart : Task::none;
    if (has_more || n_base != 1 || n_output > 1) return Task::apart;
    const int position = word(kBasePosition);
    if (n_output == 1 && word(kOutputPosition) != position) return Task::apart;
    if (position == 0) return Task::first;
    return word(kEntry) >= position ? Task::step : Task::apart;
  }
  __device__ void make_gates(int64_t row, int turn) {
    const uint32_t a = shared_.words[turn][kGateA], b = shared_.words[turn][kGateB];
    GateInputs<T> x = constant_;
    if constexpr (kForm == Form::delta) {
      x.a = element_of(a, gate_of(call_.a, call_.a_stride, row));
      x.b = element_of(b, gate_of(call_.b, call_.b_stride, row));
    } else {
      if (call_.per_head == nullptr && call_.per_token != nullptr) x.first = __uint_as_float(a);
      if (call_.v_scale != nullptr) x.second = __uint_as_float(b);
    }
    const float2 gates = gates_from(call_, x);
    shared_.inputs[turn].gates = {expf(gates.x), gates.y};
  }
  // A thread takes what it has asked for itself, and may then ask again.
  __device__ void take_state() {
#pragma unroll
    for (int i = 0; i < kStepRows; ++i) columns_.set(i, shared_.state[i][threadIdx.x]);
    __syncwarp();
  }

  __device__ void step(const SequenceSpans& spans, int turn, bool is_first) {
    Inputs& in = shared_.inputs[turn];
    const int64_t row = spans.first[first_kind_ * 2], output = spans.first[first_kind_ * 2 + 1];
    const bool has_output = spans.n[first_kind_ * 2 + 1] > 0, reads_before = kForm == Form::delta && call_.before;
    if (is_first) columns_.clear();
    if (reads_before) {
      if (has_output) columns_.ask_all(in, output, 0, false);
      columns_.store_state(columns_.before_of(spans.slot));
    }
    columns_.update(in);
    columns_.store_state(columns_.matrix_of(spans.slot));
    if (threadIdx.x == kWordThread)
      *columns_.header_of(spans.slot) = static_cast<int>(shared_.words[turn][kBasePosition]) + 1;
    if (reads_before && has_output) {
      columns_.ask_all(in, row, 0, true);
    } else {
      columns_.answer(in, row, columns_.first_reader(), true);
      columns_.ask_all(in, row, 1, true);
    }
    if (has_output && !reads_before) columns_.ask_all(in, output, 0, false);
  }

  const RecurrentCall& call_;
  Shared& shared_;
  const int first_kind_, end_kind_;
  Columns columns_;
  GateInputs<T> constant_{};  // what of the gates does not depend on the row
};

// Blocks a multiprocessor holds: what is under way there must fill memory's latency.
constexpr int blocks_for(int padded) {
  return padded <= 64 ? 8 : padded <= 128 ? 4 : padded <= 256 ? 2 : 1;
}

template <typename T, Form kForm, int kPadded>
__global__ void __launch_bounds__(StepColumns<T, kForm, kPadded, true>::kThreads, blocks_for(kPadded))
    step_kernel(const __grid_constant__ RecurrentCall call, int first_kind, int end_kind) {
  extern __shared__ float4 shared[];
  let_next_start();
  using Here = Pipeline<T, kForm, kPadded>;
  Here(call, *reinterpret_cast<typename Here::Shared*>(shared), first_kind, end_kind).run();
}

// Of vectors that do not consist of whole words: Walk alone, with columns of the most rows.
template <typename T, Form kForm, int kPadded>
__global__ void __launch_bounds__(StepColumns<T, kForm, kPadded, false>::kThreads)
    walk_kernel(const __grid_constant__ RecurrentCall call, int first_kind, int end_kind) {
  using Here = StepColumns<T, kForm, kPadded, false>;
  __shared__ typename Here::Inputs inputs;
  __shared__ alignas(16) float sums[Here::kSumFloats];
  let_next_start();
  wait_for_previous();
  walk_apart<T, kForm, kPadded, false>(call, static_cast<int>(blockIdx.z), inputs, sums, first_kind, end_kind);
}

// Blocks along the sequences where `columns` of them stand side by side: as many as leave the multiprocessors least to
// do one after another. A block's first sequence counts twice, for nothing is on its way yet.
int blocks_along(int n_sequences, int columns, int room) {
  int best = 1;
  int64_t least = INT64_MAX;
  for (int blocks = 1; blocks <= n_sequences; ++blocks) {
    const int64_t turns = (static_cast<int64_t>(blocks) * columns + room - 1) / room;
    const int64_t time = turns * ((n_sequences + blocks - 1) / blocks + 1);
    if (time < least) least = time, best = blocks;
  }
  return best;
}

dim3 grid_of(const RecurrentCall& call, int along) {
  return {static_cast<unsigned>((call.dv + kStepColumns - 1) / kStepColumns), static_cast<unsigned>(call.n),
          static_cast<unsigned>(along)};
}

template <typename T, Form kForm, int kPadded>
void launch(CudaContext& context, const RecurrentCall& call, int first_kind, int end_kind) {
  const auto kernel = step_kernel<T, kForm, kPadded>;
  const int shared = static_cast<int>(sizeof(typename Pipeline<T, kForm, kPadded>::Shared));
  if (shared > 48 << 10) allow_shared(context, kernel, shared);
  const int columns = (call.dv + kStepColumns - 1) / kStepColumns * call.n;
  const int along =
      blocks_along(call.pass.n_sequences, columns, context.properties().multiProcessorCount * blocks_for(kPadded));
  launch_early(context, kernel, grid_of(call, along), StepColumns<T, kForm, kPadded, true>::kThreads,
               static_cast<size_t>(shared), call, first_kind, end_kind);
}

// Whether vectors of type T consist of 4-byte words, the least that can be copied asynchronously.
template <typename T>
bool has_words(const RecurrentCall& call) {
  constexpr int kElements = 4 / sizeof(T);
  const auto whole = [](int64_t n) { return n % kElements == 0; };
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 4 == 0; };
  return call.dv % 4 == 0 && whole(call.dk) && whole(call.q_stride) && whole(call.k_stride) && whole(call.v_stride) &&
         aligned(call.q) && aligned(call.k) && aligned(call.v);
}

template <typename T, Form kForm>
void launch_rows(CudaContext& context, const RecurrentCall& call, int first_kind, int end_kind) {
  if (!has_words<T>(call)) {
    return launch_early(context, walk_kernel<T, kForm, kMaxKeyDim>, grid_of(call, call.pass.n_sequences),
                        StepColumns<T, kForm, kMaxKeyDim, false>::kThreads, 0, call, first_kind, end_kind);
  }
  if (call.dk <= 64) return launch<T, kForm, 64>(context, call, first_kind, end_kind);
  if (call.dk <= 128) return launch<T, kForm, 128>(context, call, first_kind, end_kind);
  if (call.dk <= 256) return launch<T, kForm, 256>(context, call, first_kind, end_kind);
  launch<T, kForm, kMaxKeyDim>(context, call, first_kind, end_kind);
}

}  // namespace

void recurrent_steps(CudaContext& context, const RecurrentCall& call, DType type, int first_kind, int end_kind) {
  const auto has = [&](int kind) {
    return std::any_of(context.sequences().begin(), context.sequences().end(),
                       [&](const SequenceSpans& s) { return s.n[kind * 2] + s.n[kind * 2 + 1] > 0; });
  };
  while (first_kind < end_kind && !has(first_kind)) ++first_kind;
  while (first_kind < end_kind && !has(end_kind - 1)) --end_kind;
  if (first_kind == end_kind) return;
  with_type(type, [&](auto t) {
    using T = decltype(t);
    if (call.form == Form::delta) return launch_rows<T, Form::delta>(context, call, first_kind, end_kind);
    if (call.form == Form::scalar) return launch_rows<T, Form::scalar>(context, call, first_kind, end_kind);
    launch_rows<T, Form::channel>(context, call, first_kind, end_kind);
  });
}

}  // namespace hayfork::engine::cuda
