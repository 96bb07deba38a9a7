// What is asked of a store: runs, samples, grids, pairs; other scores, pruning and checking.
#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

TEST_F(StoreTest, FindsRunsByEveryReference) {
  Store store = open_store(file());
  const RunHandle first = filled(store, 1);
  const RunHandle second = filled(store, 1);
  store.set_name(first.run, "night");
  store.add_tag(first.run, "weekly");
  store.set_baseline("main", second.run, "me");
  store.set_baseline("main", first.run, {});
  EXPECT_EQ(store.find_run(first.run_id).id, first.run);
  EXPECT_EQ(store.find_run(first.uuid).id, first.run);
  EXPECT_EQ(store.find_run(first.uuid.substr(0, 8)).id, first.run);
  EXPECT_EQ(store.find_run("night").id, first.run);
  EXPECT_EQ(store.find_run("@last").id, second.run);
  EXPECT_EQ(store.find_run("@tag:weekly").id, first.run);
  EXPECT_EQ(store.find_run("@baseline:main").id, first.run);
  EXPECT_EQ(store.find_run("@main").id, first.run);
  EXPECT_EQ(store.select(second.run_id + ":niah").task, "niah");
  EXPECT_EQ(store.select("@tag:weekly:niah").run.id, first.run);
  EXPECT_FALSE(store.select("@tag:weekly").task);
  for (const char* unknown : {"", "r", "rzzzzzz", "@tag:none", "@baseline:x", "@x", "'; --"}) {
    const Error error = error_of([&] { store.find_run(unknown); });
    EXPECT_EQ(exit_code(error), 6) << unknown;
    EXPECT_NE(error.detail().next.find(second.run_id), std::string::npos);
  }
  store.set_name(second.run, "night");
  EXPECT_EQ(exit_code(error_of([&] { store.find_run("night"); })), 2);
  store.set_baseline("main", {}, {});
  EXPECT_THROW(store.find_run("@baseline:main"), Error);
  EXPECT_EQ(store.list_baselines().size(), 1u);
  EXPECT_FALSE(store.list_baselines()[0].run_id);
}

TEST_F(StoreTest, ListsWithFilters) {
  Store store = open_store(file());
  const RunHandle run = filled(store, 3);
  store.add_tag(run.run, "nightly");
  store.add_tag(run.run, "a");
  const auto count = [&](std::vector<std::string> items) { return store.list_runs(parse_run_filter(items)).size(); };
  EXPECT_EQ(count({}), 1u);
  EXPECT_EQ(count({"arch=orthros", "status=done", "tag=nightly", "model=orthros-1.3b", "task=niah", "since=7d"}), 1u);
  for (const char* miss :
       {"arch=gdn", "status=failed", "tag=x", "model=m", "task=ruler", "since=2999-01-01", "dtype=bf16"}) {
    EXPECT_EQ(count({miss}), 0u) << miss;
  }
  EXPECT_EQ(store.list_runs()[0].tags, "a,nightly");
  EXPECT_EQ(store.list_runs()[0].tasks, "niah");
  EXPECT_EQ(store.list_runs()[0].n_done, 3);
  store.remove_tag(run.run, "a");
  EXPECT_EQ(store.list_runs()[0].tags, "nightly");
  for (const char* bad : {"arch", "colour=red", "since=yesterday", "since=9999999d", "=x"}) {
    EXPECT_EQ(exit_code(error_of([&] { count({bad}); })), 2) << bad;
  }
}

TEST_F(StoreTest, GridCountsFailuresAndNeverAveragesThem) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(40)});
  for (int64_t i = 0; i < 40; ++i) {
    SampleRow row = sample(run.run_tasks[0], i);
    if (i == 0) {
      row.status = "failed";
      row.score = 0.0;
    }
    store.add_sample(row);
  }
  const auto cells = store.grid(run.run_tasks[0]);
  ASSERT_EQ(cells.size(), 20u);
  EXPECT_EQ(cells[0].ctx_len, 1024);
  EXPECT_EQ(cells[0].depth_pct, 0.0);
  EXPECT_EQ(cells[0].n, 1);  // samples 0 and 20; 0 failed
  EXPECT_EQ(cells[0].n_failed, 1);
  EXPECT_EQ(cells[0].mean, 1.0);
  EXPECT_EQ(cells[0].n_truncated, 1);
  EXPECT_EQ(store.grid(run.run_tasks[0], "f1")[5].n, 2);
  EXPECT_EQ(store.grid(run.run_tasks[0], "none")[5].n, 0);
  EXPECT_FALSE(store.grid(run.run_tasks[0], "none")[5].mean);
  const auto lengths = store.lengths(run.run_tasks[0]);
  ASSERT_EQ(lengths.size(), 4u);
  EXPECT_EQ(lengths[0].n, 9);
  EXPECT_EQ(lengths[0].n_failed, 1);
}

