// The gated delta rule on CUDA: prefill rows by chunks where the shape allows, the others token by token.
#include "engine/kernels/recurrent.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

RecurrentCall call_of(const GatedDeltaParams& p) {
  RecurrentCall call{};
  call.form = Form::delta;
  call.n = p.n_v;
  call.n_q = p.n_q;
  call.n_k = p.n_k;
  call.n_v = p.n_v;
  call.n_out = p.n_out();
  call.dk = p.dk;
  call.dv = p.dv;
  call.beta_scale = p.negative_eigenvalues ? 2.f : 1.f;
  call.before = p.read_before_write;
  return call;
}

}  // namespace

int64_t gated_delta_state_bytes(const Context& context, const GatedDeltaParams& params) {
  RecurrentCall call = call_of(params);
  return lay_out_state(call, context.activation());
}

int64_t gated_delta_chunk_bytes(const Context& context, const GatedDeltaParams& params) {
  return recurrent_chunk_bytes(call_of(params), context.activation(), true);
}

void gated_delta(Context& base, const Pass& pass, Matrix o, Matrix q, Matrix k, Matrix v, Matrix a, Matrix b,
                 Vector a_log, Vector dt_bias, const GatedDeltaParams& params, StateView state, Matrix scratch) {
  if (pass.rows.empty()) return;
  CudaContext& context = of(base);
  RecurrentCall call = call_of(params);
  set_rows(call, context, o, q, k, v, state);
  call.a = a.data;
  call.b = b.data;
  call.a_stride = a.stride;
  call.b_stride = b.stride;
  call.a_log = a_log.data;
  call.dt_bias = dt_bias.data;
  run_recurrent(context, call, q.dtype, scratch);
}

}  // namespace hayfork::engine::cuda
