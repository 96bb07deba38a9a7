// A run's life in the store, and what comes back.
#include "runs/store.h"

#include <atomic>
#include <cmath>
#include <thread>

#include "runs/fields.h"
#include "runs/report/row_table.h"
#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

class StoreTest : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return folder_.path() / "runs.db"; }
  // A finished run of n niah samples.
  RunHandle filled(Store& store, int64_t n, const std::string& plan = "plan-1") {
    const RunHandle run = store.begin_run(identity(plan), std::vector{niah_task(n)});
    const int64_t attempt = store.begin_attempt(run.run, {});
    for (int64_t i = 0; i < n; ++i) {
      SampleRow row = sample(run.run_tasks[0], i);
      row.attempt = attempt;
      store.add_sample(std::move(row));
    }
    store.set_metrics(run.run_tasks[0],
                      std::vector<MetricRow>{{0, "", "acc", "none", 0.5, n, 0.01, 0.4, 0.6, "wilson"}});
    store.finish_task(run.run_tasks[0], "done", 1.5);
    store.finish_attempt(attempt, {"done", 2.0, {}, 1000, 0});
    store.finish_run(run.run, {"done", 0, {}, {}, {}});
    return run;
  }
  test::TempDir folder_;
};

template <typename Row>
std::string csv_of(const Row& row) {
  return render("test", "row", table_of(std::vector<Row>{row}), Format::csv);
}

TEST_F(StoreTest, GivesBackARunAsItWasWritten) {
  RunHandle run;
  {
    Store store = open_store(file());
    EXPECT_EQ(store.journal_mode(), "wal");
    run = filled(store, 40);
    store.close();
  }
  Store store = Store::open(file(), OpenMode::read_only);
  const RunView view = store.show_run(run.run);
  EXPECT_EQ(view.status, "done");
  EXPECT_EQ(view.run.uuid.size(), 36u);
  EXPECT_EQ(view.run.run_id.size(), 5u);
  EXPECT_EQ(view.run.wall_s, 2.0);  // of the attempt
  EXPECT_EQ(view.run.peak_mem_bytes, 1000);
  EXPECT_EQ(view.model.arch_label, "Orthros 128");
  EXPECT_EQ(view.model.identity_sha256, model_identity(identity().model));
  ASSERT_EQ(view.layers.size(), 2u);
  EXPECT_EQ(view.layers[0].window, 128);
  EXPECT_FALSE(view.layers[1].window);
  ASSERT_EQ(view.tasks.size(), 1u);
  EXPECT_EQ(view.tasks[0].row.n_done, 40);
  EXPECT_EQ(view.tasks[0].row.n_cut, 4);
  EXPECT_EQ(view.tasks[0].row.n_truncated, 4);
  EXPECT_EQ(view.tasks[0].row.wall_s, 1.5);
  EXPECT_EQ(view.tasks[0].metrics.at(0).ci_method, "wilson");
  EXPECT_EQ(view.tasks[0].metric_defs.at(0).agg, "mean");
  ASSERT_EQ(view.attempts.size(), 1u);
  EXPECT_EQ(view.attempts[0].n_written, 40);
  EXPECT_EQ(view.attempts[0].end_reason, "done");
  EXPECT_EQ(view.host->hostname, this_host().hostname);
}

