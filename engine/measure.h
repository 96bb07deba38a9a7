// How fast a model computes: made-up token ids, prefilled in chunks and continued greedily, timed on the host's clock
// with the device idle before and after. For `hayfork bench`.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/context.h"
#include "engine/measurement.h"
#include "engine/model.h"
#include "engine/pass_runner.h"

namespace hayfork::engine {

struct MemoryPlan;

class Measurer {
 public:
  // Borrowed. `chunk`: rows of a pass, 0: as a run would choose.
  Measurer(Model& model, Context& context, DType kv_dtype, int32_t chunk, bool graphs);
  ~Measurer();
  // Throws: usage (no tokens), resource.
  Measurement run(const MeasureCase& what);

 private:
  struct Sequences;
  void pass(Sequences& sequences, int32_t n, RowKind kind, bool want);
  void check_fits(const MeasureCase& what, const MemoryPlan& plan, int32_t step) const;
  void take(Sequences& sequences, const std::vector<HeadResult>& heads);
  void settle(Sequences& sequences);

  Model& model_;
  Context& context_;
  DType kv_dtype_;
  int32_t chunk_;
  std::unique_ptr<PassRunner> runner_;  // null where passes are not queued
  double device_ms_ = 0;
};

}  // namespace hayfork::engine
