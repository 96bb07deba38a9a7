// Opening the file: every way it can be wrong gets its own error, and nothing is written to a file that is not ours.
#include <fcntl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "runs/store_impl.h"

namespace hayfork::runs {
namespace {

namespace fs = std::filesystem;

int64_t statfs_magic(const fs::path& path) {
  struct statfs info {};
  return statfs(path.c_str(), &info) == 0 ? static_cast<int64_t>(static_cast<uint32_t>(info.f_type)) : 0;
}

// "file:" URIs have ? # % as marks.
std::string uri_of(const fs::path& path, const std::string& parameters) {
  std::string uri = "file:";
  for (const char c : fs::absolute(path).string()) {
    if (c == '?' || c == '#' || c == '%')
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    else
      uri += c;
  }
  return uri + parameters;
}

[[noreturn]] void refuse(ErrorCode code, const fs::path& path, const std::string& why, const std::string& next) {
  throw Error(code, ErrorSubject::database, "the results database cannot be opened",
              {.where = path.string(), .why = why, .next = next});
}

void check_path(const fs::path& path, OpenMode mode) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error && status.type() != fs::file_type::not_found) {
    refuse(ErrorCode::not_found, path, error.message(), "check the path and its permissions");
  }
  if (fs::is_directory(status)) {
    refuse(ErrorCode::not_found, path, "it is a folder",
           fmt::format("name a file: --db {}", (path / "runs.db").string()));
  }
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status))
      refuse(ErrorCode::not_found, path, "it is not an ordinary file", "name another with --db");
    // SQLite takes a file of less than a page for an empty one and writes over it.
    constexpr uintmax_t kSmallestPage = 512;
    const uintmax_t size = fs::file_size(path, error);
    if (!error && size > 0 && size < kSmallestPage) {
      refuse(ErrorCode::corrupt, path, fmt::format("it has {} bytes and is no SQLite database", size),
             "name another with --db; this one was left as it is");
    }
    return;
  }
  if (mode == OpenMode::read_only) {
    refuse(ErrorCode::not_found, path, "no such file", "hayfork run makes it; --db or HAYFORK_DB names another");
  }
  const fs::path folder = fs::absolute(path).parent_path();
  if (!fs::is_directory(folder, error)) {
    refuse(ErrorCode::not_found, path, "its folder does not exist", fmt::format("mkdir -p {}", folder.string()));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse(ErrorCode::not_found, path, fmt::format("its folder cannot be written: {}", std::strerror(errno)),
           "check the folder's permissions, or name a file elsewhere with --db");
  }
}

// Whether the folder's file system refuses locks: an NFS mount whose server has no lock daemon. SQLite would take the
// refusal for another process's lock and wait for its end. A file beside the database is asked: closing the database's
// own would let go of the locks that this process has on it.
bool refuses_locks(const fs::path& path) {
  const std::string name = path.string() + fmt::format(".lock{}", getpid());
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  ::unlink(name.c_str());
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  const bool refused = ::fcntl(fd, F_SETLK, &lock) != 0 && (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP);
  ::close(fd);
  return refused;
}

void check_locks(const fs::path& path, int64_t magic) {
  if (!refuses_locks(path)) return;
  const std::string network = is_network_file_system(magic) ? fmt::format("network file system ({:#x})", magic) : "";
  refuse(ErrorCode::resource, path, fmt::format("its {} gives no locks", network.empty() ? "file system" : network),
         "name a file on a local disk with --db, or have the file system mounted with locks");
}

// Pages kept in memory, KiB at most (SQLite's own 2 MB read pages of large files again and again). A writer needs those
// of the indexes that its rows hit at random; it stands beside a model, whose memory is bounded.
constexpr int kReadCacheKib = 64 << 10, kWriteCacheKib = 16 << 10;
// Pages in the write-ahead log before they are folded into the file, 128 MB: a page that many batches change is then
// written and flushed once.
constexpr int kCheckpointPages = 32768;

void set_cache(Connection& db, int kib) {
  db.exec(fmt::format("PRAGMA cache_size = -{}", kib));
}  // reads the file

// Before anything reads the file.
void set_up(Connection& db, const StoreOptions& options) {
  sqlite3_busy_timeout(db.handle(), options.busy_timeout_ms);
  db.exec("PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON");
  if (options.max_pages > 0) db.exec(fmt::format("PRAGMA max_page_count = {}", options.max_pages));
}

