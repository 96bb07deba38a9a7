// The queries and tables named in runs/datasette.yaml are those of the schema.
#include <yaml-cpp/yaml.h>

#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

TEST(Datasette, EveryQueryRunsAndEveryTableExists) {
  test::TempDir folder;
  const auto file = folder.path() / "runs.db";
  {
    Store store = open_store(file);
    const RunHandle run = store.begin_run(identity(), std::vector{niah_task(2)});
    store.add_sample(sample(run.run_tasks[0], 1));
    store.flush();
    store.set_name(run.run, "x");
  }
  raw_sql(file, "UPDATE runs SET run_id = 'rtest'");
  const YAML::Node runs =
      YAML::LoadFile((test::source_dir() / "runs" / "datasette.yaml").string())["databases"]["runs"];
  int n_queries = 0;
  for (const auto& query : runs["queries"]) {
    std::string sql = query.second["sql"].as<std::string>();
    for (const auto& param : query.second["params"]) {
      const std::string mark = ":" + param.as<std::string>();
      for (size_t at; (at = sql.find(mark)) != std::string::npos;) sql.replace(at, mark.size(), "'rtest'");
    }
    const size_t n_rows = raw_sql(file, sql).size();
    EXPECT_EQ(n_rows, query.first.as<std::string>() == "flips" ? 0u : 1u) << sql;
    ++n_queries;
  }
  EXPECT_EQ(n_queries, 3);
  for (const auto& table : runs["tables"]) {
    const std::string name = table.first.as<std::string>();
    for (const auto& facet : table.second["facets"])
      raw_sql(file, "SELECT " + facet.as<std::string>() + " FROM " + name);
    raw_sql(file, "SELECT * FROM " + name);
  }
}

}  // namespace
}  // namespace hayfork::runs
