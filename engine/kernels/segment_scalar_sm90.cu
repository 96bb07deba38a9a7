// Segments of linear attention with a decay per head or per token and head, on Hopper.
#include "engine/kernels/segment_sm90.cuh"

namespace hayfork::engine::cuda {

void scalar_segments_sm90(CudaContext& context, const RecurrentCall& call, int sequences, int pieces, bool aligned,
                          bool answers) {
  if (answers) return launch_segments<sm90::Segment, Form::scalar, true>(context, call, sequences, pieces, aligned);
  launch_segments<sm90::Segment, Form::scalar, false>(context, call, sequences, pieces, aligned);
}

}  // namespace hayfork::engine::cuda
