"""open-interpreter over OpenAI's and Ollama's API: code is run, and the model told what it printed."""

import json
import sys

from interpreter import interpreter

url, model, backend = sys.argv[1:]
interpreter.offline = True
interpreter.disable_telemetry = True
interpreter.auto_run = True
interpreter.llm.model = f"{backend}/{model}"
interpreter.llm.api_base = url
if backend == "openai":
    interpreter.llm.api_base, interpreter.llm.api_key = url + "/v1", "none"
    interpreter.llm.context_window, interpreter.llm.max_tokens = 4000, 500
    interpreter.llm.supports_functions = False
print(json.dumps(interpreter.chat("work it out", display=False)))
