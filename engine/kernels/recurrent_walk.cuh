// The recurrences of one sequence, row after row, whatever its rows are.
#pragma once

#include "engine/kernels/recurrent_columns.cuh"

namespace hayfork::engine::cuda {

// Everything that can be asked of a sequence: several rows, output rows apart from their base rows, open rows of the
// chunk form. It reads what it needs itself.
template <typename T, Form kForm, int kPadded, bool kFour>
class Walk {
  using Columns = StepColumns<T, kForm, kPadded, kFour>;

 public:
  using Inputs = typename Columns::Inputs;

  __device__ Walk(const RecurrentCall& call, const SequenceSpans& sequence, Inputs& in, float* sums)
      : call_(call), sequence_(sequence), slot_(sequence.slot), in_(in), columns_(call, sums) {}

  __device__ void run(int first_kind, int end_kind) {
    if (slot_ < 0) return;
    for (int kind = first_kind; kind < end_kind; ++kind) {
      if (sequence_.n[kind * 2] + sequence_.n[kind * 2 + 1] > 0) walk(kind);
      __syncthreads();  // the next kind's walk, or whoever comes next, reads what was stored and reuses the inputs
    }
  }

 private:
  __device__ void walk(int kind) {
    const int n_base = sequence_.n[kind * 2], n_output = sequence_.n[kind * 2 + 1];
    const int64_t first_base = sequence_.first[kind * 2], first_output = sequence_.first[kind * 2 + 1];
    const Row* base = call_.pass.rows + first_base;
    const Row* output = call_.pass.rows + first_output;
    const bool reads_before = kForm == Form::delta && call_.before;
    const int position = n_base > 0 ? base[0].pos : output[0].pos + 1;  // of the next base row
    const Mark mark = mark_at(columns_.header_of(slot_), position);
    // An output row whose base row was the last one of an earlier pass.
    const bool is_late = n_output > 0 && output[0].pos < position;
    if (reads_before && is_late) {
      columns_.load_state(columns_.before_of(slot_));
      columns_.ask_all(in_, first_output, 0, false);
    }
    if (position == 0) {
      columns_.clear();
    } else {
      columns_.load_state(columns_.matrix_of(slot_));
    }
    if (kForm != Form::delta && mark.has_local) columns_.add_local(slot_);
    for (int p = mark.stands; p < position; ++p) fold(p % static_cast<int>(kChunkRows));
    if (!reads_before && is_late) columns_.ask_all(in_, first_output, 0, false);
    int next = is_late ? 1 : 0;
    for (int i = 0; i < n_base; ++i) {
      const bool is_read = next < n_output && output[next].pos == position + i;
      const int64_t reader = first_output + next;
      if (is_read) ++next;
      if (reads_before) {
        if (is_read) columns_.ask_all(in_, reader, 0, false);
        if (i + 1 == n_base) columns_.store_state(columns_.before_of(slot_));
      }
      step(first_base + i);
      if (is_read && !reads_before) columns_.ask_all(in_, reader, 0, false);
    }
    if (n_base == 0 && mark.stands == position) return;
    columns_.store_state(columns_.matrix_of(slot_));
    if (threadIdx.x == 0) *columns_.header_of(slot_) = position + n_base;
  }

  // An open row of the chunk form into the state.
  __device__ void fold(int index) {
    const int64_t key = static_cast<int64_t>(index) * call_.n_k + columns_.key_head();
    const int64_t value = static_cast<int64_t>(index) * call_.n_v + columns_.value_head();
    const float* gates = open_rows<float>(call_, slot_, call_.open_gates) + (index * call_.n + columns_.state()) * 2;
    __syncthreads();
    columns_.fill(in_.key, open_rows<T>(call_, slot_, call_.open_k) + key * call_.dk);
    columns_.fill_value(in_, open_rows<T>(call_, slot_, call_.open_v) + value * call_.dv);
    if constexpr (kForm == Form::channel)
      columns_.fill_decays(in_, open_rows<float>(call_, slot_, call_.open_logs) + key * call_.dk);
    if (threadIdx.x == 0) in_.gates = {expf(gates[0]), gates[1]};
    __syncthreads();
    columns_.update(in_);
  }
  __device__ void step(int64_t row) {
    __syncthreads();
    columns_.fill(in_.key, columns_.key_of(row));
    columns_.fill(in_.query, columns_.query_of(row, columns_.first_reader()));
    columns_.fill_value(in_, columns_.value_of(row));
    if constexpr (kForm == Form::channel) columns_.fill_decays(in_, columns_.logs_of(row));
    if (threadIdx.x == 0) {
      const float2 gates = gates_of<T>(call_, row, columns_.state());
      in_.gates = {expf(gates.x), gates.y};
    }
    __syncthreads();
    columns_.update(in_);
    columns_.answer(in_, row, columns_.first_reader(), true);
    columns_.ask_all(in_, row, 1, true);
  }

  const RecurrentCall& call_;
  const SequenceSpans& sequence_;
  const int slot_;
  Inputs& in_;
  Columns columns_;
};

template <typename T, Form kForm, int kPadded, bool kFour>
__device__ __noinline__ void walk_apart(const RecurrentCall& call, int s,
                                        typename Walk<T, kForm, kPadded, kFour>::Inputs& in, float* sums,
                                        int first_kind, int end_kind) {
  const SequenceSpans sequence = call.pass.sequences[s];
  Walk<T, kForm, kPadded, kFour>(call, sequence, in, sums).run(first_kind, end_kind);
}

}  // namespace hayfork::engine::cuda
