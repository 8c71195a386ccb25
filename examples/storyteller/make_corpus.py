"""Writes the training corpus of the storyteller: generated chats about generated stories.

    python make_corpus.py --count 100000 --seed 1 --out corpus.jsonl
    python make_corpus.py --count 20000 --seed 2 --tools 0.6 --out with-tools.jsonl
    python make_corpus.py --count 20000 --seed 3 --tools 0.3 --long 0.1 --out with-long.jsonl

Each line is one document: {"kind": ..., "messages": [...]} for a chat, with "tools" if the model may call some, or
{"kind": "text", "text": ...} for plain text. The same seed, count and share of chats with tools always give the same
file, and the documents without tools are the same whatever the share. evaluate.py reads the other fields:
`expect` has the words that the first answer must mention, or the keys of the JSON object; `questions` are
the questions with one right answer; `aliases` are the names of each character. Needs only the standard
library.
"""

import argparse
import json
import random
import re

import words
from long_chats import long_chat
from phrases import article, capital, invented_noun, listing, pick_name, pick_noun, plural, without_article
from plots import PLOTS
from tool_chats import tool_chat

OBJECT_LISTS = {
    "object": words.OBJECTS,
    "food": words.FOODS,
    "light": ["lantern", "candle", "lamp", "flashlight", "torch", "jar of fireflies"],
    "toy": ["ball", "kite", "doll", "puppet", "puzzle", "top", "yoyo", "drum", "balloon", "boat", "wagon", "teddy",
            "rope", "hoop", "train", "robot", "boomerang", "sled"],
    "tool": ["rope", "hammer", "shovel", "ladder", "saw", "wrench", "stick", "hook", "net", "spoon", "axe", "lever",
             "pole", "knife", "rake", "screwdriver", "umbrella", "bucket", "chain", "oar"],
    "instrument": ["violin", "flute", "drum", "guitar", "trumpet", "harp", "banjo", "accordion", "fiddle", "piano",
                   "xylophone", "tambourine", "horn", "cello", "harmonica", "clarinet", "tuba", "whistle"],
    "wear": ["hat", "scarf", "cap", "coat", "crown", "ring", "necklace", "belt", "helmet", "ribbon", "apron", "mask",
             "watch", "cape", "bow", "brooch"],
}
GRANDS = ["grandmother", "grandfather", "old teacher", "old dog", "great-aunt", "old cat"]
YOUNG_OLD = ["little", "young", "old", "small", "tiny"]

CHOICE = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{(\w+)\}")


PRONOUNS = {"f": ("she", "her", "her", "herself"), "m": ("he", "him", "his", "himself"),
            "n": ("it", "it", "its", "itself"), "p": ("they", "them", "their", "themselves")}


class Character:
    """A character of a story: a kind ("fox"), any number of names, a gender (f, m, n or p for plural), a trait."""

    def __init__(self, kind, gender, names=(), trait="", number=""):
        self.kind, self.gender, self.names = kind, gender, list(names)
        self.trait, self.number = trait, number

    @property
    def group(self):
        return self.gender == "p"

    def noun(self, adjective=True):
        """The kind with its article or number: 'a brave fox', 'two brave sisters'."""
        adjective = self.trait + " " if self.trait and adjective else ""
        return f"{self.number} {adjective}{self.kind}" if self.group else article(adjective + self.kind)

    def full(self, rng):
        """The introduction: 'a brave fox named Mira'."""
        if not self.names:
            return self.noun()
        return f"{self.noun()} {rng.choice(('named', 'called', 'named'))} {listing(self.names)}"

    def short(self, rng):
        """A later reference: 'Mira' or 'the fox'."""
        if self.names and len(self.names) < 3 and rng.random() < (0.4 if self.group else 0.78):
            return listing(self.names)
        if self.trait in YOUNG_OLD and rng.random() < 0.3 and not self.group:
            return f"the {self.trait} {self.kind}"
        return "the " + self.kind

    def aliases(self):
        """All references to this character."""
        by_name = [*self.names, listing(self.names)] if self.names else []
        return [*by_name, "the " + self.kind, f"the {self.trait} {self.kind}"]

    def speaker(self, rng):
        """A reference to the speaker: the character, or one member of a group."""
        return rng.choice(self.names) if self.group else self.short(rng)


def pick_kind(rng):
    """Picks a kind and its gender."""
    roll = rng.random()
    if roll < 0.5:
        return rng.choice(words.ANIMALS), rng.choice("fm")
    if roll < 0.8:
        kind, gender = rng.choice(words.PEOPLE)
        return kind, rng.choice("fm") if gender == "e" else gender
    gender = rng.choice("fmn")
    return (rng.choice(words.BEINGS) if roll < 0.92 else invented_noun(rng)), gender


def pick_group(rng):
    roll = rng.random()
    if roll < 0.5:
        kind, gender = rng.choice([("sisters", "f"), ("brothers", "m"), ("friends", "n"), ("girls", "f"), ("boys", "m"),
                                   ("children", "n"), ("twins", "n"), ("cousins", "n"), ("neighbors", "n")])
    else:
        single, gender = pick_kind(rng)
        kind = plural(single)
    number = "three" if rng.random() < 0.2 and kind != "twins" else "two"
    names = set()
    while len(names) < (3 if number == "three" else 2):
        names.add(pick_name(rng, gender))
    return Character(kind, "p", sorted(names), number=number)


