#include "tests/support/raw_sql.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

namespace hayfork::test {

std::vector<std::string> raw_sql(const std::filesystem::path& path, const std::string& sql) {
  std::vector<std::string> out;
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  sqlite3_busy_timeout(db, 5000);
  char* message = nullptr;
  const auto collect = [](void* list, int n, char** values, char**) {
    static_cast<std::vector<std::string>*>(list)->push_back(n > 0 && values[0] != nullptr ? values[0] : "NULL");
    return 0;
  };
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), collect, &out, &message), SQLITE_OK)
      << sql << ": " << (message ? message : "");
  sqlite3_free(message);
  sqlite3_close(db);
  return out;
}

ExclusiveLock::ExclusiveLock(const std::filesystem::path& path) {
  EXPECT_EQ(sqlite3_open(path.c_str(), &db_), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db_, "begin exclusive", nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db_);
}

ExclusiveLock::~ExclusiveLock() {
  sqlite3_close(db_);
}

}  // namespace hayfork::test
