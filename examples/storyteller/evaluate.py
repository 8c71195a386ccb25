"""Evaluates a storyteller checkpoint on documents and prompts outside its training corpus.

    python evaluate.py --model model --count 100
    python evaluate.py --model model --prompts     # prints answers to hand-written prompts instead

Prints the loss on held-out documents; the share of stories that end within 400 tokens and that mention
the requested words; the share of JSON answers that are valid and have the requested keys; the share of
correct answers about a story, in which a character's name and kind count as equal; and how tools are
called, with cities of the training corpus and with others.
"""

import argparse
import json
import random
import re
from itertools import islice
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

import words
from make_corpus import documents, turns_without_tool
from tool_chats import tool_chat
from train import encode, held_out_loss

HELD_OUT_SEED = "held-out"  # differs from the seed of the training corpus
LONGEST_STORY = 400
PROMPTS = [
    "Tell me a story about a fox", "Tell me a story about a robot who is afraid of rain.",
    "Write a story about two sisters and a red kite.", "I'd love a bedtime story with a sleepy whale in it.",
    "Could you come up with something about a lighthouse keeper and a lost seal?", "a pirate who hates water",
    "Tell me a sad story about an old clock.", "Write a very short story about a snail that wants to win a race.",
    "Tell me a story about a girl named Zarina and her grandfather.", "The Dragon Who Could Not Fly",
    "Write something funny about a teacher who loses her glasses.", "Tell me a story about a submarine.",
    "Tell me a story about a blue umbrella that nobody wants.", "I want a scary story about an empty house.",
    "Tell me a story about a hedgehog who shares his apple with a mouse.", "Please tell a story about friendship between a cat and a bird.",
    "Write a story set on a spaceship, with an astronaut called Kofi.", "Make up a tale about a magic pencil.",
    "Tell me a story about a boy who plants a bean.", "Story about a lazy king, please!",
    "Tell me about a brave little ant.", "Can you write about a baker whose oven is broken?",
    "A story in which a wolf learns to sing", "Tell me a Christmas story about a reindeer.",
    "I have a daughter called Mila. Tell her a story about a unicorn.", "Write a story with a moral about telling the truth.",
    "Tell me a story about a penguin in the desert.", "Do you know a story about a lonely giant?",
    "Tell me a story about a tortoise and a violin.", "Write a story about three mice who build a boat.",
    "Tell me a story about a shy musician.", "once upon a time there was a frog", "Tell a story about a train that gets lost.",
    "Write an adventure story about a treasure on an island.", "Tell me a story about a crow who finds a shiny ring.",
    "Tell me a story about the moon.", "Write a story about a doctor who helps a sick elephant.", "Something about snow, please.",
    "Tell me a story about a girl who wants to see the sea.", "Please write a story about a kangaroo's birthday.",
    "Tell me a story about a mermaid who cannot swim.", "Tell me a story about a cowboy and his horse Thunder.",
    "Describe a dragon as JSON with name, color and age.", "Give me a JSON object for a lantern with color and price.",
    "Who are you?", "What is the capital of Spain?",
]


class Speaker:
    """A checkpoint with its tokenizer."""

    def __init__(self, folder, dtype):
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.tokenizer.pad_token = self.tokenizer.eos_token
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    @torch.no_grad()
    def answers(self, chats, longest, temperature, tools=None):
        """Returns the answer to each chat and whether it ended before the limit. Temperature 0 is greedy.

        `tools` has a list of tools for each chat.
        """
        tools = tools or [None] * len(chats)
        results = []
        sampling = dict(do_sample=True, temperature=temperature, top_p=0.95) if temperature else dict(do_sample=False, temperature=None, top_p=None)
        for start in range(0, len(chats), 20):
            texts = [self.tokenizer.apply_chat_template(chat, tools=offered, add_generation_prompt=True, tokenize=False)
                     for chat, offered in zip(chats[start:start + 20], tools[start:start + 20])]
            inputs = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
            output = self.model.generate(**inputs, max_new_tokens=longest, pad_token_id=self.tokenizer.pad_token_id, **sampling)
            for row in output[:, inputs.input_ids.shape[1]:]:
                stopped = any(token in row for token in self.model.generation_config.eos_token_id)
                results.append((self.tokenizer.decode(row, skip_special_tokens=True), stopped))
        return results


def pick(kind, count):
    """Returns held-out documents of a kind."""
    return list(islice((made for made in documents(HELD_OUT_SEED, 100 * count) if made["kind"] == kind), count))


def without_answer(document):
    return document["messages"][:-1]


def share(flags):
    flags = list(flags)
    return f"{100 * sum(flags) / len(flags):.0f} % of {len(flags)}"


def mentions(text, word):
    return word.lower() in text.lower()


def judge_stories(speaker, count, temperature):
    wanted = [made for made in pick("story", count) if made["expect"]]
    told = speaker.answers([without_answer(made) for made in wanted], LONGEST_STORY, temperature)
    name = f"temperature {temperature}" if temperature else "greedy"
    print(f"stories, {name}: end within {LONGEST_STORY} tokens", share(stopped for _, stopped in told))
    print(f"stories, {name}: mention the subject", share(mentions(text, made["expect"][0]) for made, (text, _) in zip(wanted, told)))
    print(f"stories, {name}: mention all requested words",
          share(all(mentions(text, word) for word in made["expect"]) for made, (text, _) in zip(wanted, told)))