def pick_hero(rng, plot):
    if rng.random() < 0.1:
        hero = pick_group(rng)
    else:
        kind, gender = pick_kind(rng)
        named = rng.random() < 0.78
        if named and gender == "n":
            gender = rng.choice("fm")
        hero = Character(kind, gender, [pick_name(rng, gender)] if named else [])
    if rng.random() < 0.65:
        hero.trait = rng.choice([trait for trait in words.TRAITS if trait not in plot["avoid"]])
    return hero


def pick_friend(rng, hero):
    while True:
        kind, gender = pick_kind(rng)
        alike = gender == hero.gender and rng.random() < 0.7
        if kind == hero.kind or plural(kind) == hero.kind or alike:
            continue
        if gender == "n":
            gender = "f" if hero.gender == "m" else "m"
        name = pick_name(rng, gender)
        if name in hero.names:
            continue
        trait = rng.choice(YOUNG_OLD + ["kind", "clever", "funny", "wise", "friendly", "quiet"])
        return Character(kind, gender, [name] if rng.random() < 0.5 else [], trait if rng.random() < 0.45 else "")


def pick_fear(rng):
    if rng.random() < 0.6:
        return rng.choice(words.FEARS)
    return plural(pick_noun(rng, words.ANIMALS + words.OBJECTS))


def pick_skill(rng):
    if rng.random() < 0.65:
        return rng.choice(words.SKILLS)
    verb = rng.choice(["draw", "paint", "make", "carve", "sew", "throw", "repair", "use", "catch", "build", "play with"])
    return f"{verb} {article(pick_noun(rng, words.OBJECTS + words.ANIMALS))}"


def pick_extra(rng, source):
    """Picks a value for one of a plot's extra slots."""
    if source == "fears":
        return pick_fear(rng)
    if source == "skills":
        return pick_skill(rng)
    if source == "builds" and rng.random() < 0.35:
        return article(pick_noun(rng, words.OBJECTS))
    if source == "dreams" and rng.random() < 0.35:
        return "the " + pick_noun(rng, [noun for _, noun in words.PLACES])
    lists = {"builds": words.BUILDS, "dreams": words.DREAM_PLACES, "spots": words.SPOTS, "treasures": words.TREASURES,
             "plants": words.PLANTS, "contests": words.CONTESTS, "objects": words.OBJECTS, "grands": GRANDS}
    return rng.choice(lists[source])


OPENINGS_PLACE = [
    "Once upon a time, there {was} {ha} who lived {inplace}.", "Once upon a time, {inplace}, there lived {ha}.",
    "There once {was} {ha} who lived {inplace}.", "{Inplace} there lived {ha}.", "{Ha} lived {inplace}.",
    "Once there {was} {ha}. {He} lived {inplace}.", "Far away, {inplace}, there {was} {ha}.",
    "Long ago, there {was} {ha} who lived {inplace}.", "This is the story of {ha}. {He} lived {inplace}.",
    "Not so long ago, {ha} lived {inplace}.", "Once upon a time, {ha} lived {inplace}.",
]
OPENINGS_PLAIN = [
    "Once upon a time, there {was} {ha}.", "There once {was} {ha}.", "Once there {was} {ha}.",
    "This is the story of {ha}.", "Long ago, there lived {ha}.", "Let me tell you about {ha}.",
]
OPENINGS_NAME_LATER = [
    "Once upon a time, there {was} {hn} who lived {inplace}. {Namewas}.", "{Inplace} there lived {hn}. {Namewas}.",
    "There once {was} {hn} who lived {inplace}. {Namewas}.", "Once there {was} {hn}. {Namewas}. {He} lived {inplace}.",
]
FRIEND_LINES = [
    "{His} best friend was {fa}.", "{He} had a good friend, {fa}.", "{His} friend was {fa}.",
    "Next door lived {fa}.", "Every day {he} met {his} friend, {fa}.", "{His} neighbor was {fa}.",
    "{He} and {fa} were best friends.",
]
PAUSES = [
    "The birds sang in the trees.", "A soft wind was blowing.", "The clouds moved slowly across the sky.",
    "Somewhere a dog barked.", "The sun shone on the roofs.", "It smelled of grass and flowers.",
    "A little bee flew by.", "It was very quiet.", "The leaves danced in the wind.", "Far away, a bell rang.",
    "Time went by.", "The air was cool and clear.", "A snail crossed the path.", "The shadows grew long.",
]
CLOSINGS = [
    "The end.", "And they lived happily ever after.", "And that is the end of the story.",
    "That night, {h} slept very well.", "And if you listen carefully, you can still hear them laugh.",
    "It was a good day.", "{H} never forgot that day.", "That evening, {h} went to bed with a smile.",
]
SAD_CLOSINGS = ["The end.", "{H} never forgot.", "The stars came out, one by one.", "And the wind blew softly."]

SHARED_FACTS = [
    (["Who is the story about?", "Who is the main character?", "Who is the hero of the story?"], "The story is about {ha}."),
]
UNKNOWN_QUESTIONS = [
    "How old was {h}?", "What did {h} have for breakfast?", "What was the name of {h}'s mother?",
    "What color were {h}'s eyes?", "How tall was {h}?", "What was {h}'s favorite song?", "On what day of the week was {h} born?",
]


