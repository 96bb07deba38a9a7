// How fast a model ran on this machine, kept between runs so that --dry-run can say how long a plan takes. A guess for
// people: never part of a result.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "engine/engine.h"
#include "tasks/run_task.h"

namespace hayfork::cli {

struct Speed {
  double prefill_rows_per_s = 0, decode_rows_per_s = 0;
  std::string when;
};

// Sums what samples took, by length.
class SpeedLog {
 public:
  void add(const tasks::SampleResult& result);
  void save(const engine::Engine& engine) const;  // into the cache folder; a cache that cannot be written is no fault

 private:
  struct Sum {
    double rows = 0, prefill_ms = 0, new_tokens = 0, decode_ms = 0;
  };
  std::map<int64_t, Sum> by_length_;
};

// The speed at the length nearest to this one, if the model was run here.
std::optional<Speed> known_speed(const engine::ModelInfo& info, int64_t length);

}  // namespace hayfork::cli
