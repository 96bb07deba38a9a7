// The one list of columns a row type: it drives INSERT, SELECT, merge, CSV and JSON. Order is the order of columns in
// queries and tables. View rows have a table name only where they are read by it.
#pragma once

#include <tuple>

#include "runs/rows.h"
#include "runs/views.h"

namespace hayfork::runs {

template <typename Row, typename Member>
struct Field {
  const char* name;
  Member Row::*member;
};

template <typename Row, typename Member>
constexpr Field<Row, Member> field(const char* name, Member Row::*member) {
  return {name, member};
}

template <typename Row>
struct RowTable;  // kName: the table ("" for a view row); kFields: tuple of Field

// Calls body(field) for each column of Row.
template <typename Row, typename Body>
constexpr void for_each_field(Body&& body) {
  std::apply([&](const auto&... fields) { (body(fields), ...); }, RowTable<Row>::kFields);
}

#define HAY_F(name) field(#name, &R::name)
#define HAY_ROW(Type, table, ...)                                 \
  template <>                                                     \
  struct RowTable<Type> {                                         \
    using R = Type;                                               \
    static constexpr const char* kName = table;                   \
    static constexpr auto kFields = std::make_tuple(__VA_ARGS__); \
  }

// clang-format off
HAY_ROW(ModelRow, "models", HAY_F(id), HAY_F(name), HAY_F(series), HAY_F(arch), HAY_F(arch_label), HAY_F(layers_json),
        HAY_F(n_params), HAY_F(n_params_noemb), HAY_F(train_tokens), HAY_F(train_step), HAY_F(parent_id),
        HAY_F(weights_sha256), HAY_F(weights_provenance), HAY_F(config_sha256), HAY_F(tokenizer_sha256),
        HAY_F(template_sha256), HAY_F(max_len), HAY_F(path), HAY_F(verified), HAY_F(identity_sha256));
HAY_ROW(ModelLayerRow, "model_layers", HAY_F(model_id), HAY_F(layer), HAY_F(kind), HAY_F(window), HAY_F(pos),
        HAY_F(n_heads), HAY_F(n_kv), HAY_F(head_dim));
HAY_ROW(SparseRow, "sparse_configs", HAY_F(id), HAY_F(sha256), HAY_F(label), HAY_F(config_json));
HAY_ROW(SparseLayerRow, "sparse_layers", HAY_F(sparse_id), HAY_F(layer), HAY_F(mode), HAY_F(window), HAY_F(sink),
        HAY_F(budget), HAY_F(refresh));
HAY_ROW(DatasetRow, "datasets", HAY_F(id), HAY_F(name), HAY_F(version), HAY_F(sha256), HAY_F(n_docs), HAY_F(license));
HAY_ROW(TaskRow, "tasks", HAY_F(id), HAY_F(name), HAY_F(family), HAY_F(version), HAY_F(kind), HAY_F(primary_metric),
        HAY_F(higher_is_better), HAY_F(config_json), HAY_F(config_sha256), HAY_F(protocol), HAY_F(dataset_id));
HAY_ROW(MetricDefRow, "metric_defs", HAY_F(task_id), HAY_F(metric), HAY_F(higher_is_better), HAY_F(agg), HAY_F(unit));
HAY_ROW(HostRow, "hosts", HAY_F(id), HAY_F(hostname), HAY_F(cpu), HAY_F(gpus_json), HAY_F(driver), HAY_F(cuda),
        HAY_F(os));
HAY_ROW(RunRow, "runs", HAY_F(id), HAY_F(uuid), HAY_F(run_id), HAY_F(name), HAY_F(status), HAY_F(model_id),
        HAY_F(sparse_id), HAY_F(host_id), HAY_F(plan_sha256), HAY_F(numerics_id), HAY_F(n_shards), HAY_F(engine),
        HAY_F(dtype), HAY_F(kv_dtype), HAY_F(deterministic), HAY_F(seed), HAY_F(hayfork_version), HAY_F(git_commit),
        HAY_F(git_dirty), HAY_F(cli_json), HAY_F(config_json), HAY_F(config_sha256), HAY_F(created_at),
        HAY_F(started_at), HAY_F(finished_at), HAY_F(pid), HAY_F(boot_id), HAY_F(last_beat), HAY_F(wall_s),
        HAY_F(gpu_busy), HAY_F(peak_mem_bytes), HAY_F(exit_code), HAY_F(origin), HAY_F(note));
HAY_ROW(AttemptRow, "run_attempts", HAY_F(id), HAY_F(run), HAY_F(shard), HAY_F(attempt), HAY_F(host_id),
        HAY_F(device), HAY_F(threads), HAY_F(hayfork_version), HAY_F(git_commit), HAY_F(cli_json), HAY_F(pid),
        HAY_F(boot_id), HAY_F(started_at), HAY_F(last_beat), HAY_F(ended_at), HAY_F(end_reason), HAY_F(n_written),
        HAY_F(wall_s), HAY_F(gpu_busy), HAY_F(peak_mem_bytes), HAY_F(exit_code));
HAY_ROW(RunTaskRow, "run_tasks", HAY_F(id), HAY_F(run), HAY_F(task_id), HAY_F(status), HAY_F(num_fewshot),
        HAY_F(fewshot_seed), HAY_F(chat), HAY_F(system_sha256), HAY_F(seeds_json), HAY_F(n_planned), HAY_F(n_done),
        HAY_F(n_failed), HAY_F(n_truncated), HAY_F(n_cut), HAY_F(wall_s));
HAY_ROW(BaselineRow, "baselines", HAY_F(id), HAY_F(name), HAY_F(run), HAY_F(run_id_text), HAY_F(set_at), HAY_F(set_by));
HAY_ROW(SampleMetricRow, "sample_metrics", HAY_F(sample), HAY_F(metric), HAY_F(filter), HAY_F(value), HAY_F(weight));
HAY_ROW(SampleChoiceRow, "sample_choices", HAY_F(sample), HAY_F(choice), HAY_F(logprob), HAY_F(n_tokens),
        HAY_F(n_chars), HAY_F(n_bytes), HAY_F(uncond_logprob), HAY_F(ctx_nll), HAY_F(ctx_tokens), HAY_F(ids_sha256),
        HAY_F(greedy), HAY_F(gold));
HAY_ROW(ArtefactRow, "artefacts", HAY_F(id), HAY_F(run), HAY_F(sample), HAY_F(kind), HAY_F(name), HAY_F(mime),
        HAY_F(sha256), HAY_F(n_bytes), HAY_F(path), HAY_F(body));
HAY_ROW(SampleRow, "samples", HAY_F(id), HAY_F(run_task), HAY_F(doc_id), HAY_F(doc_sha256), HAY_F(repeat),
        HAY_F(subtask), HAY_F(ctx_len), HAY_F(depth_pct), HAY_F(depth_real), HAY_F(cluster), HAY_F(seed),
        HAY_F(occurrence), HAY_F(attempt), HAY_F(prompt_sha256), HAY_F(ids_sha256), HAY_F(prompt_text),
        HAY_F(recipe_json), HAY_F(prompt_tokens), HAY_F(kept_tokens), HAY_F(rows_base), HAY_F(rows_output),
        HAY_F(rows_reused), HAY_F(needle_tok), HAY_F(needle_tokens), HAY_F(needle_distance), HAY_F(ctx_nll),
        HAY_F(ctx_tokens), HAY_F(gen_tokens), HAY_F(batch_size), HAY_F(status), HAY_F(finish), HAY_F(stop),
        HAY_F(max_new_tokens), HAY_F(response_ids), HAY_F(truncated), field("response_sha256", &R::response),
        HAY_F(answer), HAY_F(target), HAY_F(score), HAY_F(error), HAY_F(cached_from), HAY_F(t_prefill_ms),
        HAY_F(t_decode_ms));
HAY_ROW(MetricRow, "metrics", HAY_F(run_task), HAY_F(slice), HAY_F(metric), HAY_F(filter), HAY_F(value), HAY_F(n),
        field("stderr", &R::stderr_value), HAY_F(ci_low), HAY_F(ci_high), HAY_F(ci_method));
HAY_ROW(TimingRow, "timings", HAY_F(id), HAY_F(run), HAY_F(run_task), HAY_F(phase), HAY_F(ctx_len), HAY_F(batch),
        HAY_F(n_tokens), HAY_F(wall_ms), HAY_F(kernel));
HAY_ROW(BenchRow, "bench", HAY_F(id), HAY_F(run), HAY_F(model_id), HAY_F(sparse_id), HAY_F(device), HAY_F(joules),
        HAY_F(floor_ms), HAY_F(test), HAY_F(n_prompt), HAY_F(n_gen), HAY_F(depth), HAY_F(batch), HAY_F(reps),
        HAY_F(tps_mean), HAY_F(tps_sd), HAY_F(ttft_ms), HAY_F(peak_mem_bytes), HAY_F(reps_json));
HAY_ROW(GateRow, "gates", HAY_F(id), HAY_F(cand), HAY_F(base), HAY_F(baseline_name), HAY_F(policy_sha256),
        HAY_F(policy_text), HAY_F(verdict), HAY_F(exit_code), HAY_F(made_at));
HAY_ROW(ComparisonRow, "comparisons", HAY_F(id), HAY_F(gate), HAY_F(base), HAY_F(cand), HAY_F(task), HAY_F(slice),
        HAY_F(metric), HAY_F(test), HAY_F(n_pairs), HAY_F(worse), HAY_F(better), HAY_F(delta), HAY_F(ci_low),
        HAY_F(ci_high), HAY_F(p), HAY_F(p_adj), HAY_F(mde), HAY_F(verdict), HAY_F(policy_sha256), HAY_F(made_at));
HAY_ROW(SearchRow, "searches", HAY_F(id), HAY_F(run), HAY_F(model_id), HAY_F(algo), HAY_F(seed), HAY_F(space_json),
        HAY_F(started_at));
HAY_ROW(SearchPointRow, "search_points", HAY_F(search_id), HAY_F(n), HAY_F(generation), HAY_F(sparse_id),
        HAY_F(quality), HAY_F(quality_lo), HAY_F(cost_ms), HAY_F(on_front), HAY_F(held_out));
HAY_ROW(KeyTokensRow, "key_tokens", HAY_F(doc_sha256), HAY_F(evaluator_sha256), HAY_F(params_sha256),
        HAY_F(spans_json), HAY_F(n_key));
HAY_ROW(EventRow, "events", HAY_F(id), HAY_F(run), HAY_F(at), HAY_F(level), HAY_F(code), HAY_F(task), HAY_F(message));

HAY_ROW(RunListRow, "", HAY_F(run_id), HAY_F(name), HAY_F(when), HAY_F(model), HAY_F(arch), HAY_F(train_tokens),
        HAY_F(sparse), HAY_F(dtype), HAY_F(tasks), HAY_F(status), HAY_F(tags), HAY_F(n_planned), HAY_F(n_done),
        HAY_F(n_failed), HAY_F(n_truncated), HAY_F(wall_s), HAY_F(note), HAY_F(run), HAY_F(uuid));
HAY_ROW(ModelListRow, "", HAY_F(name), HAY_F(series), HAY_F(arch), HAY_F(arch_label), HAY_F(n_params),
        HAY_F(n_params_noemb), HAY_F(train_tokens), HAY_F(train_step), HAY_F(max_len), HAY_F(verified), HAY_F(n_runs),
        HAY_F(last_run), HAY_F(path), HAY_F(weights_sha256), HAY_F(model_id));
HAY_ROW(TaskListRow, "", HAY_F(name), HAY_F(family), HAY_F(version), HAY_F(kind), HAY_F(protocol),
        HAY_F(primary_metric), HAY_F(higher_is_better), HAY_F(dataset), HAY_F(n_runs), HAY_F(config_sha256));
HAY_ROW(DeviceListRow, "", HAY_F(hostname), HAY_F(device), HAY_F(cpu), HAY_F(gpus_json), HAY_F(driver), HAY_F(cuda),
        HAY_F(os), HAY_F(n_runs), HAY_F(last_used));
HAY_ROW(BaselineListRow, "", HAY_F(name), HAY_F(run_id), HAY_F(model), HAY_F(status), HAY_F(set_at), HAY_F(set_by));
HAY_ROW(GridCell, "", HAY_F(ctx_len), HAY_F(depth_pct), HAY_F(n), HAY_F(mean), HAY_F(n_failed), HAY_F(n_truncated),
        HAY_F(depth_real), HAY_F(prompt_tokens));
HAY_ROW(LengthRow, "", HAY_F(run_id), HAY_F(task), HAY_F(subtask), HAY_F(ctx_len), HAY_F(n), HAY_F(mean),
        HAY_F(prompt_tokens), HAY_F(n_failed), HAY_F(n_cut), HAY_F(n_truncated));
HAY_ROW(PairRow, "", HAY_F(task), HAY_F(doc_id), HAY_F(doc_sha256), HAY_F(repeat), HAY_F(subtask), HAY_F(ctx_len),
        HAY_F(depth_pct), HAY_F(cluster), HAY_F(base_score), HAY_F(cand_score), HAY_F(gain), HAY_F(base_answer),
        HAY_F(cand_answer), HAY_F(target), HAY_F(same_prompt), HAY_F(base_sample), HAY_F(cand_sample));
HAY_ROW(ScoreRow, "", HAY_F(sample), HAY_F(doc_sha256), HAY_F(occurrence), HAY_F(repeat), HAY_F(prompt_sha256),
        HAY_F(cluster), HAY_F(subtask), HAY_F(ctx_len), HAY_F(depth_pct), HAY_F(ok), HAY_F(truncated), HAY_F(value));
HAY_ROW(SampleDigest, "", HAY_F(task), HAY_F(doc_id), HAY_F(repeat), HAY_F(sha256));
// clang-format on

#undef HAY_ROW
#undef HAY_F

}  // namespace hayfork::runs
