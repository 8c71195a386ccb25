"""inspect-ai over its providers for OpenAI's API, vLLM and Ollama: an eval that is scored, one with a tool, a context that is
exceeded."""

import json
import os
import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

url, model = sys.argv[1:]
os.environ["TROUPE_API_KEY"] = "none"
asked = []


@tool
def get_weather():
    async def execute(city: str):
        """The weather of a city.

        Args:
            city: its name
        """
        asked.append(city)
        return "18"

    return execute


def run(chat, samples, solver, scorer):
    log = eval(Task(dataset=samples, solver=solver, scorer=scorer), model=chat, display="none", log_dir="logs")[0]
    assert log.status == "success", log.error
    return log


seen = {}
for name in ("openai-api/troupe", "vllm", "ollama"):
    chat = get_model(f"{name}/{model}", base_url=url + "/v1", api_key="none")
    asked.clear()
    cities = [Sample("the capital of France?", target="Paris"), Sample("the capital of Italy?", target="Rome")]
    scored = run(chat, cities, generate(), match())
    used = run(chat, [Sample("the weather?", target="18 degrees")], [use_tools(get_weather()), generate()], includes())
    long = run(chat, [Sample("overflow", target="")], generate(), includes())
    seen[name] = {"accuracy": scored.results.scores[0].metrics["accuracy"].value,
                  "with a tool": used.results.scores[0].metrics["accuracy"].value, "asked": list(asked),
                  "overflow": long.samples[0].output.stop_reason}
print(json.dumps(seen))
