// What the digest sees and what it must not see; merging files of shards.
#include <cmath>

#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

class DigestTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }
  // A run with the samples of `order`; `edit` may change each row.
  RunDigest digest_of(
      const std::string& name, const std::vector<int64_t>& order,
      const std::function<void(SampleRow&)>& edit = [](SampleRow&) {}) {
    Store store = open_store(file(name));
    const RunHandle run = store.begin_run(identity(), std::vector{niah_task(static_cast<int64_t>(order.size()))});
    for (const int64_t i : order) {
      SampleRow row = sample(run.run_tasks[0], i);
      edit(row);
      store.add_sample(std::move(row));
      if (i % 3 == 0) store.flush();  // other batches
    }
    store.set_metrics(run.run_tasks[0], std::vector<MetricRow>{{0, "", "acc", "none", 0.1 + 0.2, 5, {}, {}, {}, {}}});
    return store.digest(run.run, true);
  }
  // Shard i of 2 of the plan in its own file.
  void shard(
      const std::string& name, int64_t shard, const std::function<void(SampleRow&)>& edit = [](SampleRow&) {}) {
    Store store = open_store(file(name));
    RunIdentity id = identity();
    id.n_shards = 2;
    id.tags = {name};
    const RunHandle run = store.begin_run(id, std::vector{niah_task(20)});
    const int64_t attempt = store.begin_attempt(run.run, {.shard = shard});
    for (int64_t i = shard; i < 20; i += 2) {
      SampleRow row = sample(run.run_tasks[0], i);
      row.attempt = attempt;
      edit(row);
      store.add_sample(std::move(row));
    }
    store.set_metrics(run.run_tasks[0], std::vector<MetricRow>{{0, "", "acc", "none", 0.5, 10, {}, {}, {}, {}}});
    store.finish_attempt(attempt, {"done", 1.0, {}, {}, 0});
    store.finish_run(run.run, {"partial", 0, {}, {}, {}});
  }
  test::TempDir folder_;
};

