// The schema a fresh file gets, its agreement with the field tables, and migrations between versions.
#include "runs/schema.h"

#include <algorithm>

#include "runs/store_impl.h"
#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

class SchemaTest : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return folder_.path() / "runs.db"; }
  std::unique_ptr<Connection> connect() const {
    return std::make_unique<Connection>(file().string(), file().string(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  }
  std::string dump() const {  // the whole schema and one table's rows
    std::string out;
    for (const char* sql : {"SELECT sql FROM sqlite_schema ORDER BY type, name", "SELECT name FROM models ORDER BY id",
                            "PRAGMA user_version"}) {
      for (const std::string& line : raw_sql(file(), sql)) out += line + "\n";
    }
    return out;
  }
  test::TempDir folder_;
};

TEST_F(SchemaTest, AFreshFileHasEveryTableViewAndMark) {
  open_store(file()).close();
  const std::vector<std::string> tables = {"artefacts", "baselines",     "bench",    "comparisons",    "datasets",
                                           "events",    "gates",         "hosts",    "key_tokens",     "metric_defs",
                                           "metrics",   "model_layers",  "models",   "response_cache", "run_attempts",
                                           "run_tags",  "run_tasks",     "runs",     "sample_choices", "sample_metrics",
                                           "samples",   "search_points", "searches", "sparse_configs", "sparse_layers",
                                           "tasks",     "texts",         "timings"};
  EXPECT_EQ(raw_sql(file(), "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"), tables);
  for (const std::string& table : tables) raw_sql(file(), "SELECT * FROM " + table);
  const std::vector<std::string> views = {"v_length", "v_longppl", "v_niah",     "v_pairs",
                                          "v_runs",   "v_scores",  "v_timeline", "v_warnings"};
  EXPECT_EQ(raw_sql(file(), "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name"), views);
  for (const std::string& view : views) raw_sql(file(), "SELECT * FROM " + view);
  EXPECT_EQ(raw_sql(file(), "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"),
            std::vector<std::string>{"16"});
  EXPECT_EQ(raw_sql(file(), "PRAGMA application_id"), std::vector<std::string>{std::to_string(kApplicationId)});
  EXPECT_EQ(raw_sql(file(), "PRAGMA user_version"), std::vector<std::string>{std::to_string(schema_version())});
  EXPECT_EQ(
      raw_sql(file(),
              "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND NOT strict AND "
              "name NOT LIKE 'sqlite%'"),
      std::vector<std::string>{"0"});
}

// A column added by a migration and forgotten in the field table (or the other way round) shows here.
template <typename Row>
void expect_fields(const std::filesystem::path& file) {
  std::vector<std::string> fields;
  for_each_field<Row>([&](const auto& f) { fields.push_back(f.name); });
  std::vector<std::string> columns =
      raw_sql(file, std::string("SELECT name FROM pragma_table_info('") + RowTable<Row>::kName + "')");
  std::sort(fields.begin(), fields.end());
  std::sort(columns.begin(), columns.end());
  EXPECT_EQ(fields, columns) << RowTable<Row>::kName;
}

TEST_F(SchemaTest, FieldTablesNameExactlyTheColumns) {
  open_store(file()).close();
  expect_fields<ModelRow>(file());
  expect_fields<ModelLayerRow>(file());
  expect_fields<SparseRow>(file());
  expect_fields<SparseLayerRow>(file());
  expect_fields<DatasetRow>(file());
  expect_fields<TaskRow>(file());
  expect_fields<MetricDefRow>(file());
  expect_fields<HostRow>(file());
  expect_fields<RunRow>(file());
  expect_fields<AttemptRow>(file());
  expect_fields<RunTaskRow>(file());
  expect_fields<BaselineRow>(file());
  expect_fields<SampleMetricRow>(file());
  expect_fields<SampleChoiceRow>(file());
  expect_fields<ArtefactRow>(file());
  expect_fields<SampleRow>(file());
  expect_fields<MetricRow>(file());
  expect_fields<TimingRow>(file());
  expect_fields<BenchRow>(file());
  expect_fields<GateRow>(file());
  expect_fields<ComparisonRow>(file());
  expect_fields<SearchRow>(file());
  expect_fields<SearchPointRow>(file());
  expect_fields<KeyTokensRow>(file());
  expect_fields<EventRow>(file());
}

constexpr const char* kAddColumn = "ALTER TABLE models ADD COLUMN licence TEXT";
constexpr const char* kBroken = "ALTER TABLE runs ADD COLUMN x TEXT; INSERT INTO no_such_table VALUES(1)";
const Migration kTwo[] = {{1, kSchema1}, {2, kAddColumn}};
const Migration kBad[] = {{1, kSchema1}, {2, kAddColumn}, {3, kBroken}};

TEST_F(SchemaTest, AnOlderFileIsCopiedThenMigrated) {
  {
    Store store = open_store(file());
    store.begin_run(identity(), std::vector{niah_task(1)});
  }
  const std::string before = dump();
  std::vector<std::string> events;
  migrate(*connect(), file(), kTwo, [&](const Event& event) { events.push_back(event.message); });
  EXPECT_EQ(raw_sql(file(), "PRAGMA user_version"), std::vector<std::string>{"2"});
  EXPECT_EQ(raw_sql(file(), "SELECT licence FROM models"), std::vector<std::string>{"NULL"});
  ASSERT_EQ(events.size(), 1u);
  const std::filesystem::path copy = file().string() + ".v1.bak";
  EXPECT_NE(events[0].find(copy.string()), std::string::npos);
  EXPECT_EQ(raw_sql(copy, "PRAGMA user_version"), std::vector<std::string>{"1"});
  EXPECT_EQ(raw_sql(copy, "SELECT name FROM models"), std::vector<std::string>{"orthros-1.3b"});
  EXPECT_NE(dump(), before);
  migrate(*connect(), file(), kTwo, {});  // nothing left to do
  EXPECT_FALSE(std::filesystem::exists(file().string() + ".v2.bak"));
}

TEST_F(SchemaTest, AFailedMigrationLeavesTheVersionBeforeIt) {
  open_store(file()).close();
  EXPECT_THROW(migrate(*connect(), file(), kBad, {}), Error);
  EXPECT_EQ(raw_sql(file(), "PRAGMA user_version"), std::vector<std::string>{"2"});
  EXPECT_EQ(raw_sql(file(), "SELECT count(*) FROM pragma_table_info('runs') WHERE name = 'x'"),
            std::vector<std::string>{"0"});
  EXPECT_THROW(migrate(*connect(), file(), kBad, {}), Error);
  EXPECT_TRUE(std::filesystem::exists(file().string() + ".v2.bak"));
}

TEST_F(SchemaTest, ANewFileGetsEveryMigrationWithoutACopy) {
  migrate(*connect(), file(), kTwo, {});
  EXPECT_EQ(raw_sql(file(), "PRAGMA user_version"), std::vector<std::string>{"2"});
  EXPECT_FALSE(std::filesystem::exists(file().string() + ".v0.bak"));
}

TEST_F(SchemaTest, ANewerFileIsRefusedAndLeftAlone) {
  migrate(*connect(), file(), kTwo, {});
  const std::string before = dump();
  for (const OpenMode mode : {OpenMode::create_or_open, OpenMode::read_only}) {
    const Error error = error_of([&] { Store::open(file(), mode); });
    EXPECT_EQ(exit_code(error), 6);
    EXPECT_NE(error.detail().why.find("version is 2"), std::string::npos);
    EXPECT_NE(error.detail().why.find("up to 1"), std::string::npos);
  }
  EXPECT_EQ(dump(), before);
}

TEST_F(SchemaTest, AnOlderFileIsNotMigratedByAReader) {
  open_store(file()).close();
  Connection db(file().string(), file().string(), SQLITE_OPEN_READONLY);
  const Error error = error_of([&] { check_version(db, kTwo, true); });
  EXPECT_EQ(exit_code(error), 6);
  EXPECT_NE(error.detail().next.find("db migrate"), std::string::npos);
}

}  // namespace
}  // namespace hayfork::runs