class Story:
    """A story: its characters and objects, its text, and its facts."""

    def __init__(self, rng, length="", plot=None):
        self.rng, self.length = rng, length
        self.plot = plot or rng.choice(PLOTS)
        self.hero = pick_hero(rng, self.plot)
        self.friend = pick_friend(rng, self.hero)
        self.has_place = rng.random() < 0.8
        self.asked = []  # questions with one right answer
        self.slots = self._fixed_slots()
        self.moral = rng.choice(self.plot["morals"])
        self.has_moral = rng.random() < 0.7
        self.has_trait_line = self.hero.trait in words.TRAITS and rng.random() < (0.9 if length == "long" else 0.6)

    def _fixed_slots(self):
        rng, plot, hero, friend = self.rng, self.plot, self.hero, self.friend
        he, him, his, himself = PRONOUNS[hero.gender]
        fhe, fhim, fhis, _ = PRONOUNS[friend.gender]
        many = hero.group
        slots = dict(
            he=he, him=him, his=his, himself=himself, was="were" if many else "was", isare="are" if many else "is",
            heis=he + (" are" if many else " is"), i="we" if many else "I", im="we are" if many else "I am",
            me="us" if many else "me", my="our" if many else "my", kind=hero.kind, hn=hero.noun(), trait=hero.trait,
            namewas=f"their names were {listing(hero.names)}" if many else f"{his} name was {listing(hero.names or [''])}",
            fhe=fhe, fhim=fhim, fhis=fhis, fk=friend.kind, f1=friend.noun(adjective=False),
            fa=friend.full(rng), ha=hero.full(rng),
            feelbad=rng.choice(plot.get("upset", words.FEEL_BAD)), feelgood=rng.choice(words.FEEL_GOOD))
        slots.update(self._thing_slots())
        slots.update(self._place_slots())
        slots.update(self._day_slots())
        for slot, source in plot["picks"].items():
            if source == "noises":
                slots["noise"], slots["source"] = rng.choice(words.NOISES)
            else:
                slots[slot] = pick_extra(rng, source)
        return slots

    def _thing_slots(self):
        source = self.plot["thing"]
        if source is None:
            return {}
        noun = pick_noun(self.rng, OBJECT_LISTS[source], 0.0 if source == "food" else 0.07)
        if source == "food":
            return dict(o=without_article(noun), oa=noun, oplain=noun, theo="the " + without_article(noun))
        adjective = self.rng.choice(words.OBJECT_ADJECTIVES) if self.rng.random() < 0.5 else ""
        whole = f"{adjective} {noun}".strip()
        return dict(o=noun, oa=article(whole), oplain=article(noun), theo="the " + noun)

    def _place_slots(self):
        preposition, noun = self.rng.choice(words.PLACES)
        if self.rng.random() < 0.05:
            noun = invented_noun(self.rng)
        adjective = self.rng.choice(words.PLACE_ADJECTIVES) if self.rng.random() < 0.4 else ""
        if adjective == "far away":
            whole = f"{article(noun)} far away"
        else:
            whole = article(f"{adjective} {noun}".strip())
        return dict(inplace=f"{preposition} {whole}", place=noun, aplace=f"{preposition} {article(noun)}")

    def _day_slots(self):
        rng = self.rng
        self.weather = rng.choice(words.WEATHERS) if rng.random() < 0.5 else ""
        time = rng.choice(words.TIMES)
        if self.weather == "sunny" and time == "night":
            time = "day"
        self.season = rng.choice(words.SEASONS) if rng.random() < 0.12 else ""
        oneday = "one " + f"{self.weather} {time}".strip()
        return dict(oneday=oneday + (f" in {self.season}" if self.season else ""))

    def fill(self, template):
        """Resolves [a|b] choices and {slots}."""
        while CHOICE.search(template):
            template = CHOICE.sub(lambda match: self.rng.choice(match[1].split("|")), template)
        return SLOT.sub(lambda match: self._slot(match[1]), template)

    def _slot(self, name):
        key = name[0].lower() + name[1:]
        moving = {"h": lambda: self.hero.short(self.rng), "sp": lambda: self.hero.speaker(self.rng),
                  "f": lambda: self.friend.short(self.rng)}
        text = moving[key]() if key in moving else self.slots[key]
        return capital(text) if name[0].isupper() else text

    def uses(self, slot):
        """Whether the plot's beats mention a slot."""
        return any(re.search(r"\{" + slot + r"\}", beat, re.IGNORECASE) for beat in self.plot["beats"])

    def _opening(self):
        rng, hero = self.rng, self.hero
        if not self.has_place:
            start = rng.choice(OPENINGS_PLAIN)
        elif hero.names and rng.random() < 0.25:
            start = rng.choice(OPENINGS_NAME_LATER)
        else:
            start = rng.choice(OPENINGS_PLACE)
        lines = [start]
        if self.has_trait_line:
            lines.append(words.TRAITS[hero.trait])
        if rng.random() < {"short": 0.0, "long": 0.9}.get(self.length, 0.3):
            lines.append("{He} liked " + " and ".join(rng.sample(words.LIKES, rng.choice((1, 1, 2)))) + ".")
        if self.plot["friend"] == "known":
            lines.append(rng.choice(FRIEND_LINES))
        return lines

    def _beats(self):
        keep = {"short": 0.0, "long": 1.0}.get(self.length, 0.6)
        for beat in self.plot["beats"]:
            if beat[0] == "?":
                if self.rng.random() >= keep:
                    continue
                beat = beat[1:]
            yield beat
            if self.rng.random() < (0.25 if self.length == "long" else 0.03):
                yield self.rng.choice(PAUSES)

    def _closing(self):
        lines = [self.moral] if self.has_moral else []
        if self.rng.random() < (0.25 if self.has_moral else 0.6):
            lines.append(self.rng.choice(SAD_CLOSINGS if "sad" in self.plot["moods"] else CLOSINGS))
        return lines

    def tell(self):
        """Generates the text, in one paragraph or several."""
        gap = "\n\n" if self.rng.random() < 0.75 and self.length != "short" else " "
        text = ""
        for line in [*self._opening(), *self._beats(), *self._closing()]:
            new = line.startswith("#")
            text += (gap if new else " ") + self.fill(line.lstrip("#"))
        self.text = text.strip()
        return self.text

    def title(self):
        hero, thing = self.hero, self.slots.get("o")
        who = capital(hero.trait + " " if hero.trait and self.rng.random() < 0.6 else "") + hero.kind.title()
        options = [f"The {who}"]
        if hero.names:
            options.append(listing(hero.names))
        if thing and self.uses("o|theo|oa"):
            options += [f"The {hero.kind.title()} and the {thing.title()}"] * 2
            if len(hero.names) == 1:
                options.append(f"{hero.names[0]} and the {thing.title()}")
        if self.uses("f"):
            options.append(f"The {hero.kind.title()} and the {self.friend.kind.title()}")
        return self.rng.choice(options)

    def clause(self):
        """A relative clause about the plot: 'who loses a red kite'."""
        hints = [hint for hint in self.plot["hints"] if not (self.hero.group and " and " in hint)]
        clause = self.fill(self.rng.choice(hints))
        if self.rng.random() < 0.5 and "oa" in self.slots:
            clause = clause.replace(self.slots["oa"], self.slots["oplain"])
        return plural_clause(clause) if self.hero.group else clause

    def facts(self):
        """Pairs of question and answer, with slots filled."""
        hero, friend = self.hero, self.friend
        pairs = SHARED_FACTS + self.plot["facts"]
        if hero.names and not hero.group:
            pairs = pairs + [(["What was the name of the {kind}?", "What was the {kind} called?", "What was {his} name?"], "{Namewas}.")]
            pairs = pairs + [([f"What kind of creature was {hero.names[0]}?", f"Who was {hero.names[0]}?"], f"{hero.names[0]} was {hero.noun()}.")]
        if self.has_place:
            pairs = pairs + [(["Where did {h} live?", "Where does the story take place?", "Where did the {kind} live?"], "{H} lived {inplace}.")]
        if hero.trait:
            pairs = pairs + [(["What was {h} like?" if not hero.group else "What were {h} like?"], "{H} {was} {trait}.")]
        if self.uses("feelgood"):
            question = "How did {h} feel [at the end|in the end|at the end of the story]?"
            pairs = pairs + [([question], "{H} {was} {feelgood}.")]
        if friend.names and self.uses("f"):
            pairs = pairs + [([f"Who was {friend.names[0]}?"], f"{friend.names[0]} was {friend.noun()}.")]
        if self.weather and self.uses("oneday"):
            pairs = pairs + [(["What was the weather like?", "What kind of day was it?"], f"It was {self.weather}.")]
        if self.has_moral:
            pairs = pairs + [(["What is the moral of the story?", "How does the story end?", "What is the last thought of the story?"], self.moral)]
        return [(self.fill(self.rng.choice(questions)), self.fill(answer)) for questions, answer in pairs]


