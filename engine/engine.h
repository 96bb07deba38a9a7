// The embedded engine: a checkpoint folder made into an Lm. Owns model, tokenizer, cache and scheduler.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/events.h"
#include "engine/expert_load.h"
#include "engine/lm.h"
#include "engine/measurement.h"

namespace hayfork::engine {

enum class Order { given, planned, reverse, shuffle };

struct EngineOptions {
  std::string device = "auto";    // auto, cpu, cuda:0
  std::string dtype = "auto";     // auto, f32, bf16
  std::string kv_dtype = "auto";  // auto: as the compute type
  int32_t threads = 0;            // 0: all this process may use
  int32_t batch_size = 0;         // sequences in flight; 0: planned from memory
  int32_t chunk = 0;              // rows of a pass; 0: default
  bool prefix_reuse = true;
  Order order = Order::planned;
  uint64_t order_seed = 0;  // for shuffle
  bool graphs = true;       // CUDA graphs
  bool allow_beyond_window = false;
  int64_t memory_limit_bytes = 0;   // for cache and scratch; 0: measured
  std::filesystem::path tokenizer;  // another folder or file; empty: the model's own
  std::vector<std::string> ignored_config_keys;
  bool weights_digest = true;          // compute weights_sha256 (cached by path, size, mtime, inode in `digest_cache`)
  std::filesystem::path digest_cache;  // empty: no cache
  EventSink events;
};

// Totals since the engine was opened (`probe --stats`).
struct EngineStats {
  int64_t rows_base = 0, rows_output = 0, rows_reused = 0, n_passes = 0;
  int64_t peak_bytes = 0;  // weights + cache + scratch
  int64_t weight_bytes = 0;
  int64_t cache_bytes = 0;  // keys, values and recurrent states at their most; on a CPU the part that was in use
  int64_t planned_bytes = 0;
  double busy = 0;  // share of wall time inside passes
  double prefill_ms = 0, decode_ms = 0;
};

class Engine : public Lm {
 public:
  // Throws: usage, not_found, corrupt, unsupported, resource, device.
  static std::unique_ptr<Engine> open(const std::filesystem::path& model, const EngineOptions& options);

  virtual EngineStats stats() const = 0;
  // How long such passes take. Throws: usage, resource.
  virtual Measurement measure(const MeasureCase& what) = 0;
  // One entry a layer with experts; empty for a model without.
  virtual std::vector<ExpertLoad> expert_load() const = 0;
  // Logits of every row (or the last) of one sequence: `sink` gets (position, V floats). For probes.
  virtual void logits(std::span<const int32_t> ids, bool all_rows,
                      const std::function<void(int32_t, const float*)>& sink) = 0;
  // The same of many sequences, batched as requests are: `sink` gets (sequence, position, V floats), in any order.
  virtual void logits_of(std::span<const std::vector<int32_t>> sequences, bool all_rows,
                         const std::function<void(size_t, int32_t, const float*)>& sink) = 0;
  // K and V of one layer after a prefill of `ids`: [T, Hkv, d] float32 each. For probes.
  virtual void kv(std::span<const int32_t> ids, int32_t layer, std::vector<float>& k, std::vector<float>& v) = 0;
};

}  // namespace hayfork::engine
