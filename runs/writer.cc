#include "runs/writer.h"

#include <csignal>
#include <map>

#include <fmt/format.h>

#include "base/units.h"

namespace hayfork::runs {
namespace {

// Then add() waits: memory stays bounded when the disk is slow. One transaction takes all the batches that are
// queued, so that pages of indexes, which rows hit at random, are written once for many rows when rows come fast.
constexpr size_t kMaxQueued = 2048;

struct Counts {
  int64_t done = 0, failed = 0, truncated = 0, cut = 0;
  bool has_failed = true;  // the task may hold failed rows
};

void count(Counts& counts, bool ok, bool failed, bool truncated, bool cut, int64_t by) {
  counts.done += ok ? by : 0;
  counts.failed += failed ? by : 0;
  counts.truncated += truncated ? by : 0;
  counts.cut += cut ? by : 0;
}

// A failed row makes room for the redone one; what depends on it goes with it.
void drop_failed(Connection& db, const SampleRow& row, Counts& counts) {
  Statement s = db.statement(
      "DELETE FROM samples WHERE run_task = ? AND doc_id = ? AND repeat = ? AND status = 'failed' "
      "RETURNING truncated, coalesce(finish = 'length', 0)");
  s.bind_all(row.run_task, row.doc_id, row.repeat);
  while (s.step()) count(counts, false, true, s.get<bool>(0), s.get<bool>(1), -1);
}

void insert_sample(Connection& db, const SampleRow& row, Counts& counts) {
  if (counts.has_failed) drop_failed(db, row, counts);
  const int64_t id = insert_row(db, row);
  for (SampleMetricRow metric : row.metrics) {
    metric.sample = id;
    insert_row(db, metric);
  }
  for (SampleChoiceRow choice : row.choices) {
    choice.sample = id;
    insert_row(db, choice);
  }
  for (ArtefactRow artefact : row.artefacts) {
    artefact.sample = id;
    complete(artefact);
    insert_row(db, artefact);
  }
  count(counts, row.status == "ok", row.status == "failed", row.truncated, row.finish == "length", 1);
  counts.has_failed = counts.has_failed || row.status == "failed";
}

Counts fresh_counts(Connection& db, int64_t run_task) {
  return {.has_failed = db.value("SELECT n_failed FROM run_tasks WHERE id = ?", run_task) > 0};
}

}  // namespace

void complete(ArtefactRow& artefact) {
  if (!artefact.body) return;
  if (artefact.sha256.empty()) artefact.sha256 = sha256_hex(artefact.body->bytes);
  if (artefact.n_bytes == 0) artefact.n_bytes = static_cast<int64_t>(artefact.body->bytes.size());
}

void write_batch(Connection& db, std::span<const SampleRow> samples) {
  std::map<int64_t, Counts> tasks;
  std::map<int64_t, int64_t> attempts;
  Transaction transaction(db);
  for (const SampleRow& row : samples) {
    const auto [task, fresh] = tasks.try_emplace(row.run_task);
    if (fresh) task->second = fresh_counts(db, row.run_task);
    insert_sample(db, row, task->second);
    if (row.attempt) ++attempts[*row.attempt];
  }
  for (const auto& [id, c] : tasks) {
    db.run(
        "UPDATE run_tasks SET n_done = n_done + ?, n_failed = n_failed + ?, n_truncated = n_truncated + ?, "
        "n_cut = n_cut + ? WHERE id = ?",
        c.done, c.failed, c.truncated, c.cut, id);
  }
  for (const auto& [id, n] : attempts) db.run("UPDATE run_attempts SET n_written = n_written + ? WHERE id = ?", n, id);
  transaction.commit();
}

Writer::Writer(Connection& db, std::mutex& db_mutex, const StoreOptions& options)
    : db_(db),
      db_mutex_(db_mutex),
      commit_samples_(static_cast<size_t>(std::max(1, options.commit_samples))),
      commit_after_(options.commit_seconds),
      beat_after_(options.beat_seconds) {}

Writer::~Writer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Writer::start() {
  if (thread_.joinable()) return;
  last_beat_ = Clock::now();
  // Signals are for the program's other threads: their handlers should not run in the middle of a commit.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ = std::thread([this] { loop(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Writer::add(SampleRow sample) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return failure_ || queue_.size() < kMaxQueued; });
  if (failure_) std::rethrow_exception(failure_);
  start();
  if (queue_.empty()) oldest_ = Clock::now();
  queue_.push_back(std::move(sample));
  ++n_added_;
  if (queue_.size() >= commit_samples_ || queue_.size() == 1) work_.notify_all();
}

void Writer::drain() {
  std::unique_lock lock(mutex_);
  const int64_t until = n_added_;
  ++n_flushing_;
  work_.notify_all();
  done_.wait(lock, [&] { return n_finished_ >= until; });
  --n_flushing_;
}

void Writer::rethrow() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void Writer::flush() {
  drain();
  rethrow();
}

void Writer::watch(int64_t run, int64_t attempt) {
  const std::lock_guard lock(mutex_);
  watched_.emplace_back(run, attempt);
  start();
  work_.notify_all();
}

void Writer::unwatch(int64_t attempt) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const auto& pair) { return pair.second == attempt; });
}

