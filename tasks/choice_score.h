// Every way of choosing among options, from what is kept of each: sums of log-probabilities, lengths, the
// option's probability without the question, and the context's own negative log-likelihood. No model is needed, so
// stored rows can be scored again.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tasks/document_form.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

// With options j, log-probability L_j, m_j tokens; C, n those of a context that is scored too:
//   acc L_j · acc_norm L_j ÷ code points · acc_bytes L_j ÷ bytes · acc_tokens L_j ÷ m_j · acc_mutual_info L_j − U_j
//   acc_ppl_full −(C − L_j) ÷ (n + m_j)
// each 1 when the largest (the first among equals) is the gold one; acc_mutual_info and acc_ppl_full only where the
// values are there; bits_per_byte −L_gold ÷ (bytes · ln 2); pred and gold, the indices by acc (or by `chosen_by`).
// Option scores of the document are read at pred; a document that has them may have no gold option (−1: none is right).
// A value that is not finite, an option without a length, or a gold out of range makes the score failed.
SampleScore score_choices(const Document& document, std::span<const ChoiceValue> choices, const std::string& primary,
                          const std::string& chosen_by = "acc");

// One target (loglikelihood): acc is 1 when every token was the likeliest, perplexity holds its log-probability.
SampleScore score_continuation(const Document& document, std::span<const ChoiceValue> choices);

// Means of all metrics but pred and gold; stderr as upstream (sample deviation ÷ √n, clusters or not), intervals over
// clusters. f1 as cb's (mean of the one-against-rest F1 of classes 0, 1, 2) when `with_f1`; perplexity as
// exp(−mean) when it is there.
std::vector<Aggregate> fold_choices(std::span<const FoldRow> rows, bool with_f1);

// Text for people: at most `most` bytes, whole characters.
std::string shortened(const std::string& text, size_t most = 200);

}  // namespace hayfork::tasks
