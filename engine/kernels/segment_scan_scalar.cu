// Segments of linear attention with a decay per head or per token and head.
#include "engine/kernels/segment_scan.cuh"

namespace hayfork::engine::cuda {

void scalar_segments(CudaContext& context, const RecurrentCall& call, int sequences, int pieces, bool aligned,
                     bool answers) {
  if (answers) return launch_segments<Segment, Form::scalar, true>(context, call, sequences, pieces, aligned);
  launch_segments<Segment, Form::scalar, false>(context, call, sequences, pieces, aligned);
}

}  // namespace hayfork::engine::cuda