TEST_F(StoreTest, GivesBackASampleBitForBit) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(1)});
  SampleRow wrote = sample(run.run_tasks[0], 5);
  wrote.ctx_nll = 0.1 + 0.2;
  wrote.needle_distance = int64_t{1} << 40;
  wrote.recipe_json = R"({"kind":"number"})";
  wrote.artefacts = {
      {0, {}, {}, "nll", "per-token", "application/octet-stream", "", 0, {}, Blob{std::string("\0\1\2", 3)}}};
  store.add_sample(wrote);
  store.flush();
  std::vector<SampleRow> rows;
  store.for_each_sample(run.run_tasks[0], {.texts = true}, [&](const SampleRow& row) { rows.push_back(row); });
  ASSERT_EQ(rows.size(), 1u);
  SampleRow read = store.show_sample(rows[0].id).sample;
  EXPECT_EQ(read.artefacts.at(0).body->bytes, std::string("\0\1\2", 3));
  EXPECT_EQ(read.artefacts.at(0).n_bytes, 3);
  EXPECT_EQ(csv_of(read), csv_of(rows[0]));
  wrote.id = read.id;
  EXPECT_EQ(csv_of(read), csv_of(wrote));
  EXPECT_EQ(unpack_ids(*read.response_ids), (std::vector<int32_t>{5, -1, 65536}));
  ASSERT_EQ(read.choices.size(), 2u);
  EXPECT_EQ(read.choices[0].logprob, wrote.choices[0].logprob);
  ASSERT_EQ(read.metrics.size(), 2u);
  EXPECT_EQ(read.metrics[1].weight, 2.0);
  EXPECT_EQ(store.show_sample(read.id).run_id, run.run_id);
  EXPECT_EQ(store.show_sample(read.id).task, "niah");
}

TEST_F(StoreTest, KeepsHostileTextAsItIs) {
  const std::vector<std::string> texts = {
      std::string("nul\0nul", 7), "\xff\xfe broken \xc3(", "'); DROP TABLE samples; --", "", std::string(100'000, 'a'),
      "\u202E=cmd|' /C calc'!A0", "\x1b]0;title\x07"};
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(7)});
  for (size_t i = 0; i < texts.size(); ++i) {
    SampleRow row = sample(run.run_tasks[0], static_cast<int64_t>(i));
    row.doc_id = "doc " + texts[i];
    row.answer = texts[i];
    row.response = StoredText{texts[i]};
    row.subtask = texts[i];
    store.add_sample(row);
  }
  store.flush();
  EXPECT_EQ(store.stored_samples(run.run_tasks[0]).count({"doc " + texts[0], 0}), 1u);
  size_t n = 0;
  store.for_each_sample(run.run_tasks[0], {.texts = true}, [&](const SampleRow& row) {
    const std::string text = row.doc_id.substr(4);
    EXPECT_EQ(std::count(texts.begin(), texts.end(), text), 1) << n;
    EXPECT_EQ(row.answer, text);
    EXPECT_EQ(row.response->text, text);
    EXPECT_EQ(row.subtask, text);
    ++n;
  });
  EXPECT_EQ(n, texts.size());
  EXPECT_EQ(store.digest(run.run).n_samples, 7);
  EXPECT_TRUE(store.check().faults.empty());
  store.set_name(run.run, "x'; DELETE FROM runs; --");
  EXPECT_EQ(store.find_run("x'; DELETE FROM runs; --").run_id, run.run_id);
}

TEST_F(StoreTest, StoresATextOnceAndUnknownNumbersAsNull) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(100)});
  for (int64_t i = 0; i < 100; ++i) {
    SampleRow row = sample(run.run_tasks[0], i);
    row.response = StoredText{"same"};
    row.score = std::nan("");
    store.add_sample(row);
  }
  store.flush();
  EXPECT_EQ(store.check().n_texts, 11);  // ten prompts, one response
  EXPECT_EQ(raw_sql(file(), "SELECT count(*) FROM samples WHERE score IS NULL"), std::vector<std::string>{"100"});
  EXPECT_EQ(raw_sql(file(), "SELECT codec FROM texts WHERE n_bytes < 10"), std::vector<std::string>{"raw"});
}

TEST_F(StoreTest, RegistersModelsTasksAndHostsOnce) {
  Store store = open_store(file());
  filled(store, 1);
  filled(store, 1);
  RunIdentity later = identity();
  later.model.name = "copy";
  later.model.train_step = 7;
  const RunHandle run = store.begin_run(later, std::vector{niah_task(1), choice_task(2)});
  const RunView view = store.show_run(run.run);
  EXPECT_EQ(view.model.name, "orthros-1.3b");  // the first name stays
  EXPECT_EQ(view.model.train_step, 7);         // what is learnt later is added
  EXPECT_EQ(view.tasks.size(), 2u);
  EXPECT_EQ(store.list_models().size(), 1u);
  EXPECT_EQ(store.list_models()[0].n_runs, 3);
  EXPECT_EQ(store.list_tasks().size(), 2u);
  EXPECT_EQ(store.list_devices().size(), 2u);  // this host, and the empty one of the attempts
  RunIdentity other = identity();
  other.model.weights_sha256 = "other";
  store.begin_run(other, std::vector{niah_task(1)});
  EXPECT_EQ(store.list_models().size(), 2u);
}

