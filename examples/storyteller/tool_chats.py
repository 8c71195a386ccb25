"""Chats with tools for make_corpus.py: what the user asks, the call, its result and the answer.

A tool has a usual name and usual parameters, and others by which it is offered now and then, so that the model copies
names and words instead of knowing them by heart.
"""

import json
from dataclasses import dataclass

import words
from phrases import invented_name, listing

# Usual name: (weight, further names, {usual parameter: (type, further names)}).
TOOLS = {
    "get_weather": (5, ["weather", "get_current_weather", "check_weather"],
                    {"city": ("string", ["location", "place", "town"])}),
    "roll_dice": (4, ["dice", "throw_dice"],
                  {"sides": ("integer", ["faces"]), "count": ("integer", ["number", "dice"])}),
    "set_timer": (4, ["timer", "start_timer"], {"minutes": ("integer", ["duration", "time"])}),
    "get_time": (3, ["clock", "get_current_time"], {"city": ("string", ["location", "place", "town"])}),
}
DONE = ["ok", "done", '{"ok": true}', '{"status": "ok"}', '{"success": true}', "true"]
FAULTS = ["no connection", "not allowed", "try again later", "something is broken", "too busy"]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]

WEATHER_REQUESTS = [
    "What is the weather in {}?", "What is the weather like in {}?", "How is the weather in {}?", "Weather for {}",
    "What's the weather in {}?", "How is the weather in {} today?", "Is it raining in {}?", "How warm is it in {}?",
    "Do I need an umbrella in {}?", "Weather in {}, please.", "Tell me the weather in {}.", "Is it cold in {}?",
    "I go to {} tomorrow. What is the weather there?", "Could you check the weather in {}?",
    "What is the weather in {} right now?", "Check the weather in {} for me.", "Is the sun shining in {}?",
    "I live in {}. Will it rain?", "What is the temperature in {}?",
]
ONE_DIE = ["Roll a die.", "Roll one die, please.", "Throw a die.", "Please roll a die for me."]
SOME_DICE = ["Roll {n} dice.", "Throw {n} dice for me.", "Please roll {n} dice.", "Roll {n} dice for my game.",
             "I want to roll {n} dice.", "Can you roll {n} dice?"]
ONE_DIE_WITH = ["Roll a die with {s} sides.", "Roll one {d}-sided die.", "Roll a d{d}.",
                "Throw a die that has {s} sides.", "Please roll one die with {s} sides."]
SOME_DICE_WITH = ["Roll {n} dice with {s} sides.", "Roll {n} {d}-sided dice.", "Roll {c}d{d}.",
                  "Throw {n} dice with {s} sides each.", "Can you roll {n} dice that have {s} sides?",
                  "Please roll {n} dice with {s} sides for me."]
TIMER_REQUESTS = [
    "Set a timer for {}.", "Please set a timer for {}.", "Start a timer for {}.", "Timer for {}, please.",
    "Wake me in {}.", "My egg needs {}. Set a timer.", "I need a timer for {}.", "Can you set a timer for {}?",
    "Remind me in {}.", "Set the timer to {}.", "The cake must bake for {}. Please set a timer.",
    "I want to sleep for {}. Set a timer.",
]
TIME_REQUESTS = ["What time is it in {}?", "How late is it in {}?",
                 "Tell me the time in {}.", "What is the time in {}?"]


@dataclass
class Task:
    """One thing that a user asks of a tool. `arguments` and `tool` have their usual names."""
    tool: str
    text: str
    arguments: dict
    result: str
    answer: str


def number(rng, value):
    """The number as digits or, if it is small, sometimes as a word."""
    return NUMBERS[value] if value < len(NUMBERS) and rng.random() < 0.4 else str(value)


def pick_city(rng, cities):
    return invented_name(rng) if rng.random() < 0.15 else rng.choice(cities)


def weather_report(rng, city):
    """A result of get_weather and the answer made of it."""
    sky, degrees = rng.choice(words.WEATHERS), rng.randint(-15, 38)
    result = rng.choice([
        {"weather": sky, "temperature": degrees}, {"city": city, "weather": sky, "temperature": degrees},
        {"temperature": degrees, "sky": sky}, {"location": city, "temp": degrees, "condition": sky},
        f"{sky}, {degrees} degrees", f"{degrees} degrees and {sky}", sky])
    if result == sky:
        return result, rng.choice(["It is {w} in {c}.", "The weather in {c} is {w}."]).format(w=sky, c=city)
    answer = rng.choice(["It is {w} in {c}, with {d} degrees.", "The weather in {c} is {w}, with {d} degrees."])
    return result if isinstance(result, str) else json.dumps(result), answer.format(w=sky, c=city, d=degrees)


