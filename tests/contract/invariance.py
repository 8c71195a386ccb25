#!/usr/bin/env python3
"""Does a server answer a request alone as it does under load? A black box: works with any server of OpenAI's completions.

  tests/contract/invariance.py http://127.0.0.1:8080
  tests/contract/invariance.py http://127.0.0.1:8081 --model llama --requests 60 --crowd 16

Each request is answered alone first. Then all are asked again: in another order, many at once, and many at once beside others
of other lengths that begin and end meanwhile. What differs from the answer alone is counted: texts, and log-probabilities of
texts that are equal. Exit status: 0 if nothing differs, 1 if something does, 2 if the server cannot be asked.

Only the standard library is needed. Half of the requests take the likeliest token; the others draw with a seed, which a server
may ignore: they are counted apart.
"""
import argparse
import concurrent.futures
import json
import random
import sys
import threading
import urllib.error
import urllib.request

WORDS = ("the a fox river night old king with under stone and then she went home because rain had fallen on seven hills while "
         "nobody knew where light came from or why birds sang so early in winter when all fields were white").split()


class Refused(Exception):
    pass


class Server:
    def __init__(self, url, model, key, logprobs):
        self.url, self.model, self.key, self.logprobs = url.rstrip("/"), model, key, logprobs

    def ask(self, body):
        body = {**body, **({"model": self.model} if self.model else {})}
        if self.logprobs is not None:
            body["logprobs"] = self.logprobs
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                choice = json.load(answer)["choices"][0]
        except urllib.error.HTTPError as error:
            raise Refused(f"{error.code}: {error.read()[:300].decode(errors='replace')}") from error
        except OSError as error:
            raise Refused(str(error)) from error
        return {"text": choice["text"], "logprobs": logprobs_of(choice)}


def logprobs_of(choice):
    """Of the chosen tokens; None where the server gives none. OpenAI's older form, or that of chats."""
    given = choice.get("logprobs") or {}
    if given.get("token_logprobs"):
        return given["token_logprobs"]
    if given.get("content"):
        return [token["logprob"] for token in given["content"]]
    return None


def make_requests(count, tokens, longest, seed):
    """Prompts of many lengths, a third of which begin alike."""
    chance = random.Random(seed)
    shared = " ".join(chance.choices(WORDS, k=longest // 3))
    for number in range(count):
        words = " ".join(chance.choices(WORDS, k=chance.randint(2, longest)))
        prompt = f"{shared} {words}"[:6 * longest] if number % 3 == 0 else words
        drawn = number % 2 == 1
        yield {"prompt": prompt, "max_tokens": chance.randint(tokens // 2, tokens),
               "temperature": 0.8 if drawn else 0, "seed": 1000 + number}


def at_once(server, requests, order, crowd, beside=()):
    """Answers by the requests' places; at most `crowd` under way. `beside` are asked over and over meanwhile."""
    ended = threading.Event()

    def distract(body):
        while not ended.is_set():
            try:
                server.ask(body)
            except Refused:  # its load is what counts
                ended.wait(0.1)

    others = [threading.Thread(target=distract, args=(body,), daemon=True) for body in beside]
    for other in others:
        other.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(crowd) as pool:
            futures = {place: pool.submit(server.ask, requests[place]) for place in order}
            return {place: future.result() for place, future in futures.items()}
    finally:
        ended.set()
        for other in others:
            other.join()


class Differences:
    def __init__(self):
        self.compared = self.texts = self.numbers = 0
        self.largest, self.first = 0.0, None

    def add(self, alone, again):
        self.compared += 1
        if alone["text"] != again["text"]:
            self.texts += 1
            a, b = alone["text"], again["text"]
            place = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            self.first = place if self.first is None else min(self.first, place)
        elif alone["logprobs"] and again["logprobs"]:
            gap = max((abs(x - y) for x, y in zip(alone["logprobs"], again["logprobs"])
                       if x is not None and y is not None), default=0.0)
            self.numbers += gap > 0
            self.largest = max(self.largest, gap)

    def any(self):
        return self.texts + self.numbers > 0

    def row(self):
        return {"requests": self.compared, "texts_differ": self.texts, "first_character": self.first,
                "logprobs_differ": self.numbers, "largest_difference": self.largest}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--model", help="its name, where the server wants one")
    parser.add_argument("--key", help="of its API")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=48, help="of the longest answer")
    parser.add_argument("--longest", type=int, default=300, help="words of the longest prompt")
    parser.add_argument("--crowd", type=int, default=16, help="requests at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one object")
    given = parser.parse_args()

    server = Server(given.url, given.model, given.key, 1)
    requests = list(make_requests(given.requests, given.tokens, given.longest, given.seed))
    try:
        try:
            server.ask({"prompt": "a", "max_tokens": 1, "temperature": 0})
        except Refused:
            server.logprobs = None  # some servers refuse them; texts are compared all the same
            server.ask({"prompt": "a", "max_tokens": 1, "temperature": 0})
        alone = [server.ask(body) for body in requests]
        places = list(range(len(requests)))
        chance = random.Random(given.seed)
        beside = list(make_requests(4, given.tokens, 2 * given.longest, given.seed + 1))
        rounds = {"alone, in reverse": at_once(server, requests, places[::-1], 1),
                  "at once": at_once(server, requests, places, given.crowd),
                  "at once, shuffled, beside others": at_once(
                      server, requests, chance.sample(places, len(places)), given.crowd, beside)}
    except Refused as why:
        print(f"{given.url} cannot be asked: {why}", file=sys.stderr)
        return 2

    rows, differ = {}, False
    for name, answers in rounds.items():
        for kind, drawn in (("likeliest", 0), ("drawn", 1)):
            found = Differences()
            for place, again in answers.items():
                if place % 2 == drawn:
                    found.add(alone[place], again)
            rows[f"{name}, {kind}"] = found.row()
            differ = differ or found.any()
    if given.json:
        print(json.dumps({"logprobs": server.logprobs is not None, "rounds": rows}))
    else:
        print(f"{'round':46} {'requests':>8} {'other text':>11} {'other log-probabilities':>24}")
        for name, row in rows.items():
            largest = f" (by {row['largest_difference']:.2g})" if row["logprobs_differ"] else ""
            print(f"{name:46} {row['requests']:8} {row['texts_differ']:11} {str(row['logprobs_differ']) + largest:>24}")
        print("nothing differs" if not differ else "answers depend on what else the server does")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
