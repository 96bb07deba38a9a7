// Passes on a device with a queue: put on its stream without waiting, a few in flight, their results fetched to the
// host and read one pass later. Passes of decode rows alone are filled up to one of a few shapes and, from the second
// of a shape on, replayed as a recorded graph. Shapes choose graphs and buffers, never arithmetic: every
// result has the bits that Model::forward and head give.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/model.h"

namespace hayfork::engine {

struct PassResults {
  std::vector<int32_t> nonfinite_layer;  // as ForwardResult's
  std::vector<HeadResult> heads;         // one a query, in order
  double ms = 0;                         // on the device
};

class PassRunner {
 public:
  static constexpr int kInFlight = 2;
  static constexpr int32_t kSlots = 1 << 16;  // of a pass whose arg max the next one may use as tokens

  // Both are borrowed. Requires: context.queues().
  PassRunner(Model& model, Context& context, bool graphs);
  ~PassRunner();  // waits for the device

  // Queues a pass. Requires: fewer than kInFlight are pending; one query a slot, in slot order, without logits. The
  // sequences' blocks may be given back at once: later passes come after this one. Throws: resource (then nothing of it
  // counts), device.
  void submit(const Pass& pass, Cache& cache, std::span<const HeadQuery> queries);
  // The results of the oldest pass that is pending; waits for it.
  PassResults collect();
  int pending() const { return pending_; }
  // Waits, and forgets what is pending. Throws nothing.
  void drop();

 private:
  struct Shape {
    int32_t n_seqs = 0, n_blocks = 0;
    auto operator<=>(const Shape&) const = default;
  };
  struct Graph {
    bool seen = false, refused = false;
    std::unique_ptr<Recording> recording;
    QueuedPass out;
  };
  struct Flight {
    std::unique_ptr<Buffer> host;
    std::unique_ptr<Fence> begin, end;
    std::vector<int32_t> place, wants;  // by row of the pass: where its mark is; Row::want
    std::vector<int32_t> n_targets;     // by slot
    size_t n_marks = 0, n_last = 0;
  };
  bool fits_graph(const Pass& pass, std::span<const HeadQuery> queries) const;
  QueuedPass run_shape(const Pass& pass, Cache& cache);
  void pad(const Pass& pass, Shape shape);
  void fetch(Flight& flight, const QueuedPass& queued);

  Model& model_;
  Context& context_;
  const bool graphs_;
  const int32_t last_layer_;
  uint64_t cache_id_ = 0;
  std::map<Shape, Graph> shapes_;
  std::vector<Row> rows_;  // of the padded pass
  std::vector<SeqView> seqs_;
  std::array<Flight, kInFlight> flights_;
  int first_ = 0, pending_ = 0;
};

}  // namespace hayfork::engine
