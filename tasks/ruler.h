// RULER (Hsieh et al. 2024, arXiv 2404.06654): thirteen tasks over generated contexts of fixed lengths. Prompts follow
// NVIDIA/RULER at c3f5e3b4 (protocol p1) byte for byte; the token counts that fit them are the evaluated model's.
// Predictions are post-processed and matched as scripts/eval/synthetic does.
#pragma once

#include "tasks/tasks.h"

namespace hayfork::tasks {

const std::vector<OptionDef>& ruler_options();  // ruler_protocol.cc
// `name` is "ruler_" and one of datasets::ruler_tasks().
std::unique_ptr<Task> make_ruler(const std::string& name, const TaskOptions& options, const TextContext& text);
std::vector<std::string> ruler_members();
// Over the members: "score" per length (the mean of the 13 task scores; empty where one is missing) and in all (the
// mean over lengths, empty unless every length has one), "wavg_inc" and "wavg_dec" (weights 1…n and n…1 over the
// lengths), "effective_length" (the largest length up to which every mean is above the threshold) and
// "effective_length_ci" (by the lower bound).
constexpr double kRulerThreshold = 0.856;  // Llama-2-7b-chat at 4K: the paper's line for a satisfactory score
std::vector<Aggregate> fold_ruler(const std::map<std::string, std::vector<Aggregate>>& members,
                                  double threshold = kRulerThreshold);
// With the threshold that the members' runs were given: they say it as an aggregate of that name.
std::vector<Aggregate> fold_ruler_group(const std::map<std::string, std::vector<Aggregate>>& members);

// evaluate.py: strip, control characters become line feeds, strip again.
std::string ruler_postprocess(std::string_view prediction);

// The model templates of scripts/data/template.py, by key, with "{task_template}" in its place; nullptr if unknown.
const char* ruler_model_template(std::string_view key);
std::vector<std::string> ruler_template_keys();

}  // namespace hayfork::tasks
