#!/usr/bin/env python3
"""Writes engine/text/unicode_tables.cc: the facts about characters that decide token ids.

A tokenizer.json means what the Rust library `tokenizers` makes of it, and that library's parts carry Unicode data of
several ages (16.0 in its regular expressions, older in others). So the facts are read off the library itself: every code
point is put through one component at a time and what happens to it is recorded, as ranges.

    pip install tokenizers==0.23.3
    scripts/make_unicode_tables.py engine/text/unicode_tables.cc
"""
import argparse
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, POINTS))


def matching(pattern):
    """Code points that a one-character regular expression matches."""
    split = pre_tokenizers.Split(Regex(f"{pattern}+"), behavior="removed", invert=True)
    return {POINTS[i] for _, (a, b) in split.pre_tokenize_str(TEXT) for i in range(a, b)}


def set_apart(component):
    """Code points c that `component` makes the start of a piece in "acb"."""
    found = set()
    for base in range(0, len(POINTS), 50000):
        part = POINTS[base : base + 50000]
        starts = {a for _, (a, b) in component.pre_tokenize_str("".join("a" + chr(c) + "b" for c in part))}
        found |= {c for i, c in enumerate(part) if 3 * i + 1 in starts}
    return found


def word_characters():
    """Code points c for which the Whitespace component leaves "ac" in one piece."""
    component = pre_tokenizers.Whitespace()
    found = set()
    for base in range(0, len(POINTS), 50000):
        part = POINTS[base : base + 50000]
        starts = {a: b - a for _, (a, b) in component.pre_tokenize_str("".join("a" + chr(c) + " " for c in part))}
        found |= {c for i, c in enumerate(part) if starts.get(3 * i) == 2}
    return found


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def runs(value_of):
    """(first, value) wherever the value changes; surrogates take the value before them."""
    out = []
    for c in POINTS:
        if not out or out[-1][1] != value_of(c):
            out.append((c, value_of(c)))
    return out


def categories():
    of = {}
    for number, name in enumerate(CATEGORIES):
        if number:
            for c in matching(rf"\p{{{name}}}"):
                of[c] = number
    return runs(lambda c: of.get(c, 0))


def lower_case():
    """(first, last, step, difference): code points first, first + step, … last map to themselves plus difference."""
    lower, out = normalizers.Lowercase(), []
    for c in POINTS:
        mapped = lower.normalize_str(chr(c))
        if mapped == chr(c):
            continue
        if len(mapped) > 1:
            assert (c, mapped) == (0x130, "i\u0307"), hex(c)  # the one mapping to two characters; handled by hand
            continue
        difference = ord(mapped) - c
        if out:
            first, last, step, d = out[-1]
            if d == difference and (c - last == step or (first == last and c - last <= 2)):
                out[-1] = (first, c, c - last, d)
                continue
        out.append((c, c, 1, difference))
    return out


def scripts():
    """Script classes of the UnicodeScripts pre-tokenizer: 0 for common ones, else a number without further meaning."""
    split = pre_tokenizers.UnicodeScripts()
    pieces = lambda text: len(split.pre_tokenize_str(text))
    common = {c for c in POINTS if pieces("a" + chr(c) + "a") == 1 and pieces("α" + chr(c) + "α") == 1}
    others = [c for c in POINTS if c not in common]
    of, samples = {}, []
    for text, (a, b) in split.pre_tokenize_str("".join(map(chr, others))):
        number = next((n for n, s in enumerate(samples) if pieces(s + text[0]) == 1), len(samples))
        if number == len(samples):
            samples.append(text[0])
        for i in range(a, b):
            of[others[i]] = number + 1
    return runs(lambda c: of.get(c, 0))


def array(name, words, comment, type_="uint32_t"):
    words = list(words)
    lines = [f"// {comment}", f"const std::array<{type_}, {len(words)}> {name} = {{"]
    for i in range(0, len(words), 12):
        lines.append("    " + ", ".join(words[i : i + 12]) + ",")
    return "\n".join(lines + ["};", ""])


def main(path):
    gc = categories()
    of = {}
    for (first, value), (end, _) in zip(gc, gc[1:] + [(0x110000, 0)]):
        for c in range(first, end):
            of[c] = CATEGORIES[value]
    numeric = set_apart(pre_tokenizers.Digits(individual_digits=True))
    differs = ranges(c for c in POINTS if (c in numeric) != (of[c] in ("Nd", "Nl", "No")))
    print("numeric differs from N at", differs, file=sys.stderr)
    alphabetic = matching("[[:alpha:]]")
    word_regex, word_rust = matching(r"\w"), word_characters()
    ascii_punctuation = set(b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    punctuation = set_apart(pre_tokenizers.Punctuation()) - ascii_punctuation
    accents = {c for c in POINTS if normalizers.StripAccents().normalize_str(chr(c)) == ""}
    white = matching(r"\s")
    split_white = {c for c in POINTS if not pre_tokenizers.WhitespaceSplit().pre_tokenize_str(chr(c))}
    assert white == split_white, "the two notions of white space differ"

    pair = lambda rs: (f"0x{v:X}" for r in rs for v in r)
    out = [
        "// Made by scripts/make_unicode_tables.py from the behaviour of tokenizers " + tokenizers.__version__ + "; do not edit.",
        '#include "engine/text/unicode_tables.h"',
        "",
        "// clang-format off",
        "namespace hayfork::engine::unicode {",
        "",
        array("kCategoryRuns", (f"0x{c << 8 | v:X}" for c, v in gc), "General category: first code point << 8 | category, up to the next entry."),
        array("kWhiteSpace", pair(ranges(white)), "White_Space: first, last."),
        array("kWordRegex", pair(ranges(word_regex)), "\\w of the split patterns: first, last."),
        array("kAlphabetic", pair(ranges(alphabetic)), "[[:alpha:]] of the split patterns: first, last."),
        array("kWordRust", pair(ranges(word_rust)), "\\w of the Whitespace component and of single_word: first, last."),
        array("kNumericExtra", pair(differs), "Numeric for the Digits component although not of category N, or the reverse: first, last."),
        array("kPunctuation", pair(ranges(punctuation)), "Punctuation component beyond ASCII: first, last."),
        array("kAccents", pair(ranges(accents)), "Removed by StripAccents: first, last."),
        array("kScriptRuns", (f"0x{c << 8 | v:X}" for c, v in scripts()), "Script class: first code point << 8 | class, up to the next entry."),
        array("kLowerCase", (f"LowerRun{{0x{a:X}, 0x{b:X}, {s}, {d}}}" for a, b, s, d in lower_case()), "Lower case: first, last, step, difference.", "LowerRun"),
        "}  // namespace hayfork::engine::unicode",
        "",
    ]
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(out))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("file", help="engine/text/unicode_tables.cc")
main(parser.parse_args().file)
