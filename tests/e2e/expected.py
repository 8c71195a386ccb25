"""The part of transformers' results that must match exactly."""

MODEL = "llama-gqa"
PROMPT = "ROMEO:\n"


def binding(case):
    """The number of greedy ids that must match: those before the first margin within rounding error."""
    margins = case["greedy"]["margins"]
    return next((i for i, margin in enumerate(margins) if margin < 1e-3), len(margins))


def text_of(server, ids):
    answer = server.post("/detokenize", {"tokens": list(ids)})
    assert answer.status_code == 200, answer.text
    return answer.json()["prompt"]


def greedy_text(server, golden, number=0):
    return text_of(server, golden["cases"][number]["greedy"]["ids"])
