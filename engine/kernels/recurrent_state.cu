// One call of a recurrent op: its rows, its state's layout, and which kernels it goes through.
#include "engine/kernels/recurrent.cuh"

namespace hayfork::engine::cuda {

void set_rows(RecurrentCall& call, const CudaContext& context, Matrix o, Matrix q, Matrix k, Matrix v,
              StateView state) {
  call.o = o.data;
  call.q = q.data;
  call.k = k.data;
  call.v = v.data;
  call.o_stride = o.stride;
  call.q_stride = q.stride;
  call.k_stride = k.stride;
  call.v_stride = v.stride;
  call.state = state.base + state.offset;
  call.state_stride = state.stride;
  call.readers = call.n_out / call.n;
  call.pass = context.pass();
}

int64_t lay_out_state(RecurrentCall& call, DType type) {
  if (call.dk > kMaxKeyDim || call.dv > kMaxValueDim) {
    throw Error(ErrorCode::unsupported, ErrorSubject::model, "a recurrent head is too large for the CUDA backend",
                {.why = std::to_string(call.dk) + " x " + std::to_string(call.dv) + ", at most " +
                        std::to_string(kMaxKeyDim) + " x " + std::to_string(kMaxValueDim),
                 .next = "--device cpu"});
  }
  const bool chunks = runs_by_chunks(type, call.form, call.dk, call.dv);
  const int64_t matrix = (static_cast<int64_t>(call.dk) * call.dv + kHeaderFloats - 1) / kHeaderFloats * kHeaderFloats;
  call.before_offset = (kHeaderFloats + matrix) * 4;
  call.head_bytes = (kHeaderFloats + (call.before ? 2 : 1) * matrix) * 4;
  if (chunks && call.form != Form::delta) {
    call.local_offset = call.head_bytes;
    call.sums_offset = call.local_offset + matrix * 4;
    call.head_bytes = call.sums_offset + (call.form == Form::channel ? state_bytes(call.dk) : kStateAlign);
  }
  int64_t at = call.n * call.head_bytes;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = at;
    at += (bytes + kStateAlign - 1) / kStateAlign * kStateAlign;
    return begin;
  };
  if (!chunks) return at;
  call.open_k = take(kChunkRows * call.n_k * call.dk * size_of(type));
  call.open_v = take(kChunkRows * call.n_v * call.dv * size_of(type));
  call.open_gates = take(kChunkRows * call.n * 2 * 4);
  if (call.form == Form::channel) call.open_logs = take(kChunkRows * call.n_k * call.dk * 4);
  return at;
}

void run_recurrent(CudaContext& context, RecurrentCall call, DType type, Matrix scratch) {
  const bool chunks = runs_by_chunks(type, call.form, call.dk, call.dv);
  lay_out_state(call, type);
  if (chunks) recurrent_chunks(context, call, scratch);
  recurrent_steps(context, call, type, chunks ? 1 : 0, 2);
}

}  // namespace hayfork::engine::cuda