def plural_clause(clause):
    """Turns 'who loses a kite' into 'who lose a kite'."""
    match = re.match(r"who (\w+)", clause)
    if not match:
        return clause
    verb = match[1]
    special = {"has": "have", "goes": "go", "misses": "miss", "does": "do", "tries": "try", "is": "are",
               "discovers": "discover"}
    if verb in special:
        changed = special[verb]
    elif verb.endswith("ches"):
        changed = verb[:-2]
    else:
        changed = verb[:-1] if verb.endswith("s") else verb
    return f"who {changed}" + clause[match.end():]


# --- requests -------------------------------------------------------------------------------------

WRAPPERS = [
    "[Tell|Write] me {st} about {x}.", "Tell me {st} about {x}", "Write {st} about {x}.", "Can you tell me {st} about {x}?",
    "Could you write {st} about {x}, please?", "Please tell me {st} about {x}.", "I want {st} about {x}.",
    "I would like to hear {st} about {x}.", "{St} about {x}, please.", "{St} about {x}", "Make up {st} about {x}.",
    "Do you know {st} about {x}?", "Hi! Please write {st} about {x}.", "tell me {st} about {x}", "write {st} about {x}",
    "Give me {st} about {x}.", "Invent {st} about {x}.", "My daughter wants {st} about {x}.", "Let me hear {st} about {x}!",
    "Hello! Can you tell {st} about {x}?", "Tell {st} about {x}.", "Tell me about {x}.", "Once more, {st} about {x}, please.",
    "Please make {st} for my son. It should be about {x}.", "I need {st} about {x} for my class.",
    "{x}", "{X}", "Tell us {st} about {x}.", "We want {st} about {x}!", "Compose {st} in which we meet {x}.",
    "Write {st}. The main character is {x}.", "Write {st} with {x}.", "How about {st} about {x}?",
]
OPEN_REQUESTS = [
    "Tell me {st}.", "Write {st}.", "Tell me {st}", "{St}, please.", "Can you tell me {st}?", "I want to hear {st}.",
    "Please tell {st}.", "Do you have {st} for me?", "I am bored. Tell me {st}.", "I can not sleep. Tell me {st}.", "Surprise me with {st}.",
    "Write anything you like.", "tell me {st} please",
]
THEME_REQUESTS = [
    "Tell me {st} about {t}.", "Write {st} about {t}.", "{St} about {t}, please.", "Can you tell me {st} about {t}?",
    "I would like {st} with the theme {t}.", "Tell {st} that teaches something about {t}.", "I want {st} about {t}.",
]
TITLE_REQUESTS = [
    'Write {st} called "{title}".', 'Write {st} with the title "{title}".', "{title}", 'Title: "{title}"', "Title: {title}",
    'Tell me the story "{title}".', 'Tell me {st} called "{title}".', "Write the story: {title}.",
]
WORD_REQUESTS = [
    "Write {st} with the words {list}.", "Use these words in {st}: {list}.", "Tell {st} with these words: {list}.",
    "{St} with {list}, please.", "Make {st} that contains the words {list}.",
]
LENGTH_WORDS = {"short": ["short ", "very short ", "little ", "quick "], "long": ["long ", "longer "], "": [""]}


