"""Trains the storyteller, or its draft model, on the documents of make_corpus.py.

    python train.py --corpus corpus.jsonl --tokenizer-out tokenizer            # once: the tokenizer
    python train.py --corpus corpus.jsonl --tokenizer tokenizer --out model    # the main model
    python train.py --corpus corpus.jsonl --tokenizer tokenizer --out draft \\
        --hidden 64 --layers 3 --heads 2 --kv-heads 1 --ffn 192                # the draft model

torchrun divides each step among several processes. On a busy machine this is faster than several
threads in one process, which wait for each other at every operation:

    torchrun --nproc-per-node 2 train.py --threads 1 ...

Needs torch, transformers, tokenizers and safetensors. A run ends after --tokens or --minutes,
whichever comes first; the learning rate falls to zero by then. --init starts from the weights of an
earlier run, --grow from those of a smaller model, which on a slow machine learns much more in the same
time.
"""

import argparse
import copy
import json
import math
import os
import random
import shutil
import time
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BOS, EOS, TURN, TURN_END = "<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
VOCABULARY = 4096
CONTEXT = 8192
DRILL = 1  # the id of EOS, which starts a copying drill
TURN_ID = 2
IGNORED = -100  # target of padding
ATTENTION = "sdpa"  # for documents of 512 tokens twice as fast as "eager" (torch 2.15), and long ones fit into memory
HELD_OUT = 100  # documents kept for the held-out loss


