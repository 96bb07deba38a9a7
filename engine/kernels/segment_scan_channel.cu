// Segments of linear attention with a decay per channel.
#include "engine/kernels/segment_scan.cuh"

namespace hayfork::engine::cuda {

void channel_segments(CudaContext& context, const RecurrentCall& call, int sequences, int pieces, bool aligned,
                      bool answers) {
  if (answers) return launch_segments<Segment, Form::channel, true>(context, call, sequences, pieces, aligned);
  launch_segments<Segment, Form::channel, false>(context, call, sequences, pieces, aligned);
}

}  // namespace hayfork::engine::cuda
