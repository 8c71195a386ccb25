"""Prints Markdown tables of weights that are mapped from their file: first tokens after a start, decoding against
weights in memory, a model of 1.5 times the memory there is, and a mixture whose experts are read as they are chosen.

    python3 tests/bench/mapped.py build/release/troupe --folder /var/tmp/mapped

Models are GGUF files of random weights in Q8_0, written to --folder once (1.1 GB and 2.6 GB, and as much for the packed
files): a Llama of 1 B parameters, and a mixture of 128 experts, of which 8 are chosen. Memory is limited by a control
group below this process's own, of version 1 or 2, which needs root; without one only the first tables are printed.
Bytes that were read are those of /proc/PID/io. The disk's bandwidth is that of reading the packed file in order, past
the system's cache, in the same run. Answers are compared token by token and log-probability by log-probability.
"""

import argparse
import contextlib
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

BLOCK = 34  # bytes of 32 weights in Q8_0
GIB = 1 << 30


# -- models -----------------------------------------------------------------------------------------------------------


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def pair(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        kinds = {str: (8, text), float: (6, lambda v: struct.pack("<f", v)), int: (5, lambda v: struct.pack("<i", v))}
        kind, packed = kinds[type(value[0])]
        return text(key) + struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(packed, value))
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    return text(key) + struct.pack("<II", 4, value)


def tokenizer(vocab):
    """Bytes, and made-up words."""
    special = ["<unk>", "<s>", "</s>"]
    return {"tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": special + [f"<0x{i:02X}>" for i in range(256)] +
            [f"\u2581w{i}" for i in range(vocab - 259)],
            "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(vocab - 259)],
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (vocab - 259),
            "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}


def random_blocks(seed, count=1 << 16):
    """Blocks of Q8_0 with weights of about 0.02."""
    source = random.Random(seed)
    scales = [struct.pack("<e", 0.02 / 73 * source.uniform(0.8, 1.2)) for _ in range(256)]
    return b"".join(source.choice(scales) + source.randbytes(32) for _ in range(count))


def write_gguf(path, facts, tensors):
    """`tensors`: names and shapes, outermost first; one dimension is f32, more are Q8_0."""
    pieces = random_blocks(str(path.name))
    source = random.Random(1)
    sizes = []
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(facts))] + [pair(*fact) for fact in facts.items()]
    offset = 0
    for name, shape in tensors:
        count = 1
        for size in shape:
            count *= size
        quantised = len(shape) > 1
        sizes.append((count // 32 * BLOCK if quantised else 4 * count, quantised))
        head.append(text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape)) +
                    struct.pack("<IQ", 8 if quantised else 0, offset))
        offset += (sizes[-1][0] + 31) // 32 * 32
    head = b"".join(head)
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as out:
        out.write(head.ljust((len(head) + 31) // 32 * 32, b"\0"))
        for bytes_, quantised in sizes:
            left = bytes_
            while left > 0 and quantised:
                start = source.randrange(len(pieces) // BLOCK) * BLOCK
                left -= out.write(pieces[start:start + left])
            if not quantised:
                out.write(struct.pack("<f", 1.0) * (bytes_ // 4))
            out.write(b"\0" * (-bytes_ % 32))
    partial.rename(path)


def llama(path, layers=16, hidden=2048, ffn=8192, vocab=50257, kv=512):
    facts = {"general.architecture": "llama", "llama.context_length": 2048, "llama.vocab_size": vocab,
             "llama.embedding_length": hidden, "llama.block_count": layers, "llama.feed_forward_length": ffn,
             "llama.attention.head_count": hidden // 64, "llama.attention.head_count_kv": kv // 64,
             "llama.attention.layer_norm_rms_epsilon": 1e-5, **tokenizer(vocab)}
    tensors = [("token_embd.weight", (vocab, hidden)), ("output_norm.weight", (hidden,))]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}.weight", shape) for name, shape in (
            ("attn_norm", (hidden,)), ("ffn_norm", (hidden,)), ("attn_q", (hidden, hidden)), ("attn_k", (kv, hidden)),
            ("attn_v", (kv, hidden)), ("attn_output", (hidden, hidden)), ("ffn_gate", (ffn, hidden)),
            ("ffn_up", (ffn, hidden)), ("ffn_down", (hidden, ffn)))]
    write_gguf(path, facts, tensors)


def mixture(path, layers=4, hidden=2048, ffn=768, experts=128, chosen=8, vocab=32000, kv=512, dim=128):
    facts = {"general.architecture": "qwen3moe", "qwen3moe.context_length": 2048, "qwen3moe.vocab_size": vocab,
             "qwen3moe.embedding_length": hidden, "qwen3moe.block_count": layers, "qwen3moe.feed_forward_length": 4 * ffn,
             "qwen3moe.expert_feed_forward_length": ffn, "qwen3moe.expert_count": experts,
             "qwen3moe.expert_used_count": chosen, "qwen3moe.attention.head_count": hidden * 2 // dim,
             "qwen3moe.attention.head_count_kv": kv // dim, "qwen3moe.attention.key_length": dim,
             "qwen3moe.attention.value_length": dim, "qwen3moe.attention.layer_norm_rms_epsilon": 1e-6,
             **tokenizer(vocab)}
    tensors = [("token_embd.weight", (vocab, hidden)), ("output_norm.weight", (hidden,))]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}.weight", shape) for name, shape in (
            ("attn_norm", (hidden,)), ("ffn_norm", (hidden,)), ("attn_q_norm", (dim,)), ("attn_k_norm", (dim,)),
            ("attn_q", (2 * hidden, hidden)), ("attn_k", (kv, hidden)), ("attn_v", (kv, hidden)),
            ("attn_output", (hidden, 2 * hidden)), ("ffn_gate_inp", (experts, hidden)),
            ("ffn_gate_exps", (experts, ffn, hidden)), ("ffn_up_exps", (experts, ffn, hidden)),
            ("ffn_down_exps", (experts, hidden, ffn)))]
    write_gguf(path, facts, tensors)