bool Writer::commit_due() const {
  if (queue_.empty()) return false;
  return stop_ || n_flushing_ > 0 || queue_.size() >= commit_samples_ || Clock::now() - oldest_ >= commit_after_;
}

Writer::Clock::time_point Writer::next_wake() const {
  Clock::time_point wake = Clock::now() + std::chrono::hours(1);
  const auto sooner = [&](Clock::time_point from, std::chrono::duration<double> after) {
    wake = std::min(wake, from + std::chrono::duration_cast<Clock::duration>(after));
  };
  if (!queue_.empty()) sooner(oldest_, commit_after_);
  if (!watched_.empty() && !failure_) sooner(last_beat_, beat_after_);
  return wake;
}

void Writer::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (commit_due())
      write(lock);
    else if (stop_)
      return;
    else if (!watched_.empty() && !failure_ && Clock::now() - last_beat_ >= beat_after_)
      beat(lock);
    else
      work_.wait_until(lock, next_wake());
  }
}

// The thread's boundary: whatever work throws is kept for the next caller, and what is queued is given up.
template <typename Work>
void Writer::guarded(std::unique_lock<std::mutex>& lock, Work&& work) {
  lock.unlock();
  std::exception_ptr failure;
  try {
    const std::lock_guard db_lock(db_mutex_);
    work();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  lock.lock();
  if (failure) {
    failure_ = failure;
    n_finished_ += static_cast<int64_t>(queue_.size());
    queue_.clear();
  }
}

void Writer::write(std::unique_lock<std::mutex>& lock) {
  const size_t queued = queue_.size(), n = queued < commit_samples_ ? queued : queued - queued % commit_samples_;
  const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(n);
  std::vector<SampleRow> batch(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
  queue_.erase(queue_.begin(), end);
  done_.notify_all();  // add() may go on while this batch is written
  guarded(lock, [&] { write_batch(db_, batch); });
  n_finished_ += static_cast<int64_t>(n);
  oldest_ = Clock::now();
  done_.notify_all();
}

void Writer::beat(std::unique_lock<std::mutex>& lock) {
  const auto watched = watched_;
  guarded(lock, [&] {
    Transaction transaction(db_);
    for (const auto& [run, attempt] : watched) beat_rows(db_, run, attempt);
    transaction.commit();
  });
  last_beat_ = Clock::now();
  done_.notify_all();
}

void beat_rows(Connection& db, int64_t run, std::optional<int64_t> attempt) {
  const std::string now = utc_now();
  db.run("UPDATE runs SET last_beat = ? WHERE id = ?", now, run);
  if (attempt) db.run("UPDATE run_attempts SET last_beat = ? WHERE id = ?", now, *attempt);
}

}  // namespace hayfork::runs
