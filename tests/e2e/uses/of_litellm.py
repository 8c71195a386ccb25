"""litellm over OpenAI's API and both of Ollama's: text, a call with its second turn, a context that is exceeded."""

import json
import sys

import litellm

url, model = sys.argv[1:]
litellm.suppress_debug_info = True
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
seen = {}
for provider, base in (("openai", url + "/v1"), ("ollama_chat", url), ("ollama", url)):
    def ask(messages, provider=provider, base=base, **more):
        return litellm.completion(model=f"{provider}/{model}", api_base=base, api_key="none", messages=messages,
                                  num_retries=0, **more).choices[0].message

    mine = seen[provider] = {}
    mine["text"] = ask([{"role": "user", "content": "now count"}], max_tokens=20, temperature=0.5).content
    try:
        ask([{"role": "user", "content": "overflow"}])
    except Exception as e:
        mine["overflow"] = type(e).__name__
    if provider == "ollama":
        continue
    messages = [{"role": "user", "content": "the weather?"}]
    said = ask(messages, tools=TOOLS)
    mine["calls"] = [[call.function.name, json.loads(call.function.arguments)] for call in said.tool_calls]
    messages += [said.model_dump(), {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "18"}]
    mine["answer"] = ask(messages, tools=TOOLS).content
print(json.dumps(seen))
