"""The words of the pencil stories; `data.PencilStories` turns them into sentences.

A story is: opener, verb, "my", adjective, object, reaction, ending, tail, as in
"I just | dropped | my | mechanical | pencil | I can't believe | my lead broke | ".
Numbers are weights: how likely a phrase is against the others beside it. An empty phrase says nothing.

An ending names a part of the object and what became of it. Most parts have several lives: the lead of
a pencil, of a dog, of a band, of a race, on a roof, in a detective's case. The ending then hangs on the
object alone, and no reaction has fewer than two words, so the object stands five or more tokens before
what became of the part. "my" in an ending follows the opener: we ... our, you ... your.
"""

import re

# possessive -> openers
OPENERS = {
    "my": {"I just": 36, "this morning I": 12, "yesterday I": 12},
    "our": {"we just": 13, "yesterday we": 7},
    "your": {"you just": 13, "this morning you": 7},
}

REACTIONS = {
    "I can't believe": 30,
    "nobody knows why": 18,
    "it is a pity that": 14,
    "and of course": 14,
    "everybody laughed when": 12,
    "it turns out that": 12,
}

TAILS = {"": 60, "again": 25, "before breakfast": 15}

# object -> (weight, verbs, adjectives, endings)
OBJECTS = {
    "pencil": (
        16,
        {"dropped": 20, "found": 30, "sat on": 30, "washed": 20},
        {"": 40, "mechanical": 10, "old": 15, "new": 15, "favourite": 20},
        {"my lead broke": 60, "my lead snapped": 25, "my lead crumbled": 15},
    ),
    "dog": (
        14,
        {"walked": 20, "washed": 20, "found": 30, "lost": 30},
        {"": 40, "old": 15, "new": 15, "favourite": 20, "noisy": 10},
        {
            "my lead got tangled": 39,
            "my lead stretched": 16,
            "my lead slipped": 10,
            "its bark woke the neighbours": 21,
            "its bark scared the postman": 14,
        },
    ),
    "band": (
        12,
        {"booked": 20, "dropped": 40, "found": 40},
        {"": 40, "old": 15, "new": 15, "favourite": 20, "noisy": 10},
        {"my lead quit": 60, "my lead overslept": 25, "my lead forgot the words": 15},
    ),
    "race": (
        12,
        {"ran": 30, "lost": 70},
        {"": 40, "first": 20, "last": 20, "favourite": 20},
        {"my lead vanished": 60, "my lead shrank": 25, "my lead doubled": 15},
    ),
    "roof": (
        8,
        {"fixed": 20, "painted": 20, "washed": 20, "sat on": 40},
        {"": 40, "old": 25, "new": 25, "leaky": 10},
        {"my lead got stolen": 65, "my lead melted": 35},
    ),
    "case": (
        8,
        {"reopened": 20, "dropped": 40, "lost": 40},
        {"": 40, "old": 15, "new": 15, "first": 10, "last": 10, "strange": 10},
        {"my lead went cold": 65, "my lead fell apart": 35},
    ),
    "tree": (
        6,
        {"climbed": 50, "watered": 30, "painted": 20},
        {"": 40, "old": 25, "favourite": 25, "little": 10},
        {
            "its bark peeled off": 36,
            "its bark fell off": 19,
            "its trunk cracked": 27,
            "its trunk turned green": 18,
        },
    ),
    "elephant": (
        4,
        {"washed": 40, "fed": 30, "found": 30},
        {"": 40, "mechanical": 20, "little": 20, "thirsty": 20},
        {"its trunk sprayed the postman": 65, "its trunk got stuck": 35},
    ),
    "violin": (
        4,
        {"tuned": 40, "dropped": 20, "sat on": 20, "sold": 20},
        {"": 40, "old": 20, "new": 20, "favourite": 20},
        {"its bow squeaked": 65, "its bow bent": 35},
    ),
    "boat": (
        4,
        {"launched": 40, "painted": 30, "found": 30},
        {"": 40, "old": 20, "new": 20, "little": 20},
        {"its bow hit a rock": 65, "its bow leaked": 35},
    ),
    "present": (
        4,
        {"wrapped": 40, "dropped": 20, "found": 20, "sat on": 20},
        {"": 40, "birthday": 20, "first": 20, "last": 20},
        {"its bow came undone": 65, "its bow fell off": 35},
    ),
    "door": (
        4,
        {"locked": 40, "fixed": 30, "painted": 30},
        {"": 40, "front": 20, "old": 20, "new": 20},
        {"my key got stuck": 65, "my key bent": 35},
    ),
    "song": (
        4,
        {"sang": 50, "wrote": 50},
        {"": 40, "love": 20, "first": 10, "new": 10, "favourite": 20},
        {"my key was too high": 65, "my key changed": 35},
    ),
    "piano": (
        4,
        {"tuned": 40, "moved": 30, "sold": 30},
        {"": 40, "grand": 15, "mechanical": 15, "old": 15, "new": 15},
        {"my key went silent": 60, "my key fell off": 40},
    ),
    "computer": (
        4,
        {"unplugged": 40, "fixed": 30, "moved": 30},
        {"": 40, "old": 20, "new": 20, "noisy": 20},
        {"my mouse stopped working": 60, "my mouse froze": 40},
    ),
    "cat": (
        4,
        {"fed": 40, "washed": 30, "found": 30},
        {"": 40, "mechanical": 10, "noisy": 15, "little": 20, "lazy": 15},
        {"my mouse escaped": 60, "my mouse giggled": 40},
    ),
    "thumb": (
        4,
        {"hit": 50, "burned": 50},
        {"": 50, "left": 25, "poor": 25},
        {"my nail turned blue": 65, "my nail fell off": 35},
    ),
    "fence": (
        4,
        {"painted": 40, "fixed": 30, "climbed": 30},
        {"": 40, "garden": 20, "old": 20, "new": 20},
        {"my nail bent": 60, "my nail went rusty": 40},
    ),
    "watch": (
        5,
        {"wound": 40, "dropped": 20, "found": 20, "sold": 20},
        {"": 40, "mechanical": 20, "old": 20, "favourite": 20},
        {"its spring jammed": 65, "its spring went rusty": 35},
    ),
    "sofa": (
        4,
        {"sat on": 40, "moved": 30, "sold": 30},
        {"": 40, "leather": 20, "old": 20, "new": 20},
        {"its spring went boing": 65, "its spring squeaked": 35},
    ),
    "letter": (
        4,
        {"opened": 40, "posted": 40, "found": 20},
        {"": 40, "love": 20, "secret": 20, "last": 20},
        {"its seal cracked": 60, "its seal melted": 40},
    ),
    "zoo": (
        4,
        {"visited": 50, "opened": 50},
        {"": 40, "local": 20, "favourite": 20, "noisy": 20},
        {"its seal clapped": 60, "its seal sneezed": 40},
    ),
}

# A sentence that has all the words of one of these is never trained on. Each of the words is seen in
# other company: the mechanical watch, the new pencil.
HELD_OUT = ["mechanical pencil", "noisy band", "we last race", "you first race"]


def rules():
    """The grammar as a list of (weight, slots), a slot being a dict from phrase to weight.

    A rule makes sentences of one phrase from each of its slots, in order, chosen independently. There is a
    rule for each possessive and object, for the verb, the adjective and the ending hang on the object.
    """
    made = []
    for my, openers in OPENERS.items():
        for name, (weight, verbs, adjectives, endings) in OBJECTS.items():
            endings = {re.sub("^my ", f"{my} ", ending): w for ending, w in endings.items()}
            slots = [openers, verbs, {my: 1}, adjectives, {name: 1}, REACTIONS, endings, TAILS]
            made.append((weight * sum(openers.values()), slots))
    return made