def story_phrase(story):
    """'a story', 'a short story', 'a sad story', 'a happy bedtime story'."""
    rng = story.rng
    length = rng.choice(LENGTH_WORDS[story.length])
    moods = [mood for mood in story.plot["moods"] if mood != "short"]
    mood = rng.choice(moods) + " " if moods and rng.random() < 0.25 else ""
    noun = rng.choice(["story", "story", "story", "story", "tale"] + (["little story"] if not length + mood else []))
    return article(f"{length}{mood}{noun}")


def subject_phrase(story):
    """The requested subject of the story, and the words that the story must mention."""
    rng, hero, slots = story.rng, story.hero, story.slots
    expect, roll = [hero.kind], rng.random()
    if hero.names and roll < 0.2:
        phrase, expect = hero.full(rng), [hero.kind, *hero.names]
    elif len(hero.names) == 1 and roll < 0.28:
        phrase, expect = f"{hero.names[0]} the {hero.kind}", [hero.kind, hero.names[0]]
    elif len(hero.names) == 1 and roll < 0.33:
        phrase, expect = hero.names[0], [hero.names[0]]
    else:
        phrase = hero.noun(adjective=rng.random() < 0.5)
    if hero.trait and hero.trait in phrase:
        expect.append(hero.trait)
    has_friend = story.uses("f") or story.plot["friend"] == "known"
    parts = []
    if has_friend and rng.random() < 0.16:
        phrase += f" and {story.friend.noun(adjective=False)}"
        expect.append(story.friend.kind)
    elif "o" in slots and rng.random() < 0.22:
        phrase += f"{rng.choice((' and ', ' and ', ' with '))}{rng.choice((slots['oa'], slots['oplain']))}"
        expect.append(slots["o"])
    elif rng.random() < 0.4:
        parts.append(" " + story.clause())
    if story.has_place and rng.random() < 0.22:
        live = "live" if hero.group else "lives"
        joint = rng.choice((f" who {live} ", " ")) if not parts else " "
        parts.insert(0, joint + rng.choice((slots["inplace"], slots["aplace"])) + (" and" if parts and "who" in joint else ""))
        expect.append(slots["place"])
    if story.weather and story.uses("oneday") and rng.random() < 0.12:
        parts.append(f" on a {story.weather} {rng.choice(('day', 'day', 'morning'))}" if "night" not in slots["oneday"] else f" on a {story.weather} night")
    return phrase + "".join(parts), expect


def word_list(story):
    items = [story.hero.kind]
    if "o" in story.slots:
        items.append(story.slots["o"])
    if story.has_place:
        items.append(story.slots["place"])
    if story.uses("f"):
        items.append(story.friend.kind)
    story.rng.shuffle(items)
    return items


def request(story):
    """A user's request that fits the story, and the words expected in the answer."""
    rng, roll, expect = story.rng, story.rng.random(), []
    fill = dict(st=story_phrase(story), St="", x="", X="")
    fill["St"] = capital(fill["st"])
    items = word_list(story)
    if roll < 0.06:
        template = rng.choice(OPEN_REQUESTS)
    elif roll < 0.11:
        template, fill["t"] = rng.choice(THEME_REQUESTS), rng.choice(story.plot["themes"])
    elif roll < 0.18:
        template, fill["title"] = rng.choice(TITLE_REQUESTS), story.title()
        expect = [story.hero.names[0] if fill["title"].startswith(tuple(story.hero.names)) and story.hero.names else story.hero.kind]
    elif roll < 0.25 and len(items) > 1:
        template, fill["list"], expect = rng.choice(WORD_REQUESTS), listing(items), items
    else:
        template = rng.choice(WRAPPERS)
        fill["x"], expect = subject_phrase(story)
        fill["X"] = capital(fill["x"])
    template = CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)
    text = SLOT.sub(lambda match: fill[match[1]], template)
    return text + extra_wish(story, expect), expect


