// Scratch memory of one CPU op: kept by the context, overwritten by the next op.
#pragma once

#include <cstddef>

#include "engine/context.h"

namespace hayfork::engine::cpu {

// 64-byte aligned, not cleared. Requires: a CPU context. Throws: resource.
void* scratch(Context& context, size_t bytes);

// For a buffer that will be written whole and streamed often: fewer TLB misses. `data` starts a buffer.
void advise_huge_pages(void* data, size_t bytes);

}  // namespace hayfork::engine::cpu
