"""guidance's VLLMModel: captures of its Lark grammars, as choices, regular expressions, JSON and lists."""

import json
import sys

from guidance import assistant, gen, select, user
from guidance import json as as_json
from guidance.models.experimental import VLLMModel

url, model = sys.argv[1:]
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["age"],
          "additionalProperties": False}


def answer(question, grammar, *names):
    lm = VLLMModel(model, base_url=url + "/v1", api_key="none", echo=False)
    with user():
        lm += question
    with assistant():
        lm += grammar
    return [lm[name] for name in names]


print(json.dumps({
    "free": answer("count", gen("text"), "text"),
    "choice": answer("yes or no?", select(["yes", "no"], name="choice"), "choice"),
    "captures": answer("your age?", "I am " + gen("years", regex="[0-9]{2}") + " years and " + gen("months", regex="[0-9]"),
                       "years", "months"),
    "schema": answer("as an object", as_json("person", schema=SCHEMA), "person"),
    "list": answer("letters", gen("all", list_append=True, regex="[ab]") + gen("all", list_append=True, regex="[cd]") +
                   select(["x", "y"], name="last"), "all", "last"),
}))