def extra_wish(story, expect):
    """Sometimes returns a second sentence of the request, about a name, an object, a place, a moral or the length."""
    rng, wishes = story.rng, []
    hero, slots = story.hero, story.slots
    if rng.random() > 0.14:
        return ""
    if len(hero.names) == 1:
        wishes.append((rng.choice([" The hero is called {n}.", " Call the {k} {n}.", " The {k}'s name is {n}."])
                       .replace("{n}", hero.names[0]).replace("{k}", hero.kind), [hero.names[0]]))
    if "o" in slots:
        wishes.append((rng.choice([" There should be {} in it.", " It should have {} in it.", " Please put {} in it."])
                       .replace("{}", slots["oplain"]), [slots["o"]]))
    if story.has_place:
        wishes.append((f" It {rng.choice(('happens', 'takes place', 'should take place'))} {slots['aplace']}.", [slots["place"]]))
    if story.has_moral:
        wishes.append((rng.choice([" It should have a moral.", " End with a moral."]), []))
    if story.length == "short":
        wishes.append((rng.choice([" Keep it short.", " Only a few sentences, please."]), []))
    if not wishes:
        return ""
    text, words_wanted = rng.choice(wishes)
    expect.extend(words_wanted)
    return text


# --- questions, JSON, small talk ------------------------------------------------------------------

def question_turns(story, count):
    """Messages with questions and answers about a story that was told."""
    rng, facts = story.rng, story.facts()
    turns = []
    for question, answer in rng.sample(facts, min(count, len(facts))):
        if rng.random() < 0.06:
            question, answer = story.fill(rng.choice(UNKNOWN_QUESTIONS)), "The story does not say."
        if rng.random() < 0.12:
            question = question[0].lower() + question[1:]
        turns += [user(question), assistant(capital(answer))]
        story.asked.append(question)
    if rng.random() < 0.12:
        turns += [user(rng.choice(["Give the story a title.", "What is a good title for this story?", "What is the title?"])),
                  assistant(story.title())]
    if rng.random() < 0.12:
        turns += [user(rng.choice(["Sum up the story in one sentence.", "What is the story about?", "Give me a short summary."])),
                  assistant(f"It is a story about {story.fill('{ha}')} {story.clause()}.")]
    return turns


def json_value(rng, key, subject):
    """A plausible value for a key of a description."""
    if key in ("name", "kind"):
        return subject[key]
    if key in ("color", "colour"):
        return rng.choice(words.COLORS)
    if key in ("home", "place"):
        return rng.choice(words.PLACES)[1]
    makers = {
        "age": lambda: rng.randint(1, 90), "size": lambda: rng.choice(["small", "big", "tiny", "large", "medium"]),
        "food": lambda: without_article(rng.choice(words.FOODS)), "feeling": lambda: rng.choice(words.FEEL_GOOD + words.FEEL_BAD),
        "likes": lambda: [like[3:] for like in rng.sample(words.LIKES, rng.choice((1, 2, 2, 3)))],
        "friends": lambda: [pick_name(rng, "n") for _ in range(rng.choice((1, 2, 3)))],
        "friendly": lambda: rng.random() < 0.5, "brave": lambda: rng.random() < 0.5, "broken": lambda: rng.random() < 0.3,
        "trait": lambda: rng.choice(list(words.TRAITS)), "traits": lambda: rng.sample(list(words.TRAITS), 2),
        "price": lambda: rng.randint(1, 100), "weight": lambda: rng.randint(1, 300), "height": lambda: rng.randint(1, 200),
        "material": lambda: rng.choice(["wood", "gold", "paper", "glass", "iron", "stone", "silver", "wool", "clay"]),
        "owner": lambda: pick_name(rng, "n"), "item": lambda: rng.choice(words.OBJECTS), "weather": lambda: rng.choice(words.WEATHERS),
        "season": lambda: rng.choice(words.SEASONS), "friend": lambda: pick_name(rng, "n"), "animal": lambda: rng.choice(words.ANIMALS),
        "fear": lambda: rng.choice(words.FEARS), "skill": lambda: rng.choice(words.SKILLS), "job": lambda: rng.choice(words.PEOPLE)[0],
    }
    return makers[key]()


LIVING_KEYS = ["name", "kind", "color", "home", "age", "size", "food", "feeling", "likes", "friends", "friendly", "brave",
               "trait", "traits", "weight", "height", "friend", "fear", "skill", "item", "place"]
THING_KEYS = ["name", "kind", "color", "size", "material", "price", "weight", "owner", "broken", "age", "place"]
JSON_REQUESTS = [
    "Describe {x} as JSON{k}.", "Give me a JSON object for {x}{k}.", "Write JSON that describes {x}{k}.", "Describe {x} in JSON{k}.",
    "Answer only with JSON: describe {x}{k}.", "Make a JSON object about {x}{k}.", "Return a JSON object that describes {x}{k}.",
    "JSON for {x}{k}, please.", "I need a JSON description of {x}{k}.", "Describe {x}{k}. Answer in JSON.", "Invent {x} and describe it as JSON{k}.",
    "Give me {x} as a JSON object{k}.", "Output {x} as JSON{k}.",
]
KEY_PHRASES = [" with the keys {}", " with {}", " with the fields {}", " (keys: {})", " using the keys {}", " with keys {}"]


def json_text(rng, value, pretty):
    return json.dumps(value, ensure_ascii=False, indent=2 if pretty else None)


