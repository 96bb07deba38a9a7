// Language-model loss over whole documents: lm-evaluation-harness's wikitext and c4 (word and byte perplexity, bits per
// byte) and corpus_loss (mean loss a token over any set of texts, as validation losses on C4 are reported). Documents
// longer than the window are scored in windows that predict every token once (lm_eval/utils.py,
// get_rolling_token_windows).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tasks/tasks.h"
#include "tasks/text_ids.h"

namespace hayfork::tasks {

struct RollingWindow {
  Ids context, continuation;  // fed: both but the last id
};
// `prefix` stands before the first token. Windows feed at most `max_length` ids; every one but the last begins with
// `context_length` ids that are not scored, the last uses a full window. Requires: 1 ≤ context_length ≤ max_length.
std::vector<RollingWindow> rolling_windows(const Ids& tokens, const Ids& prefix, int64_t max_length,
                                           int64_t context_length = 1);

std::vector<TaskEntry> rolling_tasks();

}  // namespace hayfork::tasks
