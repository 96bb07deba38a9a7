// One declaration a verb: what main's table (verbs.cc) points at. Each is defined in the file of its name.
#pragma once

#include "cli/command.h"

namespace hayfork::cli {

Action declare_demo(Flags& flags);
Action declare_run(Flags& flags);
Action declare_resume(Flags& flags);
Action declare_rescore(Flags& flags);
Action declare_task_validate(Flags& flags);
Action declare_list_runs(Flags& flags);
Action declare_list_models(Flags& flags);
Action declare_list_tasks(Flags& flags);
Action declare_list_suites(Flags& flags);
Action declare_list_baselines(Flags& flags);
Action declare_list_devices(Flags& flags);
Action declare_show_run(Flags& flags);
Action declare_show_sample(Flags& flags);
Action declare_show_prompt(Flags& flags);
Action declare_show_model(Flags& flags);
Action declare_show_diff_config(Flags& flags);
Action declare_heatmap(Flags& flags);
Action declare_compare(Flags& flags);
Action declare_gate(Flags& flags);
Action declare_table(Flags& flags);
Action declare_baseline_set(Flags& flags);
Action declare_baseline_clear(Flags& flags);
Action declare_tag_add(Flags& flags);
Action declare_tag_remove(Flags& flags);
Action declare_describe(Flags& flags);
Action declare_import(Flags& flags);
Action declare_export_runs(Flags& flags);
Action declare_export_samples(Flags& flags);
Action declare_export_metrics(Flags& flags);
Action declare_export_niah(Flags& flags);
Action declare_export_lm_eval(Flags& flags);
Action declare_probe_tokenize(Flags& flags);
Action declare_probe_logits(Flags& flags);
Action declare_probe_logprobs(Flags& flags);
Action declare_probe_nll(Flags& flags);
Action declare_probe_generate(Flags& flags);
Action declare_probe_chat(Flags& flags);
Action declare_probe_kv(Flags& flags);
Action declare_bench(Flags& flags);
Action declare_data_list(Flags& flags);
Action declare_data_add(Flags& flags);
Action declare_data_verify(Flags& flags);
Action declare_db_check(Flags& flags);
Action declare_db_digest(Flags& flags);
Action declare_db_vacuum(Flags& flags);
Action declare_db_merge(Flags& flags);
Action declare_db_prune(Flags& flags);
Action declare_db_migrate(Flags& flags);
Action declare_doctor(Flags& flags);
Action declare_config(Flags& flags);
Action declare_explain(Flags& flags);
Action declare_completion(Flags& flags);
Action declare_complete(Flags& flags);  // hidden: what the completion scripts ask
Action declare_version(Flags& flags);
Action declare_help(Flags& flags);

}  // namespace hayfork::cli