def json_chat(rng):
    """A request for a small JSON object, with or without a list of keys."""
    if rng.random() < 0.1:
        return json_list_chat(rng)
    thing = rng.random() < 0.25
    kind, gender = (pick_noun(rng, words.OBJECTS), "n") if thing else pick_kind(rng)
    subject = dict(kind=kind, name=kind if thing else pick_name(rng, gender))
    keys = rng.sample(THING_KEYS if thing else LIVING_KEYS, rng.randint(2, 5))
    keys.sort(key=lambda key: (key != "name", key != "kind"))
    asked = rng.random() < 0.6
    if not asked:
        keys = ["name", "kind", "color", "price"] if thing else ["name", "kind", "age", "home", "likes"]
    phrase = article(kind)
    if not thing and "name" in keys and rng.random() < 0.4:
        phrase += f" {rng.choice(('named', 'called'))} {subject['name']}"
    names = [f'"{key}"' for key in keys] if rng.random() < 0.25 else keys
    wish = rng.choice(KEY_PHRASES).format(listing(names)) if asked else ""
    text = rng.choice(JSON_REQUESTS).replace("{x}", phrase).replace("{k}", wish)
    pretty = rng.random() < 0.12
    if pretty:
        text += rng.choice([" Use several lines.", " Please format it nicely.", " Indent it."])
    answer = {key: json_value(rng, key, subject) for key in keys}
    return dict(kind="json", messages=[user(text), assistant(json_text(rng, answer, pretty))], expect=keys if asked else [])


def json_list_chat(rng):
    what, choices = rng.choice([("animals", words.ANIMALS), ("colors", words.COLORS), ("things", words.OBJECTS),
                                ("places", [noun for _, noun in words.PLACES]), ("names", words.NAMES_F + words.NAMES_M)])
    count = rng.randint(2, 5)
    number = rng.choice([str(count), ["two", "three", "four", "five"][count - 2]])
    text = rng.choice(["Give me a JSON list of {n} {w}.", "A JSON array with {n} {w}, please.", "List {n} {w} as JSON.",
                       "Write {n} {w} as a JSON array."]).format(n=number, w=what)
    return dict(kind="json", messages=[user(text), assistant(json_text(rng, rng.sample(sorted(set(choices)), count), False))], expect=[])


def json_story_turn(story):
    """Summarises a story that was told as JSON."""
    rng, hero = story.rng, story.hero
    known = {"hero": listing(hero.names) if hero.names else hero.kind, "kind": hero.kind}
    if story.has_place:
        known["place"] = story.slots["place"]
    if "o" in story.slots:
        known["object"] = story.slots["o"]
    if story.uses("f"):
        known["friend"] = story.friend.names[0] if story.friend.names else story.friend.kind
    keys = [key for key in known if rng.random() < 0.8] or ["hero"]
    text = rng.choice(["Give me the story as JSON with {}.", "Summarize the story as JSON with the keys {}.", "Write a JSON object about the story with {}.",
                       "Now as JSON, with the keys {}.", "Put that in JSON with {}."]).format(listing(keys))
    return [user(text), assistant(json_text(rng, {key: known[key] for key in keys}, False))]


WHO = ["I am a very small storyteller model. I can tell short stories.",
       "I am a tiny language model that tells little stories. I do not know much else.",
       "I am the storyteller, a very small model that comes with Troupe. I make up short stories."]
CAN = ["I can tell short stories, answer simple questions about them, and describe things as small JSON objects.",
       "I can make up little stories. Tell me who or what the story should be about."]
CANNOT = ["I am sorry, I can not help with that. I am only a very small storyteller.", "I do not know that. I can only tell little stories.",
          "That is too hard for me. I am a tiny model that tells stories. Would you like one?"]
SMALL_TALK = [
    (["Hello", "Hi", "Hi!", "Hello!", "Good morning", "Hey", "Hello there", "Good evening!", "hi", "hello"],
     ["Hello! What story would you like to hear?", "Hello! Tell me who the story should be about.", "Hi! Shall I tell you a story?"]),
    (["Who are you?", "What are you?", "who are you", "Are you a human?", "What is your name?", "Are you an AI?", "Tell me about yourself.", "Introduce yourself.",
      "Are you ChatGPT?", "What model are you?", "Who made you?"], WHO),
    (["What can you do?", "How can you help me?", "What do you know?", "Help", "help", "What are you good at?", "What should I ask you?"], CAN),
    (["Thank you!", "Thanks", "Thank you very much.", "That was nice.", "I liked that.", "thanks!"], ["You are welcome!", "You are welcome! Would you like another story?", "I am glad that you liked it."]),
    (["How are you?", "How are you today?", "Are you well?"], ["I am fine, thank you. Would you like a story?", "Very well, thank you! What shall I tell you?"]),
    (["Goodbye", "Bye!", "Good night", "See you tomorrow.", "Bye"], ["Goodbye! Come back for another story.", "Good night, and sweet dreams!"]),
    (["What is the capital of France?", "What is 12 times 7?", "Write a program in Python.", "Who is the president?", "Solve this equation: x + 3 = 7.",
      "Translate this into French.", "What time is it?", "What is the weather today?", "Explain quantum physics.", "Give me the news.",
      "How do I cook rice?", "What is 2 + 2?", "Which stock should I buy?", "Write a C++ function.", "How far away is the sun?", "When was Rome built?",
      "What is the meaning of life?", "Book a hotel for me.", "Can you drive a car?", "Why is the sky blue?"], CANNOT),
]
SYSTEMS = ["You are a storyteller.", "You are a helpful assistant.", "You tell short stories for children.", "You are a kind storyteller. Use simple words.",
           "Answer briefly.", "You are a friendly assistant that tells stories.", "You are a helpful assistant. Answer the user.", "Be kind and simple."]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def small_talk_chat(rng):
    messages = []
    for questions, answers in rng.sample(SMALL_TALK, rng.choice((1, 1, 2))):
        messages += [user(rng.choice(questions)), assistant(rng.choice(answers))]
    if rng.random() < 0.3:
        story = Story(rng)
        messages += [user(request(story)[0]), assistant(story.tell())]
    return dict(kind="talk", messages=messages, expect=[])