def weather(rng, cities):
    city = pick_city(rng, cities)
    text = rng.choice(WEATHER_REQUESTS).format(city)
    return Task("get_weather", text, {"city": city}, *weather_report(rng, city))


def dice(rng, _cities):
    count, sides = rng.choices(range(1, 7), (30, 30, 18, 10, 6, 6))[0], 6
    usual = rng.random() < 0.35
    if not usual:
        sides = rng.choice([4, 8, 10, 12, 20, 100, 6, 3, 30, rng.randint(2, 60)])
    templates = (ONE_DIE if usual else ONE_DIE_WITH) if count == 1 else (SOME_DICE if usual else SOME_DICE_WITH)
    text = rng.choice(templates).format(n=number(rng, count), c=count, s=number(rng, sides), d=sides)
    rolls = [rng.randint(1, sides) for _ in range(count)]
    results = [rolls, {"rolls": rolls}, {"result": rolls}, {"rolls": rolls, "total": sum(rolls)}]
    if count == 1:
        results += [rolls[0], {"result": rolls[0]}]
    result = rng.choice(results)
    answer = f"You rolled {listing(list(map(str, rolls)))}."
    if isinstance(result, dict) and "total" in result and count > 1:
        answer += f" That makes {sum(rolls)}."
    text_result = ", ".join(map(str, rolls)) if rng.random() < 0.2 and "makes" not in answer else json.dumps(result)
    return Task("roll_dice", text, {"sides": sides, "count": count}, text_result, answer)


def timer(rng, _cities):
    minutes = rng.choice([1, 2, 3, 5, 10, 15, 20, 25, 30, 45, 60, 90, rng.randint(1, 120), rng.randint(1, 60)])
    phrase = {1: "one minute", 30: "half an hour", 60: "an hour"}.get(minutes) if rng.random() < 0.6 else None
    unit = "minute" if minutes == 1 else "minutes"
    text = rng.choice(TIMER_REQUESTS).format(phrase or f"{number(rng, minutes)} {unit}")
    answer = rng.choice(["The timer is set for {}.", "Your timer runs for {}."]).format(f"{minutes} {unit}")
    result = rng.choice([*DONE, "started", '{"timer": "running"}'])
    return Task("set_timer", text, {"minutes": minutes}, result, answer)


def clock(rng, cities):
    city, time = pick_city(rng, cities), f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}"
    text = rng.choice(TIME_REQUESTS).format(city)
    return Task("get_time", text, {"city": city}, rng.choice([time, json.dumps({"time": time})]),
                f"It is {time} in {city}.")


ASK = {"get_weather": weather, "roll_dice": dice, "set_timer": timer, "get_time": clock}
UNCLEAR = [("get_weather", ["What is the weather?", "How is the weather?"], "In which city?"),
           ("set_timer", ["Set a timer.", "I need a timer."], "For how many minutes?")]
NO_TOOL = ["I am sorry, I have no tool for that.", "I can not do that. I have no tool for it."]


class Offer:
    """The tools of a chat, each with the names by which it is offered."""

    def __init__(self, rng, count):
        self.rng = rng
        left = dict((usual, weight) for usual, (weight, _, _) in TOOLS.items())
        self.names = {}  # usual name: (name, {usual parameter: name})
        for _ in range(count):
            usual = rng.choices(list(left), left.values())[0]
            del left[usual]
            self.names[usual] = self._named(usual)

    def _named(self, usual):
        rng, (_, others, parameters) = self.rng, TOOLS[usual]
        name = rng.choice(others) if rng.random() < 0.25 else usual
        order = list(parameters)
        if rng.random() < 0.15:
            order.reverse()
        return name, {key: rng.choice(parameters[key][1]) if rng.random() < 0.25 else key for key in order}

    def listed(self):
        """The tools as a request to OpenAI's API has them."""
        made = []
        for usual, (name, parameters) in self.names.items():
            properties = {given: {"type": TOOLS[usual][2][key][0]} for key, given in parameters.items()}
            schema = {"type": "object", "properties": properties, "required": list(properties)}
            made.append({"type": "function", "function": {"name": name, "parameters": schema}})
        return made

    def call(self, task):
        name, parameters = self.names[task.tool]
        arguments = {given: task.arguments[key] for key, given in parameters.items()}
        return {"type": "function", "function": {"name": name, "arguments": arguments}}

    def pick(self, offered=True):
        """A usual name of an offered tool, or of one that is not."""
        names = [usual for usual in TOOLS if (usual in self.names) == offered]
        return self.rng.choices(names, [TOOLS[usual][0] for usual in names])[0] if names else None


