"""Run by test_agents.py with the interpreter that has pydantic-ai and LangChain: loops by responses. Prints JSON."""

import asyncio
import json
import sys

import pydantic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

API = {"base_url": sys.argv[1] + "/v1", "api_key": "none"}


class Person(pydantic.BaseModel):
    name: str
    age: int


def pydantic_ai():
    settings = OpenAIResponsesModelSettings(openai_reasoning_effort="low", openai_reasoning_summary="detailed",
                                            openai_truncation="auto", openai_text_verbosity="low")
    model = OpenAIResponsesModel("scripted", provider=OpenAIProvider(**API))
    agent = Agent(model, model_settings=settings, instructions="Be kind.")

    @agent.tool_plain
    def get_weather(city: str) -> str:
        return "18 in " + city

    async def streamed():
        async with agent.run_stream("weather") as answer:
            return await answer.get_output()

    first = agent.run_sync("weather")
    second = agent.run_sync("think", message_history=first.all_messages())
    third = agent.run_sync("count", message_history=second.all_messages())
    typed = Agent(model, output_type=NativeOutput(Person)).run_sync("json").output
    return [first.output, second.output, third.output, asyncio.run(streamed()), typed.model_dump()]


def langchain():
    @tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return "18 in " + city

    model = ChatOpenAI(**API, model="scripted", use_responses_api=True, reasoning={"effort": "low", "summary": "detailed"},
                       verbosity="low", truncation="auto", include=["reasoning.encrypted_content"], max_retries=0)
    bound = model.bind_tools([get_weather, {"type": "web_search"}])
    question = HumanMessage("weather")
    call = bound.invoke([question])
    result = ToolMessage("18", tool_call_id=call.tool_calls[0]["id"])
    thought = model.invoke("think")
    return [[one["args"] for one in call.tool_calls], bound.invoke([question, call, result]).text,
            model.invoke([HumanMessage("think"), thought, HumanMessage("count")]).text,
            "".join(part.text for part in bound.stream("think"))]


print(json.dumps({"pydantic-ai": pydantic_ai(), "langchain": langchain()}))
