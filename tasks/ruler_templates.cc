#include <algorithm>
#include <array>
#include <utility>

#include "tasks/ruler.h"

namespace hayfork::tasks {
namespace {

constexpr std::array<std::pair<std::string_view, const char*>, 12> kTemplates = {{
    {"base", "{task_template}"},
    {"meta-chat", "[INST] {task_template} [/INST]"},
    {"vicuna-chat",
     "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
     "and "
     "polite answers to the user's questions. USER: {task_template} ASSISTANT:"},
    {"lwm-chat", "You are a helpful assistant. USER: {task_template} ASSISTANT: "},
    {"command-r-chat",
     "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|USER_TOKEN|>{task_template}<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"
     "<|CHATBOT_TOKEN|>"},
    {"chatglm-chat", "[gMASK]sop<|user|> \n {task_template}<|assistant|> \n "},
    {"RWKV",
     "User: hi\n\nAssistant: Hi. I am your assistant and I will provide expert full response in full details. Please "
     "feel "
     "free to ask any question and I will always answer it\n\nUser: {task_template}\n\nAssistant:"},
    {"Phi3", "<|user|>\n{task_template}<|end|>\n<|assistant|>\n"},
    {"meta-llama3",
     "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{task_template}<|eot_id|><|start_header_id|>"
     "assistant"
     "<|end_header_id|>\n\n"},
    {"jamba", "<|startoftext|><|bom|><|system|> <|eom|><|bom|><|user|> {task_template}<|eom|><|bom|><|assistant|>"},
    {"nemotron5-instruct", "<SPECIAL_10>System\n\n<SPECIAL_11>User\n{task_template}\n<SPECIAL_11>Assistant\n"},
    {"qwen-chatml", "<|im_start|>user\n{task_template}<|im_end|>\n<|im_start|>assistant\n"},  // not upstream's
}};

}  // namespace

const char* ruler_model_template(std::string_view key) {
  const auto it = std::find_if(kTemplates.begin(), kTemplates.end(), [&](const auto& t) { return t.first == key; });
  return it == kTemplates.end() ? nullptr : it->second;
}

std::vector<std::string> ruler_template_keys() {
  std::vector<std::string> keys;
  for (const auto& [key, text] : kTemplates) keys.emplace_back(key);
  return keys;
}

}  // namespace hayfork::tasks