TEST_F(StoreTest, ResumeRedoesFailedSamplesAndReplacesTheirRows) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(60)});
  for (int64_t i = 0; i < 60; ++i) store.add_sample(sample(run.run_tasks[0], i, false));
  const auto stored = store.stored_samples(run.run_tasks[0]);
  EXPECT_EQ(stored.size(), 58u);
  EXPECT_EQ(stored.count({"7", 0}), 0u);
  EXPECT_EQ(store.run_tasks(run.run)[0].row.n_failed, 2);
  for (const int64_t i : {7, 57}) store.add_sample(sample(run.run_tasks[0], i));
  store.flush();
  const RunTaskRow task = store.run_tasks(run.run)[0].row;
  EXPECT_EQ(task.n_failed, 0);
  EXPECT_EQ(task.n_done, 60);
  EXPECT_TRUE(store.check().faults.empty());
}

TEST_F(StoreTest, ASampleIsWrittenOnce) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(3)});
  store.add_sample(sample(run.run_tasks[0], 1));
  store.flush();
  store.add_sample(sample(run.run_tasks[0], 2));
  store.add_sample(sample(run.run_tasks[0], 1));
  EXPECT_EQ(error_of([&] { store.flush(); }).code(), ErrorCode::internal);
  EXPECT_EQ(error_of([&] { store.add_sample(sample(run.run_tasks[0], 3)); }).code(), ErrorCode::internal);
  EXPECT_EQ(error_of([&] { store.close(); }).code(), ErrorCode::internal);
  EXPECT_EQ(raw_sql(file(), "SELECT count(*) FROM samples"),
            std::vector<std::string>{"1"});  // the batch is whole or absent
}

TEST_F(StoreTest, ResumeChecksStatusProcessAndNumerics) {
  Store store = open_store(file());
  const RunHandle done = filled(store, 2);
  EXPECT_TRUE(store.resume_run(done.run, {}).finished);
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(2)});
  const Error other = error_of([&] { store.resume_run(run.run, {.numerics_id = "cuda/1"}); });
  EXPECT_EQ(exit_code(other), 2);
  EXPECT_NE(other.detail().why.find("cuda/1"), std::string::npos);
  const ResumeState state = store.resume_run(run.run, {.numerics_id = "cuda/1", .allow_mixed_numerics = true});
  EXPECT_EQ(state.config_json, identity().config_json);
  EXPECT_EQ(state.handle.run_tasks, run.run_tasks);
  EXPECT_EQ(store.show_run(run.run).events.at(0).code, "HAY-W005");
  const int64_t attempt = store.begin_attempt(run.run, {.shard = 1});
  EXPECT_EQ(exit_code(error_of([&] { store.resume_run(run.run, {.shard = 1}); })), 6);  // this very process works on it
  EXPECT_FALSE(store.resume_run(run.run, {.shard = 0}).finished);
  store.finish_attempt(attempt, {"interrupted", 1.0, {}, {}, {}});
  EXPECT_FALSE(store.resume_run(run.run, {.shard = 1}).finished);
  RunIdentity imported = identity();
  imported.status = "imported";
  const RunHandle theirs = store.begin_run(imported, std::vector{niah_task(2)});
  EXPECT_EQ(exit_code(error_of([&] { store.resume_run(theirs.run, {}); })), 2);
}

