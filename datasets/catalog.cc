#include "datasets/catalog.h"

#include "datasets/import_rows.h"

namespace hayfork::datasets {
namespace {

constexpr CatalogEntry kCatalog[] = {
    {"arc", "huggingface.co/datasets/allenai/ai2_arc", "CC-BY-SA-4.0"},
    {"hellaswag", "huggingface.co/datasets/Rowan/hellaswag", "MIT"},
    {"piqa", "huggingface.co/datasets/baber/piqa", "AFL-3.0"},
    {"social_iqa", "huggingface.co/datasets/allenai/social_i_qa", "CC-BY-4.0"},
    {"siqa", "huggingface.co/datasets/allenai/social_i_qa", "CC-BY-4.0"},
    {"winogrande", "huggingface.co/datasets/allenai/winogrande (winogrande_xl)", "CC-BY-2.0"},
    {"openbookqa", "huggingface.co/datasets/allenai/openbookqa (main)", "Apache-2.0"},
    {"commonsense_qa", "huggingface.co/datasets/tau/commonsense_qa", "MIT"},
    {"mmlu", "huggingface.co/datasets/cais/mmlu", "MIT"},
    {"ceval", "huggingface.co/datasets/ceval/ceval-exam", "CC-BY-NC-SA-4.0"},
    {"cmmlu", "huggingface.co/datasets/haonan-li/cmmlu", "CC-BY-NC-SA-4.0"},
    {"race", "www.cs.cmu.edu/~glai1/data/race", "non-commercial research only"},
    {"boolq", "huggingface.co/datasets/aps/super_glue (boolq)", "CC-BY-SA-3.0"},
    {"cb", "huggingface.co/datasets/aps/super_glue (cb)", "SuperGLUE's terms for CommitmentBank"},
    {"copa", "huggingface.co/datasets/aps/super_glue (copa)", "BSD-2-Clause"},
    {"multirc", "huggingface.co/datasets/aps/super_glue (multirc)", "research use"},
    {"record", "huggingface.co/datasets/aps/super_glue (record)", "SuperGLUE's terms for ReCoRD"},
    {"rte", "huggingface.co/datasets/nyu-mll/glue (rte)", "SuperGLUE's terms for RTE"},
    {"sglue_rte", "huggingface.co/datasets/aps/super_glue (rte)", "SuperGLUE's terms for RTE"},
    {"wic", "huggingface.co/datasets/aps/super_glue (wic)", "CC-BY-NC-4.0"},
    {"wsc", "huggingface.co/datasets/aps/super_glue (wsc.fixed)", "CC-BY-4.0"},
    {"xstorycloze", "huggingface.co/datasets/juletxara/xstory_cloze", "CC-BY-SA-4.0"},
    {"storycloze", "huggingface.co/datasets/LSDSem/story_cloze", "by request from its authors"},
    {"lambada", "huggingface.co/datasets/EleutherAI/lambada_openai", "MIT"},
    {"wikitext", "huggingface.co/datasets/EleutherAI/wikitext_document_level", "CC-BY-SA-3.0"},
    {"c4", "huggingface.co/datasets/allenai/c4", "ODC-BY-1.0"},
    {"based", "huggingface.co/hazyresearch", "as the underlying sets"},
    {"fda", "huggingface.co/datasets/hazyresearch/based-fda", "as the underlying set"},
    {"swde", "huggingface.co/datasets/hazyresearch/based-swde-v2", "as the underlying set"},
    {"squad_completion", "huggingface.co/datasets/hazyresearch/based-squad", "CC-BY-SA-4.0"},
};

}  // namespace

const CatalogEntry* find_in_catalog(const std::string& set) {
  for (const CatalogEntry& entry : kCatalog)
    if (is_set(set, entry.family)) return &entry;
  return nullptr;
}

}  // namespace hayfork::datasets