def said(rng, text):
    """The text as people write it, some more carelessly than others."""
    roll = rng.random()
    if roll < 0.06:
        text = text[0].lower() + text[1:]
    elif roll < 0.12 and text[-1] in ".?":
        text = text[:-1]
    elif roll < 0.2:
        text = rng.choice(["Hi! ", "Hello! ", "Please help me. "]) + text
    return text


def turn(role, content):
    return {"role": role, "content": content}


def called_turns(rng, offer, text, tasks):
    """A request, the calls, their results and the answer."""
    answers = []
    turns = [turn("user", said(rng, text)), {**turn("assistant", ""),
                                             "tool_calls": [offer.call(task) for task in tasks]}]
    for task in tasks:
        fault = rng.choice(FAULTS) if rng.random() < 0.04 else ""
        result = rng.choice([f"error: {fault}", json.dumps({"error": fault})]) if fault else task.result
        turns.append(turn("tool", result))
        answers.append(f"I am sorry, that did not work: {fault}." if fault else task.answer)
    return [*turns, turn("assistant", " ".join(answers))]


def two_calls(rng, offer, cities):
    """One request for two calls: the weather of two cities, or two things one after the other."""
    if "get_weather" in offer.names and (rng.random() < 0.5 or len(offer.names) < 2):
        first, second = weather(rng, cities), weather(rng, cities)
        text = rng.choice(["What is the weather in {} and in {}?", "How is the weather in {} and {}?",
                           "Is it warmer in {} or in {}?",
                           "Weather in {} and {}, please."]).format(first.arguments["city"], second.arguments["city"])
    elif len(offer.names) < 2:
        return one_call(rng, offer, cities)
    else:
        first, second = (ASK[usual](rng, cities) for usual in rng.sample(list(offer.names), 2))
        text = f"{first.text} {rng.choice(('', 'Then: ', 'And: '))}{second.text}"
    return called_turns(rng, offer, text, [first, second])


def one_call(rng, offer, cities):
    task = ASK[offer.pick()](rng, cities)
    return called_turns(rng, offer, task.text, [task])


def no_tool(rng, offer, cities):
    """A request for a tool that is not offered, or one that lacks an argument."""
    unclear = [entry for entry in UNCLEAR if entry[0] in offer.names]
    if unclear and rng.random() < 0.3:
        _, texts, answer = rng.choice(unclear)
        return [turn("user", rng.choice(texts)), turn("assistant", answer)]
    task = ASK[offer.pick(offered=False)](rng, cities)
    return [turn("user", said(rng, task.text)), turn("assistant", rng.choice(NO_TOOL))]


def ordinary(rng, offer, other_chat):
    """A request that needs no tool. Requests that are answered differently where there is a tool are left out."""
    while True:
        turns = other_chat(rng)
        if not any(word in message["content"] for message in turns for word in ("weather today", "time is it")):
            return turns


def tool_chat(rng, other_chat, cities=words.CITIES):
    """A chat of one to three requests. `other_chat(rng)` makes the turns of one that needs no tool."""
    offer = Offer(rng, rng.choices((1, 2, 3), (35, 40, 25))[0])
    messages = []
    for _ in range(rng.choices((1, 2, 3), (45, 35, 20))[0]):
        kind = rng.choices((one_call, two_calls, no_tool, ordinary), (62, 7, 11, 20))[0]
        messages += ordinary(rng, offer, other_chat) if kind is ordinary else kind(rng, offer, cities)
    return dict(kind="tools", tools=offer.listed(), messages=messages)
