"""Run by test_agents.py with the interpreter that has openai-agents: loops over the Responses API. Prints JSON."""

import asyncio
import json
import sys

import openai
import pydantic
from agents import (Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, SQLiteSession, WebSearchTool,
                    function_tool, set_tracing_disabled)
from openai.types.shared import Reasoning

set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=300)
model = OpenAIResponsesModel(model="scripted", openai_client=client)
called = []


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    called.append(city)
    return "18 degrees"


class Person(pydantic.BaseModel):
    name: str
    age: int


async def main():
    result = {}
    settings = ModelSettings(truncation="auto", verbosity="low", reasoning=Reasoning(effort="low", summary="detailed"),
                             parallel_tool_calls=True, response_include=["reasoning.encrypted_content"])
    agent = Agent(name="a", instructions="Be kind.", model=model, tools=[get_weather, WebSearchTool()],
                  model_settings=settings)
    result["loop"] = (await Runner.run(agent, "weather")).final_output
    result["two"] = (await Runner.run(agent, "two calls")).final_output
    result["called"] = called

    streamed = Runner.run_streamed(agent, "weather")
    kinds = [event.data.type async for event in streamed.stream_events() if event.type == "raw_response_event"]
    result["streamed"] = [streamed.final_output, kinds.count("response.completed"),
                          "response.function_call_arguments.delta" in kinds]

    session = SQLiteSession("s")
    thinker = Agent(name="t", model=model, model_settings=settings)
    first = await Runner.run(thinker, "think", session=session)
    second = await Runner.run(thinker, "count", session=session) # replays the reasoning, sealed
    result["session"] = [first.final_output, second.final_output, [item.type for item in first.new_items]]
    chained = await Runner.run(thinker, "count", previous_response_id=first.last_response_id)
    result["chained"] = chained.final_output

    typed = Agent(name="j", model=model, output_type=Person)
    result["typed"] = (await Runner.run(typed, "json")).final_output.model_dump()

    helper = Agent(name="helper", model=model, handoff_description="Helps.")
    front = Agent(name="front", model=model, handoffs=[helper])
    handed = await Runner.run(front, "hand over")
    result["handed"] = [handed.last_agent.name, handed.final_output]

    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]}
    direct = await client.responses.create(model="scripted", input="weather", tool_choice=allowed, tools=[
        {"type": "function", "name": name, "strict": False,
         "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
        for name in ("get_time", "get_weather")])
    result["allowed"] = [item.name for item in direct.output if item.type == "function_call"]
    print(json.dumps(result))


asyncio.run(main())