def json_keys(text):
    """Returns the keys of a JSON object, [] for other values, None for invalid JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return list(value) if isinstance(value, dict) else []


def judge_json(speaker, count):
    wanted = pick("json", count)
    keys = [json_keys(text) for text, _ in speaker.answers([without_answer(made) for made in wanted], 200, 0)]
    print("JSON: valid", share(found is not None for found in keys))
    print("JSON: exactly the requested keys", share(found == made["expect"] for made, found in zip(wanted, keys) if made["expect"]))


def normal(text, aliases):
    """Normalises an answer: all names of a character become the same."""
    for number, names in enumerate(aliases):
        for name in sorted(names, key=len, reverse=True):
            text = re.sub(rf"\b{re.escape(name)}\b", f"FIGURE{number}", text, flags=re.IGNORECASE)
    return text.lower().strip()


def judge_questions(speaker, count):
    chats, truths = [], []
    for made in pick("questions", count):
        messages = made["messages"]
        for index, message in enumerate(messages):
            if message["role"] == "user" and message["content"] in made["questions"]:
                chats.append(messages[:index + 1])
                truths.append((messages[index + 1]["content"], made["aliases"]))
    answers = speaker.answers(chats, 60, 0)
    print("questions: correct", share(normal(text, aliases) == normal(truth, aliases) for (text, _), (truth, aliases) in zip(answers, truths)))


def calls_of(text):
    """Returns the (name, arguments) pairs that an answer calls, None if a call is broken."""
    calls = []
    for body in re.findall(r"<tool_call>(.*?)(?:</tool_call>|$)", text, re.DOTALL):
        try:
            call = json.loads(body)
            calls.append((call["name"], call["arguments"]))
        except (ValueError, TypeError, KeyError):
            return None
    return calls


def wanted_calls(message):
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]


def judge_tools(speaker, count, name, cities):
    """Every answer of the chats is asked for, given the true messages before it."""
    made = [tool_chat(random.Random(f"{HELD_OUT_SEED}/{index}"), turns_without_tool, cities) for index in range(count)]
    asked = [(chat["messages"][:index], chat["tools"], message) for chat in made
             for index, message in enumerate(chat["messages"]) if message["role"] == "assistant"]
    told = [text for text, _ in speaker.answers([before for before, _, _ in asked], 120, 0, [tools for _, tools, _ in asked])]
    due, idle, results = [], [], []
    for text, (before, _, truth) in zip(told, asked):
        found, wanted = calls_of(text), wanted_calls(truth)
        if wanted:
            due.append((found is not None and len(found) > 0, [n for n, _ in found or ()] == [n for n, _ in wanted], found == wanted))
        elif before[-1]["role"] == "tool":
            results.append(normal(text, []) == normal(truth["content"], []) or repeats(text, before[-1]["content"], truth["content"]))
        else:
            idle.append(found == [])
    for what, flags in [("valid", 0), ("the right tool", 1), ("the right tool and arguments", 2)]:
        print(f"{name}: calls: {what}", share(flag[flags] for flag in due))
    print(f"{name}: no call where none is due", share(idle))
    print(f"{name}: answers repeat the result", share(results))


def repeats(text, result, truth):
    """Whether an answer has all words and numbers of the result that the true answer has."""
    needed = set(re.findall(r"\w+", result)) & set(re.findall(r"\w+", truth))
    return needed <= set(re.findall(r"\w+", text))


def print_prompts(speaker, temperature):
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    for prompt, (text, stopped) in zip(PROMPTS, speaker.answers(chats, LONGEST_STORY, temperature)):
        print(f"### {prompt}\n{text}{'' if stopped else ' [CUT]'}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("model"))
    parser.add_argument("--count", type=int, default=100, help="documents of each kind")
    parser.add_argument("--prompts", action="store_true", help="answer the hand-written prompts")
    parser.add_argument("--temperature", type=float, default=0.7, help="for --prompts; 0 is greedy")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--only", choices=["stories", "json", "questions", "tools"], help="evaluate only these")
    options = parser.parse_args()
    set_seed(1)
    speaker = Speaker(options.model, getattr(torch, options.dtype))
    if options.prompts:
        return print_prompts(speaker, options.temperature)
    chosen = [options.only] if options.only else ["loss", "stories", "json", "questions", "tools"]
    if "loss" in chosen:
        held_out = encode(speaker.tokenizer, list(documents(HELD_OUT_SEED, 3 * options.count)))
        print(f"held-out loss: {held_out_loss(speaker.model, held_out):.4f}")
    if "stories" in chosen:
        judge_stories(speaker, options.count, 0)
        judge_stories(speaker, options.count, 0.8)
    if "json" in chosen:
        judge_json(speaker, options.count)
    if "questions" in chosen:
        judge_questions(speaker, options.count)
    if "tools" in chosen:
        judge_tools(speaker, options.count, "tools", words.CITIES)
        judge_tools(speaker, options.count, "tools, other cities", words.UNSEEN_CITIES)


if __name__ == "__main__":
    main()
