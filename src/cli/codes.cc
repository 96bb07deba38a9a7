#include "cli/codes.h"

namespace hayfork::cli {
namespace {

constexpr CodeText kCodes[] = {
    {"HAY-W003", "the database's file system cannot hold a write-ahead log",
     "Network file systems have no shared memory between machines, which SQLite's WAL needs. A rollback journal is "
     "used "
     "instead: slower, equally safe. Put runs.db on a local disk to be rid of it."},
    {"HAY-W005", "a run went on under other numerics",
     "The run was resumed with --allow-mixed-numerics on another backend, library version or instruction set. Its "
     "samples "
     "are not bit-comparable with each other; the run is marked."},
    {"HAY-W010", "the checkpoint has a chat template that is not used",
     "The model looks instruct-tuned, but prompts are plain text unless --chat-template is given. Plain text is what "
     "most "
     "published base-model numbers use; chat models may answer differently."},
    {"HAY-W011", "the run was given up",
     "More than --max-failed of the planned samples failed. What is stored is kept; resume tries the rest again."},
    {"HAY-W012", "samples failed",
     "A failed sample is stored with its error and left out of every mean. hayfork list runs counts them, hayfork show "
     "shows the first error, hayfork resume tries them again."},
    {"HAY-W013", "aggregates of a merged run could not be made again",
     "The model's folder or tokenizer is not here, and aggregates are made by the task. hayfork resume RUN makes them "
     "where the model is."},
    {"HAY-W020", "the haystack is shorter than the context",
     "Its text is repeated to fill the length, but for RULER's p0 and lm-eval, whose prompts end with it. Repeated "
     "text "
     "makes a needle stand out; give a longer --niah-haystack, or more --essays."},
    {"HAY-W021", "a question file has fewer questions than samples were asked for",
     "Every question is asked once a length, and the intervals say what so few samples are worth. Give the whole file, "
     "or "
     "ask for fewer samples."},
    {"HAY-W022", "a question's documents do not fit the length",
     "RULER's own program does not end here. The question is asked over its own documents alone, and the sample's "
     "recipe "
     "says clamped; its prompt may be longer than the length. Use a greater length."},
    {"HAY-W023", "needles are split into unusual tokens",
     "Needles are put into the haystack as tokens, so that every one has its exact place. The tokenizer would cut "
     "these "
     "texts otherwise at their borders; a model may find them harder to read. The samples' recipes mark them as "
     "split."},
    {"HAY-I024", "lengths or depths were given out of order or twice",
     "They are taken once each and in ascending order; the grid is the same."},
    {"HAY-W030", "a failure of the gate could not be confirmed",
     "The policy asks to run the task again with new seeds, and one of the two models or its data is not here. The "
     "verdict is that of the stored samples."},
    {"HAY-W031", "a standard error of 0 was imported as unknown",
     "The other program writes 0.0 where it has none, or where all samples agree. Neither says that the next sample "
     "would "
     "agree too."},
    {"HAY-W032", "an imported run's model is not verified",
     "The files do not hold the weights' digest. Comparisons with it say \"unverified model\"."},
    {"HAY-W040", "documents stand more than once in a data set",
     "Each is asked and counted, as upstream does; comparisons pair them by their occurrence."},
    {"HAY-W041", "questions with two equal options",
     "The first of equal scores is chosen, as upstream does; if the second is the gold one, the question cannot be "
     "answered right."},
    {"HAY-W042", "a row of a data set cannot be used",
     "The message names file, line and field. Correct the file; or keep the row with --keep-broken: its document fails "
     "and is left out of every mean, the others go on."},
    {"HAY-W043", "rows that are no part of a task",
     "The suite's own runner drops rows whose answer has fewer than two characters; they are not asked and not "
     "counted."},
    {"HAY-E001", "an error ended a run, or closing the database",
     "The message says which. What was stored before is kept; hayfork resume goes on."},
    {"0", "done", "Everything asked for was done; a gate passed."},
    {"1", "gate failed", "A blocking rule found a regression."},
    {"2", "usage or configuration error",
     "Nothing was run. The message names the flag or key and the nearest known one."},
    {"3", "gate inconclusive", "Too few pairs, or the interval spans the limit."},
    {"4", "partial",
     "Some samples or tasks failed, or a prompt was cut under --strict. hayfork show RUN says which; hayfork "
     "resume RUN tries the failed ones again."},
    {"5", "nothing selected", "The selection holds no task, sample, run or pair."},
    {"6", "storage problem",
     "The database or an output cannot be written, is full, locked, no database, or of a newer "
     "version. The file was left as it was."},
    {"7", "model cannot be loaded",
     "The checkpoint or tokenizer is missing, broken or of a kind that is not supported."},
    {"8", "out of memory",
     "After all fallbacks. Shorter lengths, a smaller --batch-size or --kv-dtype bf16 need less."},
    {"9", "remote engine unusable", "The server could not be reached, refused, or all retries were spent."},
    {"10", "device problem", "No accelerator, too old, lost, or not supported by this build."},
    {"11", "data problem", "A data set or request file is missing or malformed."},
    {"70", "internal error", "A mistake of this program. Report it with the command that caused it."},
    {"130", "stopped by Ctrl-C", "After a clean checkpoint; hayfork resume goes on."},
    {"143", "stopped by SIGTERM", "After a clean checkpoint; hayfork resume goes on."},
};

}  // namespace

std::span<const CodeText> code_texts() {
  return kCodes;
}

}  // namespace hayfork::cli
