"""Phrases for make_corpus.py: articles, plurals and lists; picked and invented names and nouns."""

import re

import words


def article(phrase):
    """Adds the article: 'a fox', 'an owl'. Foods and phrases that have an article are unchanged."""
    first = phrase.split()[0].lower()
    if first in ("a", "an", "the", "one", "some") or phrase in words.FOODS:
        return phrase
    silent = first.startswith(("honest", "hour"))
    vowel = first[0] in "aeiou" and not first.startswith(("uni", "use", "eu", "ukulele"))
    return ("an " if silent or vowel else "a ") + phrase


def without_article(phrase):
    return re.sub(r"^(a|an|the) ", "", phrase)


def plural(noun):
    if noun in words.IRREGULAR_PLURALS:
        return words.IRREGULAR_PLURALS[noun]
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return noun + "es"
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + "s"


def listing(items, word="and"):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" {word} " + items[-1]


def capital(text):
    return text[:1].upper() + text[1:]


def invented_noun(rng):
    """Invents a noun. Half of them join parts of two real words, which covers the letter groups of English."""
    if rng.random() < 0.5:
        first, second = rng.choice(words.ANIMALS + words.OBJECTS), rng.choice(words.OBJECTS + words.ANIMALS)
        return first[:rng.randint(2, 4)] + second[-rng.randint(2, 5):]
    return rng.choice(words.NOUN_STARTS) + rng.choice(words.NOUN_MIDDLES) + rng.choice(words.NOUN_ENDS)


def invented_name(rng):
    return rng.choice(words.NAME_STARTS) + "".join(rng.choices(words.NAME_ENDS, k=rng.choice((1, 1, 2))))


def pick_name(rng, gender):
    roll = rng.random()
    if roll < 0.25:
        return invented_name(rng)
    if roll < 0.4:
        return rng.choice(words.NAMES_ANY)
    if gender == "n":
        gender = rng.choice("fm")
    return rng.choice(words.NAMES_F if gender == "f" else words.NAMES_M)


def pick_noun(rng, choices, invented=0.07):
    """Picks a word of the list, sometimes an invented one, so that the model learns to copy any requested word."""
    return invented_noun(rng) if rng.random() < invented else rng.choice(choices)
