// Migration 1: the first released schema, exactly as specified. Never edited: changes are new migrations
// (runs/schema.cc).
#include "runs/schema.h"

namespace hayfork::runs {

const char* const kSchema1 = R"sql(
-- Hayfork's results database, first released schema. Executed and tried with rows of every task kind (SQLite 3.40).
-- Times are UTC ISO-8601 text; NULL = unknown, never 0; hashes are lower-case hex text except texts.sha256 (32 bytes).
PRAGMA application_id = 1213810258;
PRAGMA user_version = 1;
PRAGMA foreign_keys = ON;

CREATE TABLE texts (sha256 BLOB PRIMARY KEY, codec TEXT NOT NULL CHECK (codec IN ('raw','zstd')), n_bytes INTEGER NOT NULL, body BLOB NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE models (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, series TEXT, arch TEXT,          -- 'full','swa','gdn','mamba2','orthros','hybrid'
  arch_label TEXT, layers_json TEXT, n_params INTEGER, n_params_noemb INTEGER,
  train_tokens INTEGER, train_step INTEGER, parent_id INTEGER REFERENCES models(id),
  weights_sha256 TEXT, weights_provenance TEXT, config_sha256 TEXT, tokenizer_sha256 TEXT, template_sha256 TEXT, max_len INTEGER, path TEXT,
  verified INTEGER NOT NULL DEFAULT 1 CHECK (verified IN (0,1)),
  identity_sha256 TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE model_layers (model_id INTEGER NOT NULL REFERENCES models(id) ON DELETE CASCADE, layer INTEGER NOT NULL, kind TEXT NOT NULL,
  window INTEGER, pos TEXT, n_heads INTEGER, n_kv INTEGER, head_dim INTEGER, PRIMARY KEY (model_id, layer)) STRICT, WITHOUT ROWID;

CREATE TABLE sparse_configs (id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, label TEXT NOT NULL, config_json TEXT NOT NULL) STRICT;
CREATE TABLE sparse_layers (sparse_id INTEGER NOT NULL REFERENCES sparse_configs(id) ON DELETE CASCADE, layer INTEGER NOT NULL, mode TEXT NOT NULL,
  window INTEGER, sink INTEGER, budget INTEGER, refresh INTEGER, PRIMARY KEY (sparse_id, layer)) STRICT, WITHOUT ROWID;

CREATE TABLE datasets (id INTEGER PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, sha256 TEXT NOT NULL, n_docs INTEGER, license TEXT, UNIQUE (name, sha256)) STRICT;

CREATE TABLE tasks (id INTEGER PRIMARY KEY, name TEXT NOT NULL, family TEXT NOT NULL, version TEXT NOT NULL, kind TEXT NOT NULL
  CHECK (kind IN ('choice','generate','rolling','longppl','group')), primary_metric TEXT NOT NULL, higher_is_better INTEGER NOT NULL CHECK (higher_is_better IN (0,1)),
  config_json TEXT NOT NULL, config_sha256 TEXT NOT NULL, protocol TEXT NOT NULL, dataset_id INTEGER REFERENCES datasets(id), UNIQUE (name, config_sha256)) STRICT;
CREATE TABLE metric_defs (task_id INTEGER NOT NULL REFERENCES tasks(id) ON DELETE CASCADE, metric TEXT NOT NULL, higher_is_better INTEGER NOT NULL CHECK (higher_is_better IN (0,1)), agg TEXT NOT NULL, unit TEXT, PRIMARY KEY (task_id, metric)) STRICT, WITHOUT ROWID;

CREATE TABLE hosts (id INTEGER PRIMARY KEY, hostname TEXT, cpu TEXT, gpus_json TEXT NOT NULL DEFAULT '[]', driver TEXT, cuda TEXT, os TEXT,
  UNIQUE (hostname, cpu, gpus_json, driver, cuda, os)) STRICT;

CREATE TABLE runs (
  id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL UNIQUE, name TEXT, status TEXT NOT NULL
    CHECK (status IN ('planned','running','interrupted','scoring_failed','partial','done','failed','imported')),
  model_id INTEGER NOT NULL REFERENCES models(id), sparse_id INTEGER REFERENCES sparse_configs(id), host_id INTEGER REFERENCES hosts(id),
  plan_sha256 TEXT NOT NULL, numerics_id TEXT, n_shards INTEGER NOT NULL DEFAULT 1,
  engine TEXT NOT NULL, dtype TEXT, kv_dtype TEXT, deterministic INTEGER NOT NULL DEFAULT 1, seed INTEGER,
  hayfork_version TEXT NOT NULL, git_commit TEXT, git_dirty INTEGER, cli_json TEXT NOT NULL, config_json TEXT NOT NULL, config_sha256 TEXT NOT NULL,
  created_at TEXT NOT NULL, started_at TEXT, finished_at TEXT, pid INTEGER, boot_id TEXT, last_beat TEXT,
  wall_s REAL, gpu_busy REAL, peak_mem_bytes INTEGER, exit_code INTEGER, origin TEXT NOT NULL DEFAULT 'hayfork', note TEXT
) STRICT;
CREATE TABLE run_attempts (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, shard INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL,
  host_id INTEGER REFERENCES hosts(id), device TEXT, threads INTEGER, hayfork_version TEXT NOT NULL, git_commit TEXT, cli_json TEXT NOT NULL, pid INTEGER, boot_id TEXT,
  started_at TEXT NOT NULL, last_beat TEXT, ended_at TEXT, end_reason TEXT, n_written INTEGER NOT NULL DEFAULT 0, wall_s REAL, gpu_busy REAL, peak_mem_bytes INTEGER, exit_code INTEGER, UNIQUE (run, shard, attempt)) STRICT;
CREATE INDEX runs_plan ON runs(plan_sha256);
CREATE INDEX runs_model ON runs(model_id, created_at);
CREATE TABLE run_tags (run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, tag TEXT NOT NULL, PRIMARY KEY (run, tag)) STRICT, WITHOUT ROWID;
CREATE TABLE baselines (id INTEGER PRIMARY KEY, name TEXT NOT NULL, run INTEGER REFERENCES runs(id) ON DELETE SET NULL, run_id_text TEXT, set_at TEXT NOT NULL, set_by TEXT) STRICT;   -- append-only; current = newest row of a name; run NULL = cleared
CREATE INDEX baselines_name ON baselines(name, id);

CREATE TABLE run_tasks (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, task_id INTEGER NOT NULL REFERENCES tasks(id),
  status TEXT NOT NULL, num_fewshot INTEGER NOT NULL DEFAULT 0, fewshot_seed INTEGER NOT NULL DEFAULT -1, chat INTEGER NOT NULL DEFAULT 0, system_sha256 TEXT, seeds_json TEXT, n_planned INTEGER NOT NULL, n_done INTEGER NOT NULL DEFAULT 0,
  n_failed INTEGER NOT NULL DEFAULT 0, n_truncated INTEGER NOT NULL DEFAULT 0, n_cut INTEGER NOT NULL DEFAULT 0, wall_s REAL, UNIQUE (run, task_id, num_fewshot, fewshot_seed, chat)) STRICT;
CREATE INDEX run_tasks_task ON run_tasks(task_id);

CREATE TABLE samples (
  id INTEGER PRIMARY KEY, run_task INTEGER NOT NULL REFERENCES run_tasks(id) ON DELETE CASCADE,
  doc_id TEXT NOT NULL, doc_sha256 TEXT NOT NULL, repeat INTEGER NOT NULL DEFAULT 0, subtask TEXT, ctx_len INTEGER, depth_pct REAL, depth_real REAL, cluster TEXT, seed INTEGER, occurrence INTEGER NOT NULL DEFAULT 0, attempt INTEGER REFERENCES run_attempts(id) ON DELETE SET NULL,
  prompt_sha256 TEXT NOT NULL, ids_sha256 TEXT, prompt_text BLOB REFERENCES texts(sha256), recipe_json TEXT, prompt_tokens INTEGER, kept_tokens INTEGER,
  rows_base INTEGER, rows_output INTEGER, rows_reused INTEGER, needle_tok INTEGER, needle_tokens INTEGER, needle_distance INTEGER, ctx_nll REAL, ctx_tokens INTEGER, gen_tokens INTEGER, batch_size INTEGER,
  status TEXT NOT NULL CHECK (status IN ('ok','failed','skipped')), finish TEXT, stop TEXT, max_new_tokens INTEGER, response_ids BLOB, truncated INTEGER NOT NULL DEFAULT 0,
  response_sha256 BLOB REFERENCES texts(sha256), answer TEXT, target TEXT, score REAL, error TEXT, cached_from INTEGER REFERENCES samples(id) ON DELETE SET NULL,
  t_prefill_ms REAL, t_decode_ms REAL, UNIQUE (run_task, doc_id, repeat)
) STRICT;
CREATE INDEX samples_cached ON samples(cached_from) WHERE cached_from IS NOT NULL;
CREATE INDEX samples_text ON samples(response_sha256) WHERE response_sha256 IS NOT NULL;
CREATE INDEX samples_pair ON samples(doc_sha256, run_task);
CREATE INDEX samples_grid ON samples(run_task, ctx_len, depth_pct);
CREATE INDEX samples_bad  ON samples(run_task, status) WHERE status <> 'ok' OR truncated = 1;
CREATE TABLE sample_metrics (sample INTEGER NOT NULL REFERENCES samples(id) ON DELETE CASCADE, metric TEXT NOT NULL, filter TEXT NOT NULL DEFAULT 'none', value REAL, weight REAL, PRIMARY KEY (sample, metric, filter)) STRICT, WITHOUT ROWID;
CREATE TABLE sample_choices (sample INTEGER NOT NULL REFERENCES samples(id) ON DELETE CASCADE, choice INTEGER NOT NULL, logprob REAL, n_tokens INTEGER, n_chars INTEGER, n_bytes INTEGER, uncond_logprob REAL,
  ctx_nll REAL, ctx_tokens INTEGER, ids_sha256 TEXT, greedy INTEGER, gold INTEGER NOT NULL, PRIMARY KEY (sample, choice)) STRICT, WITHOUT ROWID;

CREATE TABLE metrics (
  run_task INTEGER NOT NULL REFERENCES run_tasks(id) ON DELETE CASCADE, slice TEXT NOT NULL DEFAULT '', metric TEXT NOT NULL, filter TEXT NOT NULL DEFAULT 'none',
  value REAL, n INTEGER NOT NULL, stderr REAL CHECK (stderr IS NULL OR stderr >= 0), ci_low REAL, ci_high REAL, ci_method TEXT,
  PRIMARY KEY (run_task, slice, metric, filter)
) STRICT, WITHOUT ROWID;

CREATE TABLE timings (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, run_task INTEGER REFERENCES run_tasks(id), phase TEXT NOT NULL,
  ctx_len INTEGER, batch INTEGER, n_tokens INTEGER, wall_ms REAL NOT NULL, kernel TEXT) STRICT;
CREATE TABLE bench (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, model_id INTEGER REFERENCES models(id), sparse_id INTEGER REFERENCES sparse_configs(id),
  device TEXT, joules REAL, floor_ms REAL, test TEXT NOT NULL, n_prompt INTEGER NOT NULL, n_gen INTEGER NOT NULL,
  depth INTEGER NOT NULL, batch INTEGER NOT NULL, reps INTEGER NOT NULL, tps_mean REAL NOT NULL, tps_sd REAL, ttft_ms REAL, peak_mem_bytes INTEGER, reps_json TEXT NOT NULL) STRICT;

CREATE TABLE gates (id INTEGER PRIMARY KEY, cand INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, base INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, baseline_name TEXT,
  policy_sha256 TEXT NOT NULL, policy_text TEXT NOT NULL, verdict TEXT NOT NULL CHECK (verdict IN ('pass','fail','inconclusive')), exit_code INTEGER NOT NULL, made_at TEXT NOT NULL) STRICT;
CREATE INDEX gates_cand ON gates(cand);
CREATE TABLE comparisons (id INTEGER PRIMARY KEY, gate INTEGER REFERENCES gates(id) ON DELETE CASCADE, base INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, cand INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, task TEXT NOT NULL, slice TEXT NOT NULL DEFAULT '',
  metric TEXT NOT NULL, test TEXT NOT NULL, n_pairs INTEGER NOT NULL, worse INTEGER, better INTEGER, delta REAL, ci_low REAL, ci_high REAL, p REAL, p_adj REAL, mde REAL,
  verdict TEXT NOT NULL, policy_sha256 TEXT, made_at TEXT NOT NULL) STRICT;
CREATE TABLE searches (id INTEGER PRIMARY KEY, run INTEGER REFERENCES runs(id), model_id INTEGER NOT NULL REFERENCES models(id), algo TEXT NOT NULL, seed INTEGER NOT NULL, space_json TEXT NOT NULL, started_at TEXT NOT NULL) STRICT;
CREATE TABLE search_points (search_id INTEGER NOT NULL REFERENCES searches(id) ON DELETE CASCADE, n INTEGER NOT NULL, generation INTEGER, sparse_id INTEGER NOT NULL REFERENCES sparse_configs(id),
  quality REAL, quality_lo REAL, cost_ms REAL, on_front INTEGER NOT NULL DEFAULT 0, held_out REAL, PRIMARY KEY (search_id, n)) STRICT, WITHOUT ROWID;

CREATE TABLE key_tokens (doc_sha256 TEXT NOT NULL, evaluator_sha256 TEXT NOT NULL, params_sha256 TEXT NOT NULL, spans_json TEXT NOT NULL, n_key INTEGER NOT NULL,
  PRIMARY KEY (doc_sha256, evaluator_sha256, params_sha256)) STRICT, WITHOUT ROWID;
CREATE TABLE artefacts (id INTEGER PRIMARY KEY, run INTEGER REFERENCES runs(id) ON DELETE CASCADE, sample INTEGER REFERENCES samples(id) ON DELETE CASCADE, kind TEXT NOT NULL,
  name TEXT NOT NULL, mime TEXT, sha256 TEXT NOT NULL, n_bytes INTEGER NOT NULL, path TEXT, body BLOB) STRICT;   -- e.g. per-token NLL (f16+zstd), imported JSON, junit
CREATE TABLE events (id INTEGER PRIMARY KEY, run INTEGER REFERENCES runs(id) ON DELETE CASCADE, at TEXT NOT NULL, level TEXT NOT NULL, code TEXT NOT NULL, task TEXT, message TEXT NOT NULL) STRICT;
CREATE INDEX artefacts_sample ON artefacts(sample) WHERE sample IS NOT NULL;
CREATE INDEX artefacts_run ON artefacts(run);
CREATE INDEX comparisons_cand ON comparisons(cand, base);
CREATE INDEX comparisons_base ON comparisons(base);
CREATE INDEX events_run ON events(run, level);
CREATE TABLE response_cache (key_sha256 BLOB PRIMARY KEY, sample INTEGER NOT NULL REFERENCES samples(id) ON DELETE CASCADE, made_at TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX response_cache_sample ON response_cache(sample);

CREATE VIEW v_runs AS
  SELECT r.run_id, r.created_at AS "when", m.name AS model, m.arch_label AS arch, m.train_tokens, sc.label AS sparse, r.dtype, r.status, round(r.wall_s,1) AS seconds,
         (SELECT group_concat(t.name, ' ') FROM run_tasks rt JOIN tasks t ON t.id = rt.task_id WHERE rt.run = r.id) AS tasks,
         (SELECT sum(n_failed) FROM run_tasks WHERE run = r.id) AS failed, (SELECT sum(n_truncated) FROM run_tasks WHERE run = r.id) AS truncated
  FROM runs r JOIN models m ON m.id = r.model_id LEFT JOIN sparse_configs sc ON sc.id = r.sparse_id;
CREATE VIEW v_scores AS
  SELECT r.run_id, m.name AS model, m.arch, m.arch_label, m.n_params_noemb, m.train_tokens, t.name AS task, rt.num_fewshot, x.slice, x.metric, x.value, x.n, x.stderr, x.ci_low, x.ci_high,
         coalesce(md.higher_is_better, t.higher_is_better) AS higher_is_better, (x.metric = t.primary_metric) AS is_primary, r.created_at
  FROM metrics x JOIN run_tasks rt ON rt.id = x.run_task JOIN runs r ON r.id = rt.run JOIN models m ON m.id = r.model_id JOIN tasks t ON t.id = rt.task_id LEFT JOIN metric_defs md ON md.task_id = t.id AND md.metric = x.metric;
CREATE VIEW v_niah AS
  SELECT r.run_id, m.arch_label AS arch, t.name AS task, rt.id AS run_task, t.protocol, s.ctx_len, s.depth_pct, sum(s.status='ok') AS n, avg(s.score) FILTER (WHERE s.status='ok') AS acc, sum(s.truncated) AS truncated,
         sum(s.status='failed') AS failed, avg(s.depth_real) AS depth_real
  FROM samples s JOIN run_tasks rt ON rt.id = s.run_task JOIN runs r ON r.id = rt.run JOIN models m ON m.id = r.model_id JOIN tasks t ON t.id = rt.task_id
  WHERE t.family = 'niah' GROUP BY r.run_id, rt.id, s.ctx_len, s.depth_pct;
CREATE VIEW v_length AS
  SELECT r.run_id, m.arch_label AS arch, t.family, t.name AS task, s.ctx_len, count(*) AS n, rt.id AS run_task, avg(s.score) AS score, avg(s.prompt_tokens) AS real_tokens, total(s.finish = 'length') AS cut
  FROM samples s JOIN run_tasks rt ON rt.id = s.run_task JOIN runs r ON r.id = rt.run JOIN models m ON m.id = r.model_id JOIN tasks t ON t.id = rt.task_id
  WHERE s.status = 'ok' AND s.ctx_len IS NOT NULL GROUP BY r.run_id, rt.id, s.ctx_len;
CREATE VIEW v_longppl AS
  SELECT m.series, m.arch, m.name AS model, m.n_params_noemb AS n, m.train_tokens AS d, x.value AS longppl, ln(x.value) AS log_longppl, x.ci_low, x.ci_high, r.run_id
  FROM metrics x JOIN run_tasks rt ON rt.id = x.run_task JOIN tasks t ON t.id = rt.task_id JOIN runs r ON r.id = rt.run JOIN models m ON m.id = r.model_id
  WHERE t.kind = 'longppl' AND x.metric = 'longppl' AND x.slice = '';
CREATE VIEW v_timeline AS
  SELECT m.series, m.train_step, m.train_tokens, r.created_at, r.run_id, t.name AS task, x.metric, x.value, x.ci_low, x.ci_high, c.delta, c.p_adj, c.verdict
  FROM metrics x JOIN run_tasks rt ON rt.id = x.run_task JOIN tasks t ON t.id = rt.task_id JOIN runs r ON r.id = rt.run JOIN models m ON m.id = r.model_id
  LEFT JOIN comparisons c ON c.id = (SELECT max(k.id) FROM comparisons k WHERE k.cand = r.id AND k.gate IS NOT NULL AND k.task = t.name AND k.metric = x.metric AND k.slice = x.slice)
  WHERE x.metric = t.primary_metric AND x.slice = '';
CREATE VIEW v_pairs AS   -- filter on base_run and cand_run
  SELECT rb.run_id AS base_run, rc.run_id AS cand_run, t.name AS task, b.doc_id, b.doc_sha256, b.ctx_len, b.depth_pct, b.score AS base_score, c.score AS cand_score,
         c.score - b.score AS delta, CASE t.higher_is_better WHEN 1 THEN c.score - b.score ELSE b.score - c.score END AS gain, b.answer AS base_answer, c.answer AS cand_answer, b.target, (b.prompt_sha256 = c.prompt_sha256) AS same_prompt, b.id AS base_sample, c.id AS cand_sample
  FROM runs rb CROSS JOIN run_tasks tb ON tb.run = rb.id CROSS JOIN tasks t ON t.id = tb.task_id
  CROSS JOIN runs rc CROSS JOIN run_tasks tc ON tc.run = rc.id AND tc.num_fewshot = tb.num_fewshot AND tc.chat = tb.chat
  CROSS JOIN tasks t2 ON t2.id = tc.task_id AND t2.name = t.name AND t2.protocol = t.protocol
  CROSS JOIN samples b ON b.run_task = tb.id
  CROSS JOIN samples c ON c.run_task = tc.id AND c.doc_sha256 = b.doc_sha256 AND c.occurrence = b.occurrence AND c.repeat = b.repeat
  WHERE rb.id <> rc.id AND b.status = 'ok' AND c.status = 'ok';
CREATE VIEW v_warnings AS SELECT r.run_id, e.at, e.level, e.code, e.task, e.message FROM events e JOIN runs r ON r.id = e.run WHERE e.level IN ('warn','error');
)sql";

}  // namespace hayfork::runs
