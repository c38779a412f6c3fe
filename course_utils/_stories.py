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

TAILS = {"": 60, "again": 20, "twice": 10, "before breakfast": 10}

# object -> (weight, verbs, adjectives, endings)
OBJECTS = {
    "pencil": (
        15,
        {"dropped": 16, "found": 28, "sat on": 28, "borrowed": 28},
        {"": 40, "mechanical": 12, "new": 24, "favourite": 24},
        {"my lead broke": 60, "my lead snapped": 25, "my lead crumbled": 15},
    ),
    "dog": (
        15,
        {"walked": 40, "found": 30, "lost": 30},
        {"": 40, "old": 25, "little": 25, "noisy": 10},
        {
            "my lead got tangled": 36,
            "my lead stretched": 14,
            "my lead slipped": 10,
            "its bark woke the neighbours": 24,
            "its bark scared the postman": 16,
        },
    ),
    "band": (
        12,
        {"booked": 25, "dropped": 50, "found": 25},
        {"": 40, "new": 20, "favourite": 20, "noisy": 20},
        {"my lead quit": 60, "my lead overslept": 25, "my lead forgot the words": 15},
    ),
    "race": (
        12,
        {"ran": 50, "lost": 50},
        {"": 40, "first": 36, "last": 24},
        {"my lead vanished": 60, "my lead shrank": 25, "my lead doubled": 15},
    ),
    "roof": (
        8,
        {"fixed": 50, "sat on": 50},
        {"": 40, "old": 30, "leaky": 30},
        {"my lead got stolen": 65, "my lead melted": 35},
    ),
    "case": (
        8,
        {"reopened": 25, "dropped": 50, "lost": 25},
        {"": 40, "strange": 24, "murder": 24, "first": 12},
        {"my lead went cold": 65, "my lead fell apart": 35},
    ),
    "tree": (
        8,
        {"climbed": 60, "watered": 40},
        {"": 40, "old": 24, "favourite": 24, "little": 12},
        {
            "its bark peeled off": 36,
            "its bark crumbled": 19,
            "its trunk cracked": 27,
            "its trunk turned green": 18,
        },
    ),
    "elephant": (
        5,
        {"washed": 60, "fed": 40},
        {"": 40, "thirsty": 36, "little": 24},
        {"its trunk sprayed the postman": 65, "its trunk got stuck": 35},
    ),
    "violin": (
        5,
        {"tuned": 50, "sat on": 50},
        {"": 40, "new": 30, "borrowed": 30},
        {"its bow snapped": 60, "its bow squeaked": 40},
    ),
    "boat": (
        5,
        {"launched": 60, "painted": 40},
        {"": 40, "new": 24, "little": 24, "borrowed": 12},
        {"its bow hit a rock": 65, "its bow leaked": 35},
    ),
    "present": (
        5,
        {"wrapped": 60, "dropped": 40},
        {"": 40, "birthday": 36, "last": 24},
        {"its bow came undone": 65, "its bow fell off": 35},
    ),
    "door": (
        5,
        {"locked": 60, "painted": 40},
        {"": 40, "front": 36, "new": 24},
        {"my key got stuck": 65, "my key snapped": 35},
    ),
    "song": (
        5,
        {"sang": 60, "wrote": 40},
        {"": 40, "love": 30, "first": 18, "new": 12},
        {"my key was too high": 65, "my key changed": 35},
    ),
    "piano": (
        5,
        {"tuned": 60, "moved": 40},
        {"": 40, "grand": 36, "mechanical": 24},
        {"my key went silent": 60, "my key fell off": 40},
    ),
    "computer": (
        5,
        {"restarted": 50, "unplugged": 50},
        {"": 40, "new": 36, "old": 24},
        {"my mouse stopped working": 60, "my mouse froze": 40},
    ),
    "cat": (
        5,
        {"fed": 60, "chased": 40},
        {"": 40, "lazy": 36, "old": 24},
        {"my mouse escaped": 60, "my mouse giggled": 40},
    ),
    "thumb": (
        5,
        {"hit": 60, "burned": 40},
        {"": 40, "left": 36, "poor": 24},
        {"my nail turned blue": 65, "my nail fell off": 35},
    ),
    "fence": (
        5,
        {"painted": 50, "fixed": 50},
        {"": 40, "garden": 36, "old": 24},
        {"my nail bent": 60, "my nail went rusty": 40},
    ),
    "watch": (
        6,
        {"dropped": 50, "wound": 50},
        {"": 30, "mechanical": 40, "old": 30},
        {"its spring snapped": 60, "its spring jammed": 40},
    ),
    "sofa": (
        5,
        {"sat on": 60, "moved": 40},
        {"": 40, "leather": 36, "new": 24},
        {"its spring squeaked": 60, "its spring went boing": 40},
    ),
}

# A sentence that has all the words of one of these is never trained on. Each of the words is seen in
# other company: the mechanical watch, the new pencil.
HELD_OUT = ["mechanical pencil", "noisy dog", "we last race"]


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