TEST_F(StoreTest, PairsJoinOnDocumentsAndKnowTheDirection) {
  Store store = open_store(file());
  const RunHandle base = filled(store, 10);
  const RunHandle cand = store.begin_run(identity("plan-2"), std::vector{niah_task(10)});
  for (int64_t i = 5; i < 15; ++i) {
    SampleRow row = sample(cand.run_tasks[0], i);
    row.score = 1.0;
    if (i == 6) row.prompt_sha256 = "other";
    store.add_sample(row);
  }
  const auto pairs = store.pairs(base.run, cand.run);
  ASSERT_EQ(pairs.size(), 5u);
  EXPECT_EQ(pairs[1].doc_id, "6");
  EXPECT_EQ(pairs[1].gain, 1.0);
  EXPECT_FALSE(pairs[1].same_prompt);
  EXPECT_TRUE(pairs[0].same_prompt);
  EXPECT_TRUE(store.pairs(base.run, cand.run, "ruler").empty());
}

TEST_F(StoreTest, RescoreReplacesScoresAndCounts) {
  Store store = open_store(file());
  const RunHandle run = filled(store, 4);
  std::vector<SampleRow> rows;
  store.for_each_sample(run.run_tasks[0], {}, [&](const SampleRow& row) { rows.push_back(row); });
  rows[2].score = 0.25;
  rows[2].metrics = {{0, "acc", "none", 0.25, {}}};
  rows[3].status = "failed";
  store.rescore(rows);
  EXPECT_EQ(store.show_sample(rows[2].id).sample.score, 0.25);
  EXPECT_EQ(store.show_sample(rows[2].id).sample.metrics.size(), 1u);
  EXPECT_EQ(store.run_tasks(run.run)[0].row.n_failed, 1);
  EXPECT_EQ(store.run_tasks(run.run)[0].row.n_done, 3);
}

TEST_F(StoreTest, PruneKeepsMetricsTagsAndBaselines) {
  Store store = open_store(file());
  const RunHandle old = filled(store, 4);
  const RunHandle tagged = filled(store, 4);
  const RunHandle base = filled(store, 4);
  const RunHandle newest = filled(store, 4);
  store.add_tag(tagged.run, "keep");
  store.set_baseline("main", base.run, {});
  const PruneReport report = store.prune(1);
  EXPECT_EQ(report.n_runs, 1);
  EXPECT_EQ(report.n_samples, 4);
  EXPECT_TRUE(store.stored_samples(old.run_tasks[0]).empty());
  for (const RunHandle* kept : {&tagged, &base, &newest})
    EXPECT_EQ(store.stored_samples(kept->run_tasks[0]).size(), 4u);
  EXPECT_EQ(store.run_tasks(old.run)[0].metrics.size(), 1u);
  EXPECT_EQ(store.show_run(old.run).events.at(0).code, "HAY-I002");
  EXPECT_TRUE(store.check().faults.empty());
  EXPECT_EQ(store.prune(0).n_runs, 1);
  EXPECT_EQ(store.prune(0).n_runs, 0);
  store.vacuum();
  EXPECT_EQ(store.check().n_orphan_texts, 0);
}

TEST_F(StoreTest, CheckFindsWhatIsWrong) {
  {
    Store store = open_store(file());
    filled(store, 30);
    EXPECT_TRUE(store.check().faults.empty());
  }
  raw_sql(file(), "UPDATE run_tasks SET n_done = 3");
  raw_sql(file(), "UPDATE texts SET body = x'28b52ffd' WHERE sha256 = (SELECT min(response_sha256) FROM samples)");
  Store store = open_store(file());
  const CheckReport report = store.check();
  ASSERT_EQ(report.faults.size(), 2u);
  EXPECT_NE(report.faults[0].find("says 3 done"), std::string::npos);
  EXPECT_NE(report.faults[1].find("stored text is damaged"), std::string::npos);
  EXPECT_EQ(report.n_samples, 30);
  EXPECT_EQ(error_of([&] { store.for_each_sample(1, {.texts = true}, [](const SampleRow&) {}); }).code(),
            ErrorCode::corrupt);
}

}  // namespace
}  // namespace hayfork::runs
