"""Long chats for make_corpus.py: instructions of agents, lists of tools and many turns, up to the model's whole context.

Instructions are paragraphs of the documentation of Python's standard library between rules and settings, as a stand-in for
what agents and front ends send before a user's first word. The model answers as it does without them.
"""

import importlib
import inspect
import json
import re
from functools import cache

import words
from tool_chats import tool_chat

LONGEST = 8192
PROSE, CHAT, LISTED = 2.4, 4.1, 2.6  # characters per token of instructions, of chats, of tools as the template lists them
MODULES = ["argparse", "asyncio", "bisect", "calendar", "collections", "configparser", "csv", "datetime", "decimal", "difflib",
           "email.message", "fractions", "ftplib", "functools", "gettext", "heapq", "html.parser", "http.client", "imaplib",
           "itertools", "json", "logging", "mailbox", "os", "pathlib", "pickle", "queue", "random", "re", "sched", "shutil",
           "smtplib", "socket", "sqlite3", "statistics", "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading",
           "traceback", "typing", "unittest", "urllib.request", "uuid", "wave", "zipfile"]
ROLES = ["a coding agent that works in a terminal", "an assistant inside an editor", "an agent that plans and uses tools",
         "a research assistant", "a careful helper for a small company", "an assistant with access to files and a browser"]
RULES = ["Always {a} before you {b}.", "Never {a} unless the user asks you to {b}.", "Do not {a} or {b}.",
         "If you cannot {a}, {b} instead.", "When you {a}, {b} as well.", "You may {a}, but must not {b}.",
         "Prefer to {a} rather than to {b}.", "**Important**: {a} first, then {b}."]
DEEDS = ["read the file", "run the tests", "ask for permission", "explain the change", "write a short plan", "search the web",
         "quote your sources", "keep the answer brief", "use Markdown", "call a tool", "edit several files at once", "commit",
         "delete anything", "guess a path", "show your reasoning", "check the result", "update the list of tasks",
         "respect the style of the project", "repeat the question", "open a network connection", "format code", "save notes"]
HEADINGS = ["Instructions", "Tone and style", "Tool use", "Rules", "Environment", "Workflow", "Safety", "Examples", "Formatting",
            "Memory", "Planning", "Notes", "Guidelines", "Permissions", "Output"]
SETTINGS = ["Platform: linux", "Working directory: /home/{n}/project", "Shell: bash", "Today's date: 20{d}-{d}-{d}", "User: {n}",
            "Language: English", "Is a git repository: yes", "Model: storyteller", "Session: {d}{d}{d}"]
VERBS = ["list", "read", "write", "search", "fetch", "create", "update", "delete", "open", "move", "send", "get", "add", "query",
         "view", "replace", "run", "apply", "find", "toggle"]
NOUNS = ["file", "notes", "web", "url", "memory", "memories", "chat", "chats", "knowledge_bases", "channel", "messages", "image",
         "calendar_event", "automation", "task", "document", "code", "command", "patch", "page", "skill", "user", "folder", "issue",
         "table", "email", "contact", "events", "process", "directory"]
PARAMETERS = ["query", "path", "content", "title", "count", "id", "url", "limit", "offset", "start_timestamp", "end_timestamp",
              "pattern", "command", "prompt", "name", "old_text", "new_text", "description", "status", "channel_id", "note_id",
              "knowledge_id", "recursive", "language", "code", "skip", "folder", "labels", "timeout_ms", "replace_all"]


@cache
def paragraphs():
    """Paragraphs of the standard library's documentation."""
    found = set()
    for name in MODULES:
        module = importlib.import_module(name)
        things = [module, *(thing for _, thing in inspect.getmembers(module) if inspect.isclass(thing) or inspect.isroutine(thing))]
        things += [thing for outer in things[1:] if inspect.isclass(outer) for _, thing in inspect.getmembers(outer)
                   if inspect.isroutine(thing)]
        for thing in things:
            try:
                text = inspect.getdoc(thing) or ""
            except Exception:  # some descriptors have no text to give
                continue
            found.update(part.strip("\n") for part in re.split(r"\n\s*\n", text) if 60 < len(part) < 1500)
    return sorted(found)


def rule(rng):
    first, second = rng.sample(DEEDS, 2)
    return rng.choice(RULES).format(a=first, b=second)


def setting(rng):
    return re.sub(r"\{d\}", lambda _: str(rng.randint(10, 28)), rng.choice(SETTINGS)).replace("{n}", rng.choice(words.NAMES_F).lower())


def instructions(rng, tokens):
    """An agent's instructions of about so many tokens."""
    parts = [f"You are {rng.choice(ROLES)}."]
    size = 0
    while size < tokens * PROSE:
        if rng.random() < 0.25:
            parts.append(rng.choice(("# ", "## ", "### ", "")) + rng.choice(HEADINGS))
        kind = rng.random()
        if kind < 0.6:
            part = rng.choice(paragraphs())
        elif kind < 0.9:
            mark = rng.choice(("- ", "* ", ""))
            part = "\n".join(mark + rule(rng) for _ in range(rng.randint(1, 6)))
        else:
            part = "\n".join(["<env>", *(setting(rng) for _ in range(rng.randint(2, 5))), "</env>"])
        parts.append(part)
        size += len(part)
    return "\n\n".join(parts)


def other_tool(rng):
    properties = {}
    for name in rng.sample(PARAMETERS, rng.choice((0, 1, 1, 2, 2, 3, 4, 5))):
        properties[name] = {"type": rng.choice(("string", "string", "string", "integer", "boolean", "array", "object"))}
        if rng.random() < 0.05:
            properties[name] = {"enum": rng.sample(words.COLORS, 3)}
    return {"type": "function", "function": {"name": f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}",
                                             "parameters": {"type": "object", "properties": properties}}}


def other_tools(rng, tokens):
    """Tools of about so many tokens, none of which the user asks for."""
    made, size = {}, 0
    while size < tokens * LISTED and len(made) < 400:
        tool = other_tool(rng)["function"]
        made[tool["name"]] = {"type": "function", "function": tool}
        size += 30 + len(tool["name"]) + sum(len(name) + 14 for name in tool["parameters"]["properties"])
    return list(made.values())


def long_chat(rng, chats, other_chat):
    """`chats(rng)` makes the turns of a chat, `other_chat(rng)` those of one that needs no tool."""
    tokens = int(LONGEST * (0.08 + 0.9 * rng.random()))
    before = int(tokens * rng.choice((0.0, 0.3, 0.6, 0.9)) * rng.random()) if rng.random() < 0.85 else 0
    listed = int(before * rng.choice((0, 0, 0.5, 1)))
    made = dict(kind="long", messages=[])
    if listed:
        offered = other_tools(rng, listed)
        if rng.random() < 0.7:
            chat = tool_chat(rng, other_chat)
            made["messages"] += chat["messages"]
            offered += chat["tools"]
        rng.shuffle(offered)
        made["tools"] = offered
        chats = other_chat
    size = before + sum(len(message["content"]) for message in made["messages"]) / CHAT
    while size < tokens or not made["messages"]:
        turns = chats(rng)
        made["messages"] += turns
        size += sum(len(message["content"]) / CHAT + 8 for message in turns)
    if before > listed:
        made["messages"].insert(0, {"role": "system", "content": instructions(rng, before - listed)})
    return made
