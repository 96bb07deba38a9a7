"""The small language of the demo models: word lists, sentences, needles and questions, and its tokenizer.

Everything is drawn from the lists below with Python's own generator, so a seed fixes a text to the byte.
"""
import random

ADJECTIVES = """quiet old small green heavy bright cold warm narrow wooden gentle broken golden simple distant busy
empty clever honest lazy proud silver strange tall thin wild young brave calm""".split()
NOUNS = """river table garden letter window horse lamp bridge basket boat clock door engine farmer field flower
forest fox guitar hammer hill island kettle ladder market mirror mountain painter pencil pilot road sailor shop
singer stone teacher tower train tree village wagon wall winter writer baker barrel candle carpet castle cat
chair dog""".split()
TRANSITIVE = """carried watched painted found moved repaired followed opened closed counted cleaned visited admired
borrowed bought crossed described dropped examined filled guarded helped ignored lifted loved measured noticed
passed pulled reached remembered sold touched washed""".split()
INTRANSITIVE = "slept waited rested sang laughed walked arrived listened worked danced smiled whispered".split()
NAMES = """Anna Ben Clara David Emma Felix Grace Henry Iris Jonas Karl Laura Martin Nina Oscar Paula Robert Sara
Tom Vera""".split()
ADVERBS = "slowly quickly quietly carefully often never always again today yesterday together".split()
PLACES = ["near", "behind", "under", "above", "beside", "beyond", "in front of"]
TIMES = ["in the morning", "after lunch", "before sunset", "at noon", "during the storm", "late at night",
         "on a rainy day", "in early spring"]
CITIES = """Lisbon Madrid Paris London Berlin Vienna Prague Warsaw Dublin Oslo Stockholm Helsinki Athens Rome Milan
Naples Turin Geneva Zurich Brussels Hamburg Munich Cairo Tunis Nairobi Lagos Accra Dakar Delhi Mumbai Tokyo Osaka
Kyoto Seoul Beijing Shanghai Bangkok Manila Jakarta Sydney Perth Auckland Boston Chicago Dallas Denver Houston
Seattle Toronto Montreal Lima Bogota Quito Santiago Havana Moscow Kiev Riga Tallinn Vilnius Sofia Belgrade Zagreb
Budapest""".split()
NEEDLE = "The secret number of {city} is {number}"
QUESTION = "What is the secret number of {city}? The secret number of {city} is"


def sentence(r):
    """One sentence without its final period."""
    c = r.choice
    n, n2, a, a2, v, w = c(NOUNS), c(NOUNS), c(ADJECTIVES), c(ADJECTIVES), c(TRANSITIVE), c(INTRANSITIVE)
    an = "an" if a[0] in "aeiou" else "a"
    form = r.randrange(10)
    if form == 0:
        return f"The {a} {n} {w} {c(PLACES)} the {n2}"
    if form == 1:
        return f"{c(NAMES)} {v} the {a} {n} {c(TIMES)}"
    if form == 2:
        return f"The {n} {v} {an} {a} {n2} and {w} {c(ADVERBS)}"
    if form == 3:
        return f"{c(NAMES)} and {c(NAMES)} {w} {c(PLACES)} {an} {a} {n}"
    if form == 4:
        return f"{an.title()} {a} {n} {c(ADVERBS)} {v} the {n2} {c(TIMES)}"
    if form == 5:
        return f"There was {an} {a} {n} {c(PLACES)} the {a2} {n2}"
    if form == 6:
        return f"When the {n} {w}, {c(NAMES)} {v} the {n2}"
    if form == 7:
        return f"{c(NAMES)} {c(ADVERBS)} {v} the {n}, but the {n2} was {a}"
    if form == 8:
        return f"The {n} of {c(NAMES)} was {a} and {a2}"
    return f"After that the {n} {w} {c(ADVERBS)} {c(PLACES)} the {a} {n2}"


def number(r):
    return str(r.randrange(10000, 100000))


def train_tokenizer(path):
    """Byte-level BPE over 40,000 sentences with needles and questions among them; Qwen2's splitting, single digits."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    r, text = random.Random(1), []
    ask = QUESTION + " {number}"
    for _ in range(40000):
        text.append(sentence(r) + r.choice([". ", ". ", ".\n"]))
        if r.random() < 0.3:
            text.append(r.choice([NEEDLE, ask]).format(city=r.choice(CITIES), number=number(r)) +
                        r.choice([". ", ".\n"]))
    tokenizer = Tokenizer(models.BPE())
    split = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(split), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(["".join(text)], trainers.BpeTrainer(
        vocab_size=1280, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.save(str(path))
