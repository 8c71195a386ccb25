"""pydantic-ai: an agent's loop with a tool, structured output, a conversation that goes on."""

import json
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url, model = sys.argv[1:]
chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=url + "/v1", api_key="none"))
asked = []
agent = Agent(chat)


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather of a city."""
    asked.append(city)
    return "18"


class Person(BaseModel):
    name: str
    age: int


first = agent.run_sync("the weather?")
second = agent.run_sync("now count", message_history=first.all_messages())
person = Agent(chat, output_type=NativeOutput(Person)).run_sync("json, please").output
print(json.dumps({"asked": asked, "answer": first.output, "next": second.output, "person": person.model_dump()}))
