// Memory of the CPU's ops: scratch of one op (kept by the context, overwritten by the next op), and weights.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/context.h"

namespace hayfork::engine::cpu {

// 64-byte aligned, not cleared. Requires: a CPU context. Throws: resource.
void* scratch(Context& context, size_t bytes);

// For what will be written whole and streamed often (weights): a part of a slab of huge pages where the system grants
// them, since most weights are smaller than a huge page and every step reads all of them. 64-byte aligned, zero. The
// slab lives as long as any of its parts. Requires: a CPU context. Throws: resource.
std::unique_ptr<Buffer> make_streamed_buffer(Context& context, size_t bytes);

}  // namespace hayfork::engine::cpu
