// The formats of calls, one file each; call_format.cpp lists them.
#pragma once

#include "runtime/chat/output/call_format.hpp"

namespace troupe {

const call_format& hermes_calls();
const call_format& qwen3_coder_calls();
const call_format& seed_oss_calls();
const call_format& glm45_calls();
const call_format& minimax_calls();
const call_format& lfm2_calls();
const call_format& gemma4_calls();
const call_format& nemotron_calls();
const call_format& llama3_json_calls();
const call_format& json_calls();
const call_format& mistral_calls();      // [TOOL_CALLS][{...}, ...]
const call_format& mistral_args_calls(); // [TOOL_CALLS]name[ARGS]{...}
const call_format& granite_calls();
const call_format& phi4_calls();
const call_format& deepseek_v3_calls();
const call_format& deepseek_v31_calls();
const call_format& kimi_k2_calls();
const call_format& harmony_calls();

/// The content of a call_tag whose arguments are a JSON object.
std::string json_arguments(const offered_tool& tool);

} // namespace troupe
