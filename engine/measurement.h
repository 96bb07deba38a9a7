// What `hayfork bench` asks an engine to time, and what it gets.
#pragma once

#include <cstdint>

namespace hayfork::engine {

struct MeasureCase {
  int32_t depth = 0;     // tokens already in the cache, not timed
  int32_t n_prompt = 0;  // tokens prefilled behind them; 0: none
  int32_t n_gen = 0;     // steps of decode after that
  int32_t batch = 1;     // sequences
};

struct Measurement {
  double prefill_ms = 0;                      // until the first new token of every sequence is on the host
  double decode_ms = 0;                       // of all n_gen steps, behind two that are recorded where steps are
  double busy = 0;                            // share of both in which the device worked on a pass
  int64_t planned_bytes = 0, peak_bytes = 0;  // weights, cache and scratch: before the run, and after it
};

}  // namespace hayfork::engine