TEST_F(StoreTest, AnInterruptedRunGoesOnWithTheNextAttempt) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(2)});
  store.begin_attempt(run.run, {});
  EXPECT_EQ(store.shown_status(store.find_run("@last")), "running");
  // As a kill leaves it: the pid names no process with this start time any more.
  raw_sql(file(), "UPDATE run_attempts SET boot_id = boot_id || '9'; UPDATE runs SET boot_id = boot_id || '9'");
  EXPECT_EQ(store.shown_status(store.find_run("@last")), "interrupted");
  EXPECT_EQ(store.list_runs()[0].status, "interrupted");
  RunFilter filter;
  filter.status = "interrupted";
  EXPECT_EQ(store.list_runs(filter).size(), 1u);
  store.resume_run(run.run, {});
  store.begin_attempt(run.run, {});
  const auto attempts = store.show_run(run.run).attempts;
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].end_reason, "lost");
  EXPECT_EQ(attempts[1].attempt, 2);
  EXPECT_EQ(store.shown_status(store.find_run("@last")), "running");
}

TEST_F(StoreTest, ASilentProcessOfAnotherMachineCountsAsGone) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(2)});
  store.begin_attempt(run.run, {});
  raw_sql(file(), "UPDATE run_attempts SET boot_id = 'another/machine/1'");
  EXPECT_EQ(store.shown_status(store.find_run(run.run_id)), "running");
  raw_sql(file(), "UPDATE run_attempts SET last_beat = '2020-01-01T00:00:00Z'");
  EXPECT_EQ(store.shown_status(store.find_run(run.run_id)), "interrupted");
}

TEST_F(StoreTest, TheWriterBeatsWhileTheRunIsQuiet) {
  StoreOptions options;
  options.beat_seconds = 0.02;
  Store store = open_store(file(), options);
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(2)});
  store.begin_attempt(run.run, {});
  raw_sql(file(), "UPDATE runs SET last_beat = NULL");
  for (int i = 0; i < 200 && !store.find_run(run.run_id).last_beat; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(store.find_run(run.run_id).last_beat);
}

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

TEST_F(StoreTest, KeepsTheFactsBesideTheSamples) {
  Store store = open_store(file());
  const RunHandle base = filled(store, 1);
  const RunHandle cand = filled(store, 1);
  store.add_event(cand.run, {Event::Level::warn, "HAY-W021", "outlier in rep 1", "bench"});
  store.add_event({}, {Event::Level::info, "HAY-I000", "no run", ""});
  ASSERT_EQ(store.show_run(cand.run).events.size(), 1u);
  EXPECT_EQ(store.show_run(cand.run).events[0].task, "bench");
  TimingRow timing;
  timing.run = cand.run;
  timing.phase = "prefill";
  timing.wall_ms = 12.5;
  store.add_timings(std::vector{timing});
  BenchRow bench;
  bench.run = cand.run;
  bench.test = "pp4096";
  bench.tps_mean = 1234.5;
  store.add_bench(std::vector{bench});
  EXPECT_EQ(store.bench(cand.run).at(0).tps_mean, 1234.5);
  GateRow gate;
  gate.base = base.run;
  gate.cand = cand.run;
  gate.policy_sha256 = "p";
  gate.verdict = "pass";
  ComparisonRow comparison;
  comparison.base = base.run;
  comparison.cand = cand.run;
  comparison.task = "niah";
  comparison.metric = "acc";
  comparison.test = "mcnemar";
  comparison.verdict = "same";
  EXPECT_GT(store.add_gate(gate, std::vector{comparison}), 0);
  KeyTokensRow keys{"doc", "evaluator", "params", "[[1,2]]", 1};
  store.put_key_tokens(keys);
  keys.n_key = 2;
  store.put_key_tokens(keys);
  EXPECT_EQ(store.key_tokens("doc", "evaluator", "params")->n_key, 2);
  EXPECT_FALSE(store.key_tokens("doc", "evaluator", "other"));
  SparseRow sparse;
  sparse.label = "w256b512";
  sparse.config_json = R"({"window":256})";
  const SparseLayerRow layer{0, 3, "block", 256, 4, 512, 1};
  const int64_t sparse_id = store.add_sparse(sparse, std::vector{layer});
  EXPECT_EQ(store.add_sparse(sparse, {}), sparse_id);
  SearchRow search;
  search.run = cand.run;
  search.model_id = store.show_run(cand.run).model.id;
  search.algo = "nsga2";
  search.space_json = "{}";
  const int64_t search_id = store.begin_search(search);
  store.put_search_point({search_id, 0, 1, sparse_id, -0.004, {}, 12.0, true, {}});
  EXPECT_TRUE(store.search_points(search_id).at(0).on_front);
  ArtefactRow artefact;
  artefact.run = cand.run;
  artefact.kind = "import";
  artefact.name = "results.json";
  artefact.body = Blob{"{}"};
  EXPECT_GT(store.add_artefact(artefact), 0);
  store.heartbeat(cand.run, {});
  store.set_note(cand.run, "a note");
  EXPECT_EQ(store.list_runs()[0].note, "a note");
  EXPECT_EQ(store.runs_of_plan("plan-1").size(), 2u);
  EXPECT_TRUE(store.check().faults.empty());
  store.close();
  for (const std::string& view : raw_sql(file(), "SELECT name FROM sqlite_schema WHERE type = 'view'")) {
    raw_sql(file(), "SELECT * FROM " + view);  // every view runs on real rows
  }
  EXPECT_EQ(raw_sql(file(), "SELECT acc FROM v_niah WHERE run_id = '" + cand.run_id + "'"),
            std::vector<std::string>{"0.0"});
  EXPECT_EQ(raw_sql(file(), "SELECT same_prompt FROM v_pairs WHERE base_run = '" + base.run_id + "'"),
            std::vector<std::string>{"1"});
}

