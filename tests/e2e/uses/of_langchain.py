"""LangChain's ChatOpenAI and ChatOllama: a call with its second turn, a context that is exceeded."""

import json
import sys

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI

url, model = sys.argv[1:]


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "18"


seen = {}
for name, chat in (("openai", ChatOpenAI(model=model, base_url=url + "/v1", api_key="none", max_retries=0)),
                   ("ollama", ChatOllama(model=model, base_url=url, num_ctx=100_000, temperature=0))):
    mine = seen[name] = {}
    with_tools = chat.bind_tools([get_weather])
    messages = [HumanMessage("the weather?")]
    said = with_tools.invoke(messages)
    mine["calls"] = [[call["name"], call["args"]] for call in said.tool_calls]
    messages += [said, ToolMessage("18", tool_call_id=said.tool_calls[0]["id"])]
    mine["answer"] = with_tools.invoke(messages).content
    mine["streamed"] = "".join(piece.content for piece in chat.stream("now count"))
    try:
        chat.invoke("overflow")
    except ContextOverflowError:
        mine["overflow"] = "ContextOverflowError"
    except Exception as e:
        mine["overflow"] = str(e)
print(json.dumps(seen))
