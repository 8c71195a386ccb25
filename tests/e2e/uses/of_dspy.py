"""DSPy over OpenAI's API: a prediction, one as JSON under a schema, an agent (ReAct) that calls a tool, a context that is
exceeded."""

import json
import sys

import dspy

url, model = sys.argv[1:]
seen = {}
asked = []


def get_weather(city: str) -> str:
    """The weather of a city."""
    asked.append(city)
    return "18"


lm = dspy.LM("openai/" + model, api_base=url + "/v1", api_key="none", cache=False, num_retries=0)
with dspy.context(lm=lm, adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
    seen["predicted"] = dspy.Predict("question -> answer")(question="Which capital?").answer
    seen["agent"] = dspy.ReAct("question -> answer", tools=[get_weather])(question="Is it warm?").answer
    seen["asked"] = asked
with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
    seen["person"] = dspy.Predict("question -> name: str, age: int")(question="json, please").toDict()
try:
    lm("overflow")
except Exception as e:
    seen["overflow"] = [type(e).__name__, "maximum context length" in str(e)]
print(json.dumps(seen))