TEST_F(StoreTest, ReadersSeeWholeBatchesWhileARunWrites) {
  StoreOptions options;
  options.commit_samples = 16;
  options.commit_seconds = 600;  // batches by number alone, however busy the machine
  Store store = open_store(file(), options);
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(3000)});
  std::atomic<bool> stop{false};
  std::atomic<int> n_reads{0};
  std::thread reader([&] {
    Store other = Store::open(file(), OpenMode::read_only);
    int64_t last = 0;
    while (!stop || n_reads == 0) {
      const RunTaskRow task = other.run_tasks(run.run)[0].row;
      EXPECT_GE(task.n_done, last);
      EXPECT_EQ(task.n_done % 16, task.n_done == 3000 ? 3000 % 16 : 0);
      last = task.n_done;
      ++n_reads;
    }
  });
  for (int64_t i = 0; i < 3000; ++i) store.add_sample(sample(run.run_tasks[0], i));
  store.flush();
  stop = true;
  reader.join();
  EXPECT_GT(n_reads, 0);
  EXPECT_EQ(store.run_tasks(run.run)[0].row.n_done, 3000);
}

TEST_F(StoreTest, TakesSamplesFromSeveralThreads) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(400)});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = t; i < 400; i += 4) store.add_sample(sample(run.run_tasks[0], i));
      store.flush();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.stored_samples(run.run_tasks[0]).size(), 400u);
}

TEST_F(StoreTest, AClosedFileIsComplete) {
  {
    Store store = open_store(file());
    filled(store, 500);
  }
  EXPECT_FALSE(std::filesystem::exists(file().string() + "-wal"));
  const auto copy = folder_.path() / "copy.db";
  std::filesystem::copy_file(file(), copy);
  Store store = Store::open(copy, OpenMode::read_only);
  EXPECT_EQ(store.run_tasks(store.find_run("@last").id)[0].row.n_done, 500);
}

TEST_F(StoreTest, ReadOnlyNeverWrites) {
  {
    Store store = open_store(file());
    filled(store, 5);
  }
  Store store = Store::open(file(), OpenMode::read_only);
  const int64_t run = store.find_run("@last").id;
  EXPECT_EQ(exit_code(error_of([&] { store.add_tag(run, "x"); })), 6);
  EXPECT_EQ(exit_code(error_of([&] { store.begin_run(identity(), {}); })), 6);
  EXPECT_THROW(store.add_sample(sample(1, 1)), Error);
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

TEST_F(StoreTest, ClosedAndMovedStoresBehave) {
  Store store = open_store(file());
  Store moved = std::move(store);
  const RunHandle run = filled(moved, 2);
  moved.close();
  moved.close();
  EXPECT_EQ(error_of([&] { moved.find_run(run.run_id); }).code(), ErrorCode::internal);
}

}  // namespace
}  // namespace hayfork::runs
