// The thread that writes samples: a queue, one transaction per batch, heartbeats between. For runs/ alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runs/sqlite.h"
#include "runs/store.h"

namespace hayfork::runs {

class Writer {
 public:
  // Both outlive the writer; the thread holds `db_mutex` while it uses the connection. The thread starts with the first
  // sample or watch.
  Writer(Connection& db, std::mutex& db_mutex, const StoreOptions& options);
  ~Writer();  // writes what is queued

  // Queues; waits while the queue is very long. Throws: what the thread met.
  void add(SampleRow sample);
  // Returns when all that was queued before is committed or lost; throws in the second case.
  void flush();
  void drain();                              // the same without throwing
  void rethrow();                            // throws what the thread met, if it did
  void watch(int64_t run, int64_t attempt);  // refresh their last_beat
  void unwatch(int64_t attempt);

 private:
  using Clock = std::chrono::steady_clock;
  void start();  // Requires: mutex_ held
  void loop();
  void write(std::unique_lock<std::mutex>& lock);
  void beat(std::unique_lock<std::mutex>& lock);
  Clock::time_point next_wake() const;
  bool commit_due() const;
  template <typename Work>
  void guarded(std::unique_lock<std::mutex>& lock, Work&& work);

  Connection& db_;
  std::mutex& db_mutex_;
  const size_t commit_samples_;
  const std::chrono::duration<double> commit_after_, beat_after_;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<SampleRow> queue_;
  Clock::time_point oldest_, last_beat_;
  std::vector<std::pair<int64_t, int64_t>> watched_;  // run, attempt
  int64_t n_added_ = 0, n_finished_ = 0;              // finished: committed or lost
  int n_flushing_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

// One transaction: the rows with their metrics, choices, artefacts and texts, failed rows of the same document
// replaced, and the counters of tasks and attempts.
void write_batch(Connection& db, std::span<const SampleRow> samples);
void complete(ArtefactRow& artefact);  // digest and size of its body
void beat_rows(Connection& db, int64_t run, std::optional<int64_t> attempt);

}  // namespace hayfork::runs