TEST_F(DigestTest, OrderBatchTimesAndReuseDoNotCount) {
  const RunDigest a = digest_of("a.db", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const RunDigest b = digest_of("b.db", {11, 3, 7, 0, 10, 1, 2, 9, 8, 4, 6, 5}, [](SampleRow& row) {
    row.batch_size = 64;
    row.rows_reused = 1000;
    row.t_prefill_ms = 3.25;
    std::swap(row.metrics[0], row.metrics[1]);
  });
  EXPECT_EQ(a.sha256, b.sha256);
  ASSERT_EQ(a.samples.size(), 12u);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(a.samples[i].sha256, b.samples[i].sha256);
}

TEST_F(DigestTest, EveryAnswerCounts) {
  const std::vector<int64_t> order = {0, 1, 2, 3};
  const RunDigest base = digest_of("base.db", order);
  const std::vector<std::function<void(SampleRow&)>> edits = {
      [](SampleRow& row) { row.score = std::nextafter(*row.score, 2.0); },
      [](SampleRow& row) { row.response->text += " "; },
      [](SampleRow& row) { row.choices[1].logprob = std::nextafter(-2.5, 0.0); },
      [](SampleRow& row) { row.metrics[0].value.reset(); },
      [](SampleRow& row) { row.response_ids = pack_ids({1}); },
      [](SampleRow& row) { row.status = "failed"; },
      [](SampleRow& row) { row.answer = std::string("\xff"); },
      [](SampleRow& row) { row.prompt_sha256 = "x"; }};
  for (size_t e = 0; e < edits.size(); ++e) {
    const RunDigest changed = digest_of("edit" + std::to_string(e) + ".db", order, [&](SampleRow& row) {
      if (row.doc_id == "2") edits[e](row);
    });
    EXPECT_NE(changed.sha256, base.sha256) << e;
    EXPECT_NE(changed.samples[2].sha256, base.samples[2].sha256) << e;
    EXPECT_EQ(changed.samples[1].sha256, base.samples[1].sha256) << e;
  }
  EXPECT_NE(digest_of("fewer.db", {0, 1, 2}).sha256, base.sha256);
}

TEST_F(DigestTest, AggregatesCount) {
  digest_of("a.db", {0, 1});
  Store store = open_store(file("a.db"));
  const RunRow run = store.find_run("@last");
  const std::string before = store.digest(run.id).sha256;
  store.set_metrics(store.run_tasks(run.id)[0].row.id,
                    std::vector<MetricRow>{{0, "", "acc", "none", 0.3, 5, {}, {}, {}, {}}});
  EXPECT_NE(store.digest(run.id).sha256, before);
}

TEST_F(DigestTest, ShardsMergeToTheUnshardedRun) {
  shard("s0.db", 0);
  shard("s1.db", 1);
  std::vector<int64_t> all(20);
  for (int64_t i = 0; i < 20; ++i) all[static_cast<size_t>(i)] = i;
  const RunDigest whole = digest_of("whole.db", all);
  Store store = open_store(file("s0.db"));
  const MergeReport report = store.merge(file("s1.db"));
  EXPECT_EQ(report.n_runs_joined, 1);
  EXPECT_EQ(report.n_runs_added, 0);
  EXPECT_EQ(report.n_samples_added, 10);
  ASSERT_EQ(report.refold.size(), 1u);
  const RunView view = store.show_run(report.refold[0]);
  EXPECT_EQ(view.status, "done");
  EXPECT_EQ(view.tasks[0].row.n_done, 20);
  EXPECT_TRUE(view.tasks[0].metrics.empty());  // of a part: to be folded again
  EXPECT_EQ(view.attempts.size(), 2u);
  EXPECT_EQ(view.attempts[1].shard, 1);
  EXPECT_EQ(view.tags, (std::vector<std::string>{"s0.db", "s1.db"}));
  store.set_metrics(view.tasks[0].row.id, std::vector<MetricRow>{{0, "", "acc", "none", 0.1 + 0.2, 5, {}, {}, {}, {}}});
  EXPECT_EQ(store.digest(view.run.id).sha256, whole.sha256);
  const MergeReport again = store.merge(file("s1.db"));  // nothing is doubled
  EXPECT_EQ(again.n_samples_added, 0);
  EXPECT_EQ(again.n_samples_same, 10);
  EXPECT_TRUE(again.refold.empty());
  EXPECT_EQ(store.show_run(view.run.id).attempts.size(), 2u);
  EXPECT_EQ(store.show_run(view.run.id).tasks[0].metrics.size(), 1u);
  EXPECT_TRUE(store.check().faults.empty());
}

TEST_F(DigestTest, OverlapsThatDisagreeAreRefusedWhole) {
  shard("s0.db", 0);
  shard("s0b.db", 0, [](SampleRow& row) {
    if (row.doc_id == "8") row.score = 0.125;
  });
  Store store = open_store(file("s0.db"));
  const std::string before = store.digest(1).sha256;
  const Error error = error_of([&] { store.merge(file("s0b.db")); });
  EXPECT_EQ(exit_code(error), 2);
  EXPECT_NE(error.detail().why.find("document 8"), std::string::npos);
  EXPECT_EQ(store.digest(1).sha256, before);
  EXPECT_EQ(store.list_runs().size(), 1u);
  shard("s0c.db", 0, [](SampleRow& row) { row.batch_size = 3; });
  EXPECT_EQ(store.merge(file("s0c.db")).n_samples_same, 10);  // overlaps that agree are welcome
}

TEST_F(DigestTest, AFailedSampleYieldsToOneThatWorked) {
  shard("s0.db", 0, [](SampleRow& row) {
    if (row.doc_id == "8") row.status = "failed";
  });
  shard("s0b.db", 0);
  Store store = open_store(file("s0.db"));
  EXPECT_EQ(store.merge(file("s0b.db")).n_samples_added, 1);
  EXPECT_EQ(store.run_tasks(1)[0].row.n_failed, 0);
  EXPECT_EQ(store.run_tasks(1)[0].row.n_done, 10);
}

TEST_F(DigestTest, RunsOfTheirOwnAreAddedWithAllTheyHave) {
  digest_of("a.db", {0, 1, 2});
  digest_of("b.db", {0, 1, 2, 3});
  std::string alias;
  {
    Store a = open_store(file("a.db"));
    alias = a.find_run("@last").run_id;
    a.set_baseline("main", a.find_run("@last").id, {});
  }
  std::string theirs;
  {
    Store b = open_store(file("b.db"));
    const RunRow run = b.find_run("@last");
    b.add_event(run.id, {Event::Level::warn, "HAY-W999", "x", ""});
    b.set_baseline("main", run.id, {});
    b.set_baseline("other", run.id, {});
    theirs = b.digest(run.id).sha256;
  }
  raw_sql(file("b.db"), "UPDATE runs SET run_id = '" + alias + "'");  // two runs with one alias
  raw_sql(file("b.db"), "UPDATE samples SET cached_from = 1 WHERE id = 3");
  Store store = open_store(file("a.db"));
  const MergeReport report = store.merge(file("b.db"));
  EXPECT_EQ(report.n_runs_added, 1);
  EXPECT_EQ(report.n_samples_added, 4);
  ASSERT_EQ(report.renamed.size(), 1u);
  EXPECT_TRUE(report.refold.empty());
  EXPECT_EQ(store.list_runs().size(), 2u);
  const RunRow added = store.find_run("@baseline:other");
  EXPECT_NE(added.run_id, alias);
  EXPECT_EQ(report.renamed[0], alias + " -> " + added.run_id);
  EXPECT_EQ(store.find_run("@baseline:main").run_id, alias);  // names that are set stay
  EXPECT_EQ(store.digest(added.id).sha256, theirs);
  EXPECT_EQ(store.show_run(added.id).events.at(0).code, "HAY-W999");
  EXPECT_EQ(store.list_models().size(), 1u);
  int n_cached = 0;
  store.for_each_sample(store.run_tasks(added.id)[0].row.id, {}, [&](const SampleRow& row) {
    if (row.cached_from) ++n_cached;
  });
  EXPECT_EQ(n_cached, 1);
  EXPECT_TRUE(store.check().faults.empty());
  EXPECT_EQ(store.merge(file("b.db")).n_runs_added, 0);
}

TEST_F(DigestTest, MergeRefusesWhatIsNoSoundHayforkDatabase) {
  digest_of("a.db", {0, 1});
  Store store = open_store(file("a.db"));
  EXPECT_EQ(exit_code(error_of([&] { store.merge(file("none.db")); })), 6);
  EXPECT_EQ(exit_code(error_of([&] { store.merge(file("a.db")); })), 2);
  digest_of("b.db", {0, 1});
  raw_sql(file("b.db"), "DROP INDEX samples_pair; CREATE INDEX samples_pair ON samples(doc_id)");
  const Error error = error_of([&] { store.merge(file("b.db")); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_EQ(exit_code(error), 6);
  raw_sql(file("b.db"), "PRAGMA user_version = 9");
  EXPECT_EQ(exit_code(error_of([&] { store.merge(file("b.db")); })), 6);
  EXPECT_EQ(store.list_runs().size(), 1u);
  store.add_tag(1, "still works");
}

}  // namespace
}  // namespace hayfork::runs