// A connection that may write. `alone`: no other process uses the file meanwhile, and the index that WAL keeps in
// memory need not be shared.
std::unique_ptr<Connection> connect(const fs::path& path, const StoreOptions& options, bool alone) {
  auto db = std::make_unique<Connection>(uri_of(path, ""), path.string(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  set_up(*db, options);
  if (alone) db->exec("PRAGMA locking_mode = EXCLUSIVE");  // before it reads: later has no effect on an open WAL
  return db;
}

bool lacks_shared_memory(Connection& db) {
  return is_shared_memory_fault(
      sqlite3_exec(db.handle(), "SELECT count(*) FROM sqlite_schema", nullptr, nullptr, nullptr));
}

// Turns WAL on; returns the journal's mode. The change needs the file for itself for a moment, and SQLite answers
// "busy" at once, without its busy handler, where waiting could be a deadlock (two processes that create one database):
// asked again for as long as any other lock is waited for.
std::string turn_wal_on(Connection& db, const StoreOptions& options) {
  constexpr const char* kSql = "PRAGMA journal_mode = WAL";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(options.busy_timeout_ms);
  while (sqlite3_exec(db.handle(), kSql, nullptr, nullptr, nullptr) == SQLITE_BUSY &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return db.value<std::string>(kSql);  // no change where it is WAL; an error is thrown here
}

void set_journal(std::unique_ptr<Connection>& db, const fs::path& path, const EventSink& events,
                 const StoreOptions& options, int64_t magic, bool alone) {
  const bool network = is_network_file_system(magic);
  std::string mode;
  if (!network) mode = turn_wal_on(*db, options);
  if (mode == "wal" && !alone && !lacks_shared_memory(*db)) {
    db->exec(fmt::format("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {}", kCheckpointPages));
    return;
  }
  if (mode == "wal" && !alone) {
    db.reset();  // its locks would stand in the way
    db = connect(path, options, true);
  }
  mode = db->value<std::string>("PRAGMA journal_mode = DELETE");
  db->exec("PRAGMA locking_mode = NORMAL; PRAGMA synchronous = FULL");
  // NORMAL synchronous may lose the file in a power cut here (sqlite.org/pragma.html).
  if (events) {
    events({Event::Level::warn, "HAY-W003",
            fmt::format(
                "{} is on {}: WAL is unsafe there, using a rollback journal", path.string(),
                network ? fmt::format("a network file system ({:#x})", magic) : "a file system without shared memory"),
            ""});
  }
}

std::unique_ptr<Connection> open_to_read(const fs::path& path, const StoreOptions& options, int64_t magic) {
  check_locks(path, magic);
  auto db = std::make_unique<Connection>(read_uri(path), path.string(), SQLITE_OPEN_READONLY);
  set_up(*db, options);
  check_version(*db, migrations(), true);
  set_cache(*db, kReadCacheKib);
  db->exec("PRAGMA query_only = ON");
  return db;
}

}  // namespace

std::string read_uri(const fs::path& path) {
  std::error_code error;
  const fs::path wal = path.string() + "-wal";
  const bool still = !fs::exists(wal, error) || fs::file_size(wal, error) == 0;
  const bool locked_folder = access(fs::absolute(path).parent_path().c_str(), W_OK) != 0;
  return uri_of(path, still && locked_folder ? "?immutable=1" : "?mode=ro");
}

bool is_network_file_system(int64_t magic) {
  switch (magic) {
    case 0x6969:      // NFS
    case 0x517B:      // SMB
    case 0xFF534D42:  // CIFS
    case 0xFE534D42:  // SMB2
    case 0x01021997:  // 9P
    case 0x65735546:  // FUSE: sshfs and many cluster file systems
    case 0x5346414F:  // AFS
    case 0x6B414653:  // kAFS
    case 0x73757245:  // Coda
    case 0x564C:      // NCP
    case 0x00C36400:  // Ceph
    case 0x0BD00BD0:  // Lustre
    case 0x47504653:  // GPFS
    case 0x19830326:  // BeeGFS
    case 0x013111A8:  // IBRIX
    case 0x7461636F:  // OCFS2
    case 0x01161970:  // GFS2
    case 0xAAD7AAEA:  // PanFS
    case 0x786F4256:  // VirtualBox shared folder
    case 0xBACBACBC:  // VMware shared folder
      return true;
    default:
      return false;
  }
}

std::unique_ptr<Connection> open_database(const fs::path& path, OpenMode mode, const EventSink& events,
                                          const StoreOptions& options) {
  check_path(path, mode);
  const fs::path here = fs::exists(path) ? path : fs::absolute(path).parent_path();
  const int64_t magic = options.file_system ? options.file_system(path) : statfs_magic(here);
  if (mode == OpenMode::read_only) return open_to_read(path, options, magic);
  check_locks(path, magic);
  auto db = connect(path, options, false);
  const bool alone = lacks_shared_memory(*db);
  if (alone) {
    db.reset();
    db = connect(path, options, true);
  }
  // Whose file it is comes first: only then may it be written at all.
  if (db->value("SELECT count(*) FROM sqlite_schema") > 0) check_version(*db, migrations(), false);
  if (sqlite3_db_readonly(db->handle(), "main") == 1) {
    throw sqlite_error(SQLITE_READONLY, "the file is read-only", path.string(), "opening", 0);
  }
  migrate(*db, path, migrations(), events);
  check_version(*db, migrations(), true);
  set_journal(db, path, events, options, magic, alone);
  set_cache(*db, kWriteCacheKib);
  return db;
}

}  // namespace hayfork::runs
