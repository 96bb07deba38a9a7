// From what a user writes (auto, cpu, cuda:0, f32, bf16) to a context, types and the identity of their arithmetic.
#pragma once

#include <memory>
#include <string>

#include "engine/context.h"
#include "engine/engine.h"
#include "engine/tensor.h"

namespace hayfork::engine {

struct Resolved {
  std::unique_ptr<Context> context;
  std::string device;       // "cpu", "cuda:0"
  DType kv_dtype;           //
  std::string numerics_id;  // equal ids, equal bits
};

// auto: the first usable accelerator, else the CPU; bf16 on accelerators and on processors that multiply it, else f32;
// K/V in the type of the weights. Also sets the calling thread's number of threads.
// Throws: usage for a name it doesn't know, device.
Resolved resolve(const EngineOptions& options);

}  // namespace hayfork::engine
