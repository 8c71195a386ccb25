"""pydantic-ai by Anthropic's API: a loop with a tool, reasoning that goes back, a stream. Prints JSON."""

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider

settings = AnthropicModelSettings(max_tokens=2000, anthropic_thinking={"type": "enabled", "budget_tokens": 1024})
model = AnthropicModel("scripted", provider=AnthropicProvider(base_url=sys.argv[1], api_key="none"))
agent = Agent(model, model_settings=settings, instructions="Be kind.")
asked = []


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather of a city."""
    asked.append(city)
    return "18 in " + city


async def streamed():
    async with agent.run_stream("weather") as answer:
        return await answer.get_output()


first = agent.run_sync("weather")
called = list(asked)
second = agent.run_sync("think", message_history=first.all_messages())
third = agent.run_sync("count", message_history=second.all_messages())
print(json.dumps([called, first.output, second.output, third.output, asyncio.run(streamed())]))
