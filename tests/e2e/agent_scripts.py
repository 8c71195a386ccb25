"""Scripts of models for agents (scripted.py): they reason, and call tools in Hermes' format."""

import json

from scripted import SCRIPTS, write_folder

TEMPLATE = ("{%- if tools -%}{#- <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call> -#}{%- endif -%}"
            "{%- if false -%}<think></think>{%- endif -%}")


def call(name, **arguments):
    """One piece: a guide forces what follows a function's name by tokens of its own, and then a script loses its place."""
    return '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (name, json.dumps(arguments))


AGENT_SCRIPTS = {
    "tool ": SCRIPTS["tool "],
    "long weather": ['<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par', 'is"}}\n</tool_call>'],
    "two calls": [call("get_weather", city="Paris"), "\n", call("get_weather", city="Rome")],
    "weather": [call("get_weather", city="Paris")],
    "think": SCRIPTS["think"],
    "json": ['{"name": "Martha", "age": 55}'],
    "count": SCRIPTS["count"],
    "hand over": [call("transfer_to_helper")],
    "": SCRIPTS[""],
}


# As Qwen's: system messages stand at the beginning.
STRICT = ("{%- for message in messages[1:] -%}{%- if message.role == 'system' -%}"
          "{{- raise_exception('System message must be at the beginning.') -}}{%- endif -%}{%- endfor -%}")


def write_agent(path, scripts, template=TEMPLATE):
    """A model that draws greedily: agents ask for no temperature. Returns the folder."""
    folder = write_folder(path, scripts, template=template)
    config = folder / "generation_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"temperature": 0}))
    return folder
