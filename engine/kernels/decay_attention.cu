// Linear attention with decay on CUDA: prefill rows by chunks where the shape allows, the others token by token.
#include "engine/kernels/recurrent.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

RecurrentCall call_of(const DecayHeads& heads, bool per_channel) {
  RecurrentCall call{};
  call.form = per_channel ? Form::channel : Form::scalar;
  call.n = call.n_out = heads.n;
  call.n_q = heads.n_q;
  call.n_k = heads.n_k;
  call.n_v = heads.n_v;
  call.dk = heads.dk;
  call.dv = heads.dv;
  return call;
}

}  // namespace

int64_t decay_attention_state_bytes(const Context& context, const DecayHeads& heads, bool per_channel) {
  RecurrentCall call = call_of(heads, per_channel);
  return lay_out_state(call, context.activation());
}

int64_t decay_attention_chunk_bytes(const Context& context, const DecayHeads& heads, bool per_channel) {
  return recurrent_chunk_bytes(call_of(heads, per_channel), context.activation(), false);
}

void decay_attention(Context& base, const Pass& pass, Matrix o, Matrix q, Matrix k, Matrix v, const Decay& decay,
                     Matrix v_scale, Vector skip, const DecayHeads& heads, StateView state, Matrix scratch) {
  if (pass.rows.empty()) return;
  CudaContext& context = of(base);
  RecurrentCall call = call_of(heads, decay.per_channel.data != nullptr);
  set_rows(call, context, o, q, k, v, state);
  call.per_head = decay.per_head.data;
  for (const Matrix& m : {decay.per_token, decay.per_channel, v_scale}) {
    HAY_CHECK(m.data == nullptr || m.dtype == DType::f32);
  }
  HAY_CHECK(v_scale.data == nullptr || decay.per_channel.data == nullptr);
  call.per_token = static_cast<const float*>(decay.per_token.data);
  call.token_stride = decay.per_token.stride;
  call.per_channel = static_cast<const float*>(decay.per_channel.data);
  call.channel_stride = decay.per_channel.stride;
  call.v_scale = static_cast<const float*>(v_scale.data);
  call.scale_stride = v_scale.stride;
  call.skip = skip.data;
  call.skip_per_channel = skip.size != heads.n;
  run_recurrent(context, call, q.dtype, scratch);
}

}  // namespace hayfork::engine::cuda