# -- the system -------------------------------------------------------------------------------------------------------


def own_group(controller):
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return Path("/sys/fs/cgroup") / controller / path.lstrip("/")
        if controllers == "" and (Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.max").exists():
            return Path("/sys/fs/cgroup") / path.lstrip("/")
    return None


@contextlib.contextmanager
def limited(bytes_):
    """A control group below our own; nothing where none can be made."""
    own = own_group("memory")
    group = own / f"troupe-bench-{os.getpid()}" if own else None
    try:
        group.mkdir()
        limit = group / "memory.max" if (group / "memory.max").exists() else group / "memory.limit_in_bytes"
        limit.write_text(str(bytes_))
    except (OSError, AttributeError):
        if group and group.is_dir():
            group.rmdir()
        yield None
        return
    try:
        yield group
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def forget(*files):
    """Has the system drop what it keeps of files."""
    for file in files:
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_bandwidth(file):
    """Bytes a second of reading a file in order, past the system's cache."""
    done, piece = 0, 8 << 20
    import mmap
    buffer = mmap.mmap(-1, piece)  # aligned, as O_DIRECT wants it
    opened = os.open(file, os.O_RDONLY | os.O_DIRECT)
    begin = time.monotonic()
    while count := os.preadv(opened, [buffer], done):
        done += count
        if count % 4096:
            break
    os.close(opened)
    return done / (time.monotonic() - begin)


def read_bytes(pid):
    return int(re.search(r"^read_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)[1])


# -- runs -------------------------------------------------------------------------------------------------------------


class Server:
    def __init__(self, options, model, *flags, group=None):
        self.begun = time.monotonic()
        command = [options.troupe, "serve", "--model", model, "--port", "0", "--packed-cache", options.folder / "packed",
                   "--max-sequences", 1, "--max-context", 512, "--step-tokens", 64, "--speculate", "off",
                   "--no-prefix-cache", *flags]
        enter = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, preexec_fn=enter)
        line = self.process.stdout.readline()
        found = re.search(r"https?://\S+:\d+", line)
        if not found:
            sys.exit(f"the server did not start: {line}{self.process.stderr.read()[-800:]}")
        self.url = found.group().rstrip(".,")
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self.url + "/health", timeout=60).read()
                return
            if self.process.poll() is not None:
                sys.exit(f"the server ended: {self.process.stderr.read()[-800:]}")
            time.sleep(0.005)

    def answer(self, tokens, prompt=(1, 5, 9, 3)):
        body = {"prompt": list(prompt), "max_tokens": tokens, "temperature": 1, "seed": 7, "ignore_eos": True, "logprobs": 2,
                "return_token_ids": True}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        choice = json.load(urllib.request.urlopen(request, timeout=600))["choices"][0]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]

    def read(self):
        return read_bytes(self.process.pid)

    def stop(self):
        self.process.terminate()
        _, err = self.process.communicate(timeout=120)
        return err


def first_tokens(options, model, packed):
    """Seconds from the start of `troupe serve` to its first token."""
    rows = []
    for name, flags, files in (
            ("packed at the start", ["--packed-cache", "none"], []), ("resident, from the packed file", ["--weights", "resident"], []),
            ("mapped, pages cached", ["--weights", "mapped"], []), ("mapped, from the disk", ["--weights", "mapped"], packed)):
        seconds = []
        for _ in range(options.rounds):
            forget(*files)
            server = Server(options, model, *flags)
            server.answer(1)
            seconds.append(time.monotonic() - server.begun)
            server.stop()
        rows.append((name, statistics.median(seconds)))
    return rows


