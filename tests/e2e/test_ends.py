"""Where answers end, from folders and from GGUF files, which name ends and mark tokens in different ways."""

import json

import pytest
from conftest import client_of
from scripted import prompt_of, write_folder, write_gguf
from make_scripted import ARRAY, I32, PAD, STRING, U32, Model

CHATML = {"": ["Hello, ", "world!", "<|im_end|>", "\nuser: and now?"]}
HARMONY = {
    "weather": ["<|channel|>", "commentary", " to=functions.get_weather ", "<|constrain|>", "json", "<|message|>",
                '{"city": "Paris"}', "<|call|>", "and more"],
    "": ["<|channel|>", "analysis", "<|message|>", "They greet.", "<|end|>", "<|start|>", "assistant", "<|channel|>",
         "final", "<|message|>", "Hello!", "<|return|>", "and more"],
}
HARMONY_TOKENS = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"]
HARMONY_TEMPLATE = "{#- <|start|>assistant<|channel|>analysis<|message|>...<|end|> -#}"
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]


def answer(launch, model, text="hi", **more):
    server = launch(model=model)
    client = client_of(server)
    made = client.chat.completions.create(
        model=client.models.list().data[0].id, messages=[{"role": "user", "content": text}], max_tokens=40,
        temperature=0, **more)
    return made.choices[0]


def rewrite(file, **members):
    file.write_text(json.dumps(json.loads(file.read_text()) | members))


@pytest.mark.parametrize("kind", [1, 3, 4], ids=["normal", "control", "user-defined"])
def test_a_fine_tune_in_chatml_ends_its_answers_from_gguf(launch, tmp_path, kind):
    model = Model(CHATML, special=["<|im_end|>"])
    kinds = [1] * 256 + [kind if text == "<|im_end|>" else 3 if text in model.special else 4 for text in model.added]
    file = write_gguf(tmp_path / "m.gguf", CHATML, special=["<|im_end|>"],
                      keys=[("tokenizer.ggml.token_type", (ARRAY, I32), kinds)])
    made = answer(launch, file)
    assert (made.message.content, made.finish_reason) == ("Hello, world!", "stop")


@pytest.mark.parametrize("says", ["tokenizer_config.json", "special_tokens_map.json", "the template"])
def test_a_fine_tune_in_chatml_ends_its_answers_from_a_folder(launch, tmp_path, says):
    folder = write_folder(tmp_path / "m", CHATML, special=["<|im_end|>"])
    config = folder / "tokenizer_config.json"
    if says == "the template":
        template = folder / "chat_template.jinja"
        shown = ("{%- if messages[-1].role == 'assistant' -%}{{ messages[-1].content }}<|im_end|>{{ '\n' }}"
                 "{%- else -%}" + template.read_text() + "{%- endif -%}")
        template.write_text(shown)
    else:
        members = json.loads(config.read_text())
        members.pop("eos_token")
        config.write_text(json.dumps(members))
        file = folder / says
        said = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(said | {"eos_token": "<|im_end|>"}))
    made = answer(launch, folder)
    assert (made.message.content, made.finish_reason) == ("Hello, world!", "stop")


@pytest.mark.parametrize("source", ["folder", "gguf"])
def test_answers_of_several_messages_end_at_the_last_one(launch, tmp_path, source):
    options = {"special": HARMONY_TOKENS, "template": HARMONY_TEMPLATE}
    ends = Model(HARMONY, **options).ids
    if source == "gguf":
        model = write_gguf(tmp_path / "m.gguf", HARMONY, **options,
                           keys=[("tokenizer.ggml.eos_token_id", U32, ends["<|return|>"])])
    else:
        model = write_folder(tmp_path / "m", HARMONY, **options)
        rewrite(model / "generation_config.json", eos_token_id=[ends["<|return|>"], ends["<|end|>"]])
    server = launch(model=model)
    client = client_of(server)
    name = client.models.list().data[0].id
    ask = lambda text, **more: client.chat.completions.create(
        model=name, messages=[{"role": "user", "content": text}], max_tokens=40, temperature=0, **more).choices[0]
    made = ask("hi")
    assert (made.message.content, made.finish_reason) == ("Hello!", "stop")
    assert made.message.reasoning_content == "They greet."
    called = ask("weather", tools=TOOLS)
    assert called.finish_reason == "tool_calls"
    assert [(c.function.name, json.loads(c.function.arguments)) for c in called.message.tool_calls] == [
        ("get_weather", {"city": "Paris"})]


def test_a_gguf_files_template_for_tools_renders_requests_with_tools(launch, tmp_path):
    scripts = {"first": ["Without tools."], "": ["With tools."]}
    file = write_gguf(tmp_path / "m.gguf", scripts, keys=[
        ("tokenizer.chat_template", STRING, prompt_of(scripts, "first")),
        ("tokenizer.chat_template.tool_use", STRING, "{{ tools[0].function.name[:0] }}" + prompt_of(scripts, ""))])
    assert PAD in prompt_of(scripts, "")
    server = launch(model=file)
    client = client_of(server)
    name = client.models.list().data[0].id
    ask = lambda **more: client.chat.completions.create(
        model=name, messages=[{"role": "user", "content": "hi"}], max_tokens=20, temperature=0,
        **more).choices[0].message.content
    assert ask() == "Without tools."
    assert ask(tools=TOOLS) == "With tools."
