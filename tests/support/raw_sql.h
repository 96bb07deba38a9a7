// SQL on a results database behind the store's back: what damages a file for a test, or looks at what was stored.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

struct sqlite3;

namespace hayfork::test {

// The first column of the rows; "NULL" for NULL. Fails the test where SQLite refuses.
std::vector<std::string> raw_sql(const std::filesystem::path& path, const std::string& sql);

// Nobody else reads or writes the database while this lives.
class ExclusiveLock {
 public:
  explicit ExclusiveLock(const std::filesystem::path& path);
  ~ExclusiveLock();
  ExclusiveLock(const ExclusiveLock&) = delete;
  ExclusiveLock& operator=(const ExclusiveLock&) = delete;

 private:
  sqlite3* db_ = nullptr;
};

}  // namespace hayfork::test