def decoding(options, model):
    """Tokens a second of resident and mapped weights, in turns."""
    rates = {"resident": [], "mapped": []}
    servers = {how: Server(options, model, "--weights", how) for how in rates}
    answers = {how: server.answer(8) for how, server in servers.items()}
    for _ in range(max(3, options.rounds) * 3):
        for how, server in servers.items():
            begin = time.monotonic()
            server.answer(options.tokens)
            rates[how].append(options.tokens / (time.monotonic() - begin))
    for server in servers.values():
        server.stop()
    ratios = [m / r for m, r in zip(rates["mapped"], rates["resident"])]
    return {how: statistics.median(found) for how, found in rates.items()}, statistics.median(ratios), \
        answers["resident"] == answers["mapped"]


def within(options, model, packed, limit, expected, how):
    """A run in a control group of `limit` bytes: its answer, bytes a token, tokens a second, the disk's bandwidth."""
    forget(model, *packed)
    with limited(limit) as group:
        if group is None:
            return None
        server = Server(options, model, "--weights", how, group=group)
        server.answer(2)
        before, begin = server.read(), time.monotonic()
        answer = server.answer(options.tokens)
        seconds, bytes_ = time.monotonic() - begin, server.read() - before
        log = server.stop()
    bandwidth = disk_bandwidth(packed[0])
    said = re.search(r"of which .* from disk", log)
    return {"same": answer == expected, "bytes": bytes_ / options.tokens, "rate": options.tokens / seconds,
            "bandwidth": bandwidth, "share": options.tokens / seconds * bytes_ / options.tokens / bandwidth,
            "said": said.group() if said else ""}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/troupe-mapped"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--only", choices=("first", "decoding", "limit", "mixture"), action="append")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = options.only or ("first", "decoding", "limit", "mixture")
    dense, moe = options.folder / "llama-1b-q8_0.gguf", options.folder / "mixture-q8_0.gguf"

    def prepare(model, make):
        if not model.is_file():
            make(model)
        server = Server(options, model, "--weights", "mapped")  # packs, if it must
        expected = server.answer(options.tokens)
        server.stop()
        packed = sorted((options.folder / "packed").glob(f"{model.stem}*.packed"))
        return expected, packed

    if {"first", "decoding", "limit"} & set(chosen):
        expected, packed = prepare(dense, llama)
        size = packed[0].stat().st_size
        print(f"Llama of 1 B parameters in Q8_0, packed {size / 1e9:.2f} GB\n")
        if "first" in chosen:
            print("| first token after a start | s |\n|---|---|")
            for name, seconds in first_tokens(options, dense, packed):
                print(f"| {name} | {seconds:.2f} |")
            print()
        if "decoding" in chosen:
            rates, ratio, same = decoding(options, dense)
            print("| decoding, batch 1 | tokens/s |\n|---|---|")
            for how, rate in rates.items():
                print(f"| {how} | {rate:.1f} |")
            print(f"\nmapped / resident {ratio:.3f} (median of pairs); answers are {'equal' if same else 'DIFFERENT'}\n")
        if "limit" in chosen:
            report("1 B in 1 / 1.5 of its size", options, dense, packed, int(size / 1.5), expected)
    if "mixture" in chosen:
        expected, packed = prepare(moe, mixture)
        size = packed[0].stat().st_size
        print(f"Mixture of 128 experts in Q8_0, packed {size / 1e9:.2f} GB\n")
        of_token = 4 * 8 * 3 * 768 * 2048 / 32 * BLOCK
        report("mixture in 1 / 1.5 of its size", options, moe, packed, int(size / 1.5), expected, of_token)
        report("mixture in 1 / 4 of its size", options, moe, packed, size // 4, expected, of_token)


def report(name, options, model, packed, limit, expected, chosen_bytes=None):
    print(f"| {name} ({limit / GIB:.2f} GiB) | answers | read a token | tokens/s | disk, GB/s | of what it allows |"
          "\n|---|---|---|---|---|---|")
    notes = []
    for how in ("auto", "mapped"):
        found = within(options, model, packed, limit, expected, how)
        if found is None:
            print("| no control group can be made | | | | | |")
            break
        print(f"| {how} | {'equal' if found['same'] else 'DIFFERENT'} | {found['bytes'] / 1e6:.0f} MB | {found['rate']:.2f} | "
              f"{found['bandwidth'] / 1e9:.2f} | {found['share']:.2f} |")
        notes.append(f"{how}: {found['said']}" + (
            f"; read {found['bytes'] / chosen_bytes:.2f} of the bytes of the chosen experts" if chosen_bytes else ""))
    print("\n" + "\n".join(notes) + "\n", flush=True)


if __name__ == "__main__":
    main()