def read_documents(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def plain(document):
    """Returns the text of a document without markers."""
    return document.get("text") or "\n".join(message["content"] for message in document["messages"])


def train_tokenizer(documents, folder):
    """Trains a byte-level BPE that splits words like Llama 3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[BOS, EOS, TURN, TURN_END],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(map(plain, documents), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=TURN_END,
                                      clean_up_tokenization_spaces=False, model_max_length=CONTEXT)
    wrapped.chat_template = CHAT_TEMPLATE.read_text(encoding="utf-8")
    wrapped.save_pretrained(folder)


def encode(tokenizer, documents):
    """Returns the token ids of each document, cut to the context."""
    texts = [BOS + document["text"] + EOS if "text" in document
             else tokenizer.apply_chat_template(document["messages"], tools=document.get("tools"), tokenize=False)
             for document in documents]
    encoded = tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [one.ids[:CONTEXT] for one in encoded]


def encoded_corpus(tokenizer, path):
    """Returns the ids of all documents. They are cached in a file next to the corpus."""
    kept = path.with_suffix(".ids.pt")
    if not kept.exists():
        encoded = encode(tokenizer, read_documents(path))
        lengths = torch.tensor([len(ids) for ids in encoded])
        torch.save((torch.tensor([token for ids in encoded for token in ids], dtype=torch.int16), lengths), kept)
    flat, lengths = torch.load(kept)
    return [ids.tolist() for ids in flat.split(lengths.tolist())]


def alike(sequences, tokens_per_batch):
    """Returns batches of whole documents. Those of a batch have similar lengths, so there is little padding."""
    left, made = sorted(sequences, key=len, reverse=True), []
    while left:
        rows = max(1, tokens_per_batch // padded(len(left[0])))
        made.append(left[:rows])
        left = left[rows:]
    return made


def batches(sequences, tokens_per_batch, rng):
    """Yields batches forever."""
    pool_size = 4096
    while True:
        rng.shuffle(sequences)
        for start in range(0, len(sequences), pool_size):
            made = alike(sequences[start:start + pool_size], tokens_per_batch)
            rng.shuffle(made)
            yield from made


def padded(length):
    return -(-length // 32) * 32


def tensors(batch, device):
    """Returns ids and following ids, both [rows, longest]. Padding is at the end, where causal attention ignores it."""
    width = padded(max(map(len, batch)))
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    following = torch.full((len(batch), width), IGNORED)
    for row, sequence in enumerate(batch):
        ids[row, :len(sequence)] = torch.tensor(sequence)
        following[row, :len(sequence) - 1] = ids[row, 1:len(sequence)]
    return ids.to(device), following.to(device)


def new_model(options, tokenizer):
    if options.init:
        return LlamaForCausalLM.from_pretrained(options.init, dtype=torch.float32, attn_implementation=ATTENTION)
    model = LlamaForCausalLM(LlamaConfig(
        attn_implementation=ATTENTION,
        vocab_size=VOCABULARY, hidden_size=options.hidden, num_hidden_layers=options.layers,
        intermediate_size=options.ffn, num_attention_heads=options.heads, num_key_value_heads=options.kv_heads,
        head_dim=options.hidden // options.heads, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
        rms_norm_eps=1e-5, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id))
    if options.grow:
        grow(LlamaForCausalLM.from_pretrained(options.grow, dtype=torch.float32), model)
    return model


@torch.no_grad()
def grow(small, large):
    """Copies a small model into a corner of a large one, which then computes the same function.

    New parts write zeros into the residual stream but read from it with random weights, so they can
    learn. Both models need the same head size and the same number of query heads per key head.
    """
    silent = ("embed_tokens.weight", "o_proj.weight", "down_proj.weight")
    # The new dimensions are zero, which reduces the mean square by this ratio.
    ratio = small.config.hidden_size / large.config.hidden_size
    known = dict(small.named_parameters())
    for name, weight in large.named_parameters():
        if name.endswith(silent):
            weight.zero_()
        if name not in known:
            continue
        if weight.ndim == 1:
            weight[:len(known[name])] = known[name] * math.sqrt(ratio)
        else:
            rows, columns = known[name].shape
            weight[:rows, :columns] = known[name]


def join_processes():
    """Returns the rank of this process and the number of processes."""
    if "RANK" not in os.environ:
        return 0, 1
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def average(values):
    """Replaces each tensor by its mean over the processes."""
    if dist.is_initialized():
        flat = torch.cat([value.flatten() for value in values]).cpu()
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for value, part in zip(values, flat.split([value.numel() for value in values])):
            value.copy_(part.view_as(value))


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon with adjust_lr_fn="match_rms_adamw", but in a dtype of choice: without bf16 instructions, float32
    is four times as fast."""

    def __init__(self, matrices, lr, weight_decay, dtype, momentum=0.95):
        super().__init__(matrices, dict(lr=lr, weight_decay=weight_decay, dtype=dtype, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for matrix in group["params"]:
                average = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1.0 - group["momentum"])
                update = orthogonal(matrix.grad.lerp(average, group["momentum"]).to(group["dtype"]))
                matrix.mul_(1.0 - group["lr"] * group["weight_decay"])
                matrix.add_(update.to(matrix.dtype), alpha=-0.2 * math.sqrt(max(matrix.shape)) * group["lr"])


def orthogonal(matrix):
    """Returns roughly the nearest orthogonal matrix, by five Newton-Schulz steps with the coefficients of torch."""
    tall = matrix.shape[0] > matrix.shape[1]
    result = matrix.T if tall else matrix
    result = result / result.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = result @ result.T
        result = torch.addmm(result, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), result, beta=3.4445)
    return result.T if tall else result


class Trainer:
    """Computes in --dtype. The optimizers update float32 weights, which are copied to the model.

    Muon, which needs few tokens, updates the matrices of the layers; AdamW updates the embedding and
    the norms. Muon's steps are scaled to AdamW's, so both use the same learning rate.
    """

    def __init__(self, model, weigh, options):
        self.weigh = weigh
        self.model = model.to(options.device, getattr(torch, options.dtype))
        named = list(model.named_parameters())
        self.pairs = [(weight, weight.detach().float().clone()) for _, weight in named]
        matrices = [exact for (name, weight), (_, exact) in zip(named, self.pairs) if weight.ndim == 2 and "embed" not in name]
        chosen = set(map(id, matrices))
        others = [exact for _, exact in self.pairs if id(exact) not in chosen]
        self.optimizers = [
            Muon(matrices, lr=options.lr, weight_decay=options.decay, dtype=getattr(torch, options.dtype)),
            torch.optim.AdamW(others, lr=options.lr, betas=(0.9, 0.95), weight_decay=0.0)]

    def step(self, batch, rate):
        """Makes one update and returns the weighted loss."""
        loss = batch_loss(self.model, batch, self.weigh)
        loss.backward()
        for weight, exact in self.pairs:
            exact.grad = weight.grad.float()
        average([exact.grad for _, exact in self.pairs])
        torch.nn.utils.clip_grad_norm_([exact for _, exact in self.pairs], 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        with torch.no_grad():
            for weight, exact in self.pairs:
                weight.copy_(exact)
        self.model.zero_grad()
        return loss.item()


def rate_factor(step, progress, warm_up):
    """A warm-up, then a cosine from 1 to 0."""
    return min(1.0, (step + 1) / warm_up) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


def batch_loss(model, batch, weigh=None):
    """Returns the mean loss per token. The logits stay in bf16, which is much faster on a CPU."""
    ids, following = tensors(batch, model.device)
    logits = model(input_ids=ids, use_cache=False).logits
    losses = F.cross_entropy(logits.flatten(0, 1), following.flatten(), ignore_index=IGNORED, reduction="none").float()
    weights = (following != IGNORED).flatten().float()
    if weigh is not None:
        weights *= weigh(ids, following).flatten()
    return (losses * weights).sum() / weights.sum()


def drill(rng):
    """Returns random tokens, repeated several times, that start with the end token instead of the usual start token.

    Drills teach copying, which a model learns slowly from stories alone.
    """
    phrase = [rng.randrange(4, VOCABULARY) for _ in range(rng.randint(8, 32))]
    return [DRILL] + phrase * rng.choice((2, 3))


class LossWeights:
    """Gives more weight to rare words that occur again in a document, such as a requested fox and its name, and less to
    the turns of a chat that the model does not write.

    Coherent stories need the words of the request, and small models learn to repeat these last.
    """

    def __init__(self, sequences, copies, requests, assistant):
        counts = torch.bincount(torch.tensor([token for ids in sequences for token in ids]), minlength=VOCABULARY)
        self.rare = counts < 0.0015 * counts.sum()
        self.copies, self.requests = copies, requests  # weights
        self.assistant = assistant  # first token of the word

    def __call__(self, ids, following):
        """Returns the loss weight of each following token, [rows, longest]."""
        seen_before = (following[:, :, None] == ids[:, None, :]).tril().any(-1)
        chosen = seen_before & self.rare.to(ids.device)[following.clamp(min=0)]
        first_time = (ids[:, :1] == DRILL) & ~seen_before  # the first occurrence is random
        return torch.where(self._answers(ids), 1.0, self.requests) * (1.0 + (self.copies - 1.0) * chosen) * ~first_time

    def _answers(self, ids):
        """Whether each token is in a turn of the assistant, or in a text without turns."""
        starts = ids == TURN_ID
        last = torch.where(starts, torch.arange(ids.shape[1], device=ids.device), -1).cummax(1).values
        roles = ids.gather(1, (last + 1).clamp(max=ids.shape[1] - 1))
        return (roles == self.assistant) | ~starts.any(1, keepdim=True)


@torch.no_grad()
def held_out_loss(model, sequences):
    """Returns the mean loss per token over whole documents."""
    model.eval()
    total = count = 0
    for batch in alike(sequences, 16384):
        tokens = sum(len(sequence) - 1 for sequence in batch)
        total += batch_loss(model, batch).item() * tokens
        count += tokens
    model.train()
    return total / count


def save(model, tokenizer, options, out=None):
    """Writes a Hugging Face checkpoint. The tokenizer's files are copied unchanged, except the chat template."""
    out = out or options.out
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, do_sample=True, temperature=0.7, top_p=0.95,
        eos_token_id=[tokenizer.convert_tokens_to_ids(TURN_END), tokenizer.convert_tokens_to_ids(EOS)])
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):  # the folder may hold a model, too
        shutil.copy(Path(options.tokenizer) / name, out)
    shutil.copy(CHAT_TEMPLATE, out)


