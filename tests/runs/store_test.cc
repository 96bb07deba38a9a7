// What is written to the store comes back.
#include "runs/store.h"

#include <cmath>

#include "runs/fields.h"
#include "runs/report/row_table.h"
#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

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
  EXPECT_EQ(read.response_ids->bytes, pack_ids({5, -1, 65536}).bytes);
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

}  // namespace
}  // namespace hayfork::runs
