#include "runs/store.h"

#include <fmt/format.h>

#include "runs/store_impl.h"

namespace hayfork::runs {

Store::Impl::Session Store::Impl::reading() {
  HAY_CHECK(db != nullptr, "the store is closed");
  writer->drain();
  return {std::unique_lock(db_mutex), *db};
}

Store::Impl::Session Store::Impl::writing() {
  HAY_CHECK(db != nullptr, "the store is closed");
  if (read_only) {
    throw Error(ErrorCode::resource, ErrorSubject::database, "the results database was opened to be read only",
                {.where = path.string()});
  }
  writer->flush();
  return {std::unique_lock(db_mutex), *db};
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

Store Store::open(const std::filesystem::path& path, OpenMode mode, EventSink events, StoreOptions options) {
  return Store(std::make_unique<Impl>(path, mode, std::move(events), std::move(options)));
}

Store::~Store() {
  if (!impl_ || !impl_->db) return;
  try {
    close();
  } catch (const Error& error) {  // a destructor has nobody to throw to
    if (impl_->events) impl_->events({Event::Level::error, "HAY-E001", error.what(), ""});
  }
}

void Store::close() {
  if (!impl_->db) return;
  impl_->writer->drain();
  std::exception_ptr failure;
  try {
    impl_->writer->rethrow();
  } catch (const Error&) {
    failure = std::current_exception();
  }
  impl_->writer.reset();
  if (!failure && !impl_->read_only) {
    // The WAL is folded into the file so that a copy of it is complete. While another process reads, it stays beside
    // it.
    sqlite3_busy_timeout(impl_->db->handle(), 200);
    sqlite3_wal_checkpoint_v2(impl_->db->handle(), "main", SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  }
  impl_->db.reset();
  if (failure) std::rethrow_exception(failure);
}

const std::filesystem::path& Store::path() const {
  return impl_->path;
}

std::string Store::journal_mode() const {
  return impl_->reading()->value<std::string>("PRAGMA journal_mode");
}

void Store::add_sample(SampleRow sample) {
  HAY_CHECK(impl_->db != nullptr && !impl_->read_only, "add_sample on a closed or read-only store");
  HAY_CHECK(sample.run_task > 0 && !sample.doc_id.empty(), "a sample needs its run_task and doc_id");
  impl_->writer->add(std::move(sample));
}

void Store::flush() {
  impl_->writer->flush();
}

}  // namespace hayfork::runs