def train(options):
    rank, processes = join_processes()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    tokenizer.chat_template = CHAT_TEMPLATE.read_text(encoding="utf-8")
    sequences = encoded_corpus(tokenizer, options.corpus)
    held_out, sequences = sequences[:HELD_OUT], sequences[HELD_OUT:]
    sequences = [ids for ids in sequences if len(ids) <= options.longest]
    drills = random.Random(options.seed)
    sequences += [drill(drills) for _ in range(int(options.drills * len(sequences)))]
    model = new_model(options, tokenizer)
    if rank == 0:
        print(f"{len(sequences)} documents, {sum(map(len, sequences))} tokens", flush=True)
        print(f"{sum(weight.numel() for weight in model.parameters())} parameters", flush=True)

    assistant = tokenizer.encode("assistant", add_special_tokens=False)[0]
    trainer = Trainer(model, LossWeights(sequences, options.copy_weight, options.request_weight, assistant), options)
    source = batches(sequences, options.batch // processes, random.Random(options.seed))
    start = saved = time.time()
    seen = step = 0
    keep = sorted(options.keep)
    progress = torch.zeros(1) if options.tokens else torch.ones(1)
    while progress < 1.0:
        share = list(islice(source, processes))  # all processes get the same batches; each uses its own
        loss = trainer.step(share[rank], options.lr * rate_factor(step, progress.item(), options.warm_up))
        step += 1
        seen += sum(len(sequence) for batch in share for sequence in batch)
        elapsed = time.time() - start
        progress.fill_(max(seen / options.tokens, elapsed / 60 / options.minutes))
        average([progress])  # clocks differ, but all processes must stop at the same step
        while keep and seen >= keep[0]:
            if rank == 0:
                save(model, tokenizer, options, options.out.with_name(f"{options.out.name}-{keep[0]:.0f}"))
            keep.pop(0)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} tokens {seen} loss {loss:.3f} {seen / elapsed:.0f} tokens/s", flush=True)
        if rank == 0 and time.time() - saved > options.save_minutes * 60:
            print(f"step {step} held-out loss {held_out_loss(model, held_out):.4f}", flush=True)
            save(model, tokenizer, options)
            saved = time.time()
    if rank == 0:
        save(model, tokenizer, options)
        print(f"done: {step} steps, {seen} tokens, {(time.time() - start) / 60:.1f} minutes, "
              f"held-out loss {held_out_loss(model, held_out):.4f}")
    if processes > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--tokenizer-out", type=Path, help="train a tokenizer into this folder and stop")
    parser.add_argument("--tokenizer", type=Path, help="folder of the tokenizer")
    parser.add_argument("--out", type=Path, help="folder of the checkpoint")
    parser.add_argument("--init", type=Path, help="checkpoint to start from")
    parser.add_argument("--grow", type=Path, help="smaller checkpoint to widen and deepen")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--ffn", type=int, default=512)
    parser.add_argument("--tokens", type=float, default=30e6, help="tokens to train on; 0 writes the initial model")
    parser.add_argument("--minutes", type=float, default=math.inf, help="minutes to train, if that is shorter")
    parser.add_argument("--keep", type=float, nargs="+", default=[], metavar="TOKENS",
                        help="after so many tokens, also write the model to OUT-TOKENS")
    parser.add_argument("--batch", type=int, default=8192, help="tokens per step, padding included")
    parser.add_argument("--longest", type=int, default=CONTEXT, help="leave out longer documents")
    parser.add_argument("--copy-weight", type=float, default=3.0, help="weight of rare words that occur again")
    parser.add_argument("--request-weight", type=float, default=1.0, help="weight of turns that are not the assistant's")
    parser.add_argument("--drills", type=float, default=0.0, help="copying drills per document")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warm-up", type=int, default=50, help="steps until the learning rate is reached")
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--save-minutes", type=float, default=8.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"], help="what the model computes in; "
                        "float32 is faster on a CPU without bf16 instructions")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.tokenizer_out:
        train_tokenizer(read_documents(options.corpus)[:40000], options.tokenizer_out)
    else:
        train(options)


if __name__ == "__main__":
    main()
