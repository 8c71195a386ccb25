"""strands-agents over OpenAI's API and Ollama's: an agent's loop with a tool, a context that is exceeded."""

import json
import sys

from strands import Agent, tool
from strands.models.ollama import OllamaModel
from strands.models.openai import OpenAIModel
from strands.types.exceptions import ContextWindowOverflowException

url, model = sys.argv[1:]
asked = []


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    asked.append(city)
    return "18"


def text(result):
    return "".join(part.get("text", "") for part in result.message["content"])


seen = {}
models = {"openai": OpenAIModel(client_args={"api_key": "none", "base_url": url + "/v1", "max_retries": 0}, model_id=model),
          "ollama": OllamaModel(url, model_id=model)}
for name, chat in models.items():
    asked.clear()
    agent = Agent(model=chat, tools=[get_weather], callback_handler=None)
    mine = seen[name] = {"answer": text(agent("the weather?")), "asked": list(asked), "next": text(agent("now count"))}
    try:
        Agent(model=chat, callback_handler=None)("overflow")
    except ContextWindowOverflowException:
        mine["overflow"] = True
print(json.dumps(seen))