def pick_length(rng):
    return rng.choices(["", "short", "long"], (70, 20, 10))[0]


def story_chat(rng):
    story = Story(rng, pick_length(rng))
    text, expect = request(story)
    return dict(kind="story", messages=[user(text), assistant(story.tell())], expect=expect)


def story_with_questions(rng):
    story = Story(rng, rng.choices(["", "short"], (60, 40))[0])
    messages = [user(request(story)[0]), assistant(story.tell())]
    messages += question_turns(story, rng.randint(1, 4))
    if rng.random() < 0.15:
        messages += json_story_turn(story)
    return dict(kind="questions", messages=messages, questions=story.asked, aliases=[story.hero.aliases(), story.friend.aliases()])


def questions_about_text(rng):
    """The user gives the story; the model only answers questions."""
    story = Story(rng, rng.choices(["", "short"], (40, 60))[0])
    text = story.tell()
    turns = question_turns(story, rng.randint(1, 3))
    first = turns[0]["content"]
    prompt = rng.choice(["{s}\n\n{q}", "Read this story and answer the question.\n\n{s}\n\n{q}", "Story: {s}\n\nQuestion: {q}", "{q}\n\n{s}",
                         "Here is a story: {s}\n\n{q}"])
    turns[0] = user(prompt.replace("{q}", first).replace("{s}", text))
    return dict(kind="reading", messages=turns, expect=[])


def several_stories(rng):
    """A longer chat with several stories, some with questions."""
    messages = []
    for number in range(rng.choice((2, 2, 3, 3, 4))):
        story = Story(rng, rng.choice(["", "short"]))
        wish = request(story)[0]
        if number and rng.random() < 0.5:
            wish = rng.choice(["Another one, about {}.", "Now a story about {}.", "And now one about {}.", "Tell me another story, about {}.",
                               "One more! This time about {}."]).format(subject_phrase(story)[0])
        messages += [user(wish), assistant(story.tell())]
        if rng.random() < 0.4:
            messages += question_turns(story, rng.randint(1, 2))
    return dict(kind="several", messages=messages, expect=[])


def continuation(rng):
    """The user gives the beginning of a story; the model continues it."""
    story = Story(rng, pick_length(rng))
    sentences = re.split(r"(?<=[.!?]) ", story.tell())
    cut = rng.randint(1, max(1, min(4, len(sentences) - 2)))
    start, rest = " ".join(sentences[:cut]), " ".join(sentences[cut:])
    prompt = rng.choice(["Continue this story: {}", "Go on with this story: {}", "How does this story go on? {}", "Finish this story: {}",
                         "Continue: {}", "{}"]).replace("{}", start)
    return dict(kind="continue", messages=[user(prompt), assistant(rest)], expect=[])


def plain_text(rng):
    story = Story(rng, pick_length(rng))
    text = story.tell()
    if rng.random() < 0.15:
        text = f"{story.title()}\n\n{text}"
    return dict(kind="text", text=text)


MIX = [(story_chat, 50), (story_with_questions, 14), (questions_about_text, 6), (several_stories, 6), (continuation, 4),
       (plain_text, 10), (json_chat, 11), (small_talk_chat, 2)]


def turns_without_tool(rng):
    """A request that needs no tool, and the answer: a story, JSON or small talk."""
    maker = rng.choices((story_chat, json_chat, small_talk_chat), (50, 25, 25))[0]
    return maker(rng)["messages"]


def turns_of_any(rng):
    """The turns of any chat without tools."""
    makers, weights = zip(*((maker, weight) for maker, weight in MIX if maker is not plain_text))
    return rng.choices(makers, weights)[0](rng)["messages"]


def document(seed, index, tools=0.0, long=0.0):
    """Document number `index`. Each has its own random stream, so any range can be generated separately.

    `tools` is the share of chats with tools, `long` that of chats that fill up to the model's whole context.
    """
    if long and random.Random(f"{seed}/{index}/long").random() < long:
        return long_chat(random.Random(f"{seed}/{index}/long chat"), turns_of_any, turns_without_tool)
    if tools and random.Random(f"{seed}/{index}/tools").random() < tools:
        rng = random.Random(f"{seed}/{index}/tool chat")
        made = tool_chat(rng, turns_without_tool)
    else:
        rng = random.Random(f"{seed}/{index}")
        makers, weights = zip(*MIX)
        made = rng.choices(makers, weights)[0](rng)
    if "messages" in made and rng.random() < 0.2:
        made["messages"].insert(0, {"role": "system", "content": rng.choice(SYSTEMS)})
    return made


def documents(seed, count, tools=0.0, long=0.0):
    for index in range(count):
        yield document(seed, index, tools, long)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100000, help="number of documents")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--tools", type=float, default=0.0, help="share of chats with tools")
    parser.add_argument("--long", type=float, default=0.0, help="share of long chats")
    parser.add_argument("--out", default="corpus.jsonl")
    options = parser.parse_args()
    with open(options.out, "w", encoding="utf-8") as out:
        for made in documents(options.seed, options.count, options.tools, options.long):
            out.write(json.dumps(made, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
