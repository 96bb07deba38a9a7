"""Training rows drawn on the device: sentences, needles and questions in any order, each question behind its needle.

The host tokenises a pool of sentences once; a row is then a list of blocks (sentence, needle or question, each with its
end) put into order by a random time, and every token is found by its position. Cities and digits are drawn anew for
each row, so that no value can be memorised. All draws come from the device's generator: a seed fixes every batch.
"""
import random

import torch

import language

CITY, DIGITS = -1, range(-2, -7, -1)  # codes that stand for the key and the five digits of a needle
WIDTH = 32                            # tokens of the longest block


class Pieces:
    """Token ids of every block in two forms: behind a blank, and behind a line feed."""

    def __init__(self, tokenizer, device, seed=100, pool=100_000):
        encode = lambda text: tokenizer.encode(text).ids
        (self.dot,), (self.line,) = encode("."), encode(".\n")
        cities = [encode(" " + city) for city in language.CITIES]
        if any(len(ids) != 1 for ids in cities):
            raise SystemExit("every city must be one token")
        digits = [encode(str(i))[0] for i in range(10)]
        r = random.Random(seed)
        sentences = [language.sentence(r) for _ in range(pool)]
        forms = []
        for blank in (" ", ""):
            rows = [e.ids for e in tokenizer.encode_batch([blank + text for text in sentences])]
            for template in (language.NEEDLE, language.QUESTION + " {number}"):
                ids = encode(blank + template.format(city="Lisbon", number="01234"))
                code = {cities[0][0]: CITY, **{digits[i]: DIGITS[i] for i in range(5)}}
                rows.append([code.get(i, i) for i in ids])
            forms.append(rows)
        self.pool, self.needle, self.question = pool, pool, pool + 1
        self.lengths = torch.tensor([[len(ids) for ids in rows] for rows in forms], device=device)
        self.ids = torch.tensor([[ids + [0] * (WIDTH - len(ids)) for ids in rows] for rows in forms], device=device)
        self.cities = torch.tensor([ids[0] for ids in cities], device=device)
        self.digits = torch.tensor(digits, device=device)
        self.needle_length = int(self.lengths[0, self.needle]) + 1
        self.question_length = int(self.lengths[0, self.question]) + 1
        self.device, self.vocabulary = device, tokenizer.get_vocab_size()

    def write(self, block, key, T, blank=0.0):
        """Rows of T tokens from ordered blocks [B, M] and their needles' keys: ids, answer digits, what is beside."""
        B, device = block.shape[0], self.device
        newline = (torch.rand(block.shape, device=device) < 0.15) | (block == self.question)
        first = torch.ones(B, 1, dtype=torch.bool, device=device)
        if blank:  # a share of the rows begins as if a sentence had ended before
            first = torch.rand(B, 1, device=device) >= blank
        after = torch.cat([first, newline[:, :-1]], 1).long()
        length = self.lengths[after, block] + 1
        ends = length.cumsum(1)
        t = torch.arange(T, device=device).expand(B, T).contiguous()
        at = torch.searchsorted(ends, t, right=True).clamp(max=block.shape[1] - 1)
        pick = lambda x: x.gather(1, at)
        offset = t - pick(ends - length)
        last = offset == pick(length) - 1
        ids = self.ids[pick(after), pick(block), offset.clamp(max=WIDTH - 1)]
        ids = torch.where(last, self.dot + (self.line - self.dot) * pick(newline.long()), ids)
        cities = self.cities[torch.rand(B, len(self.cities), device=device).argsort(1)]
        digits = self.digits[torch.randint(0, 10, (B, 64, 5), device=device)].view(B, -1)
        slot = pick(key)
        digit = (DIGITS[0] - ids).clamp(0, 4)
        number = digits.gather(1, slot * 5 + digit)
        is_digit = ids <= DIGITS[0]
        ids = torch.where(ids == CITY, cities.gather(1, slot), torch.where(is_digit, number, ids))
        answer = is_digit & (pick(block) == self.question)
        beside = (answer.roll(1, 1) | answer.roll(-1, 1)) & ~answer & (t > 0)
        return ids, answer, beside

    def rows(self, B, T, most, share, sets=0.0, front=0.0):
        """B rows of T tokens with 1…most needles and at most `share` of the tokens in questions. In a share `sets` of
        them all sentences are drawn from a few (6…40) of the row's own, so that they come again; a share `front` has a
        needle at its very beginning."""
        device, uniform = self.device, lambda *shape: torch.rand(*shape, device=self.device)
        ask, tell, fill = int(share * T / self.question_length) + 1, most, int(T / 11.5) + 40
        needles = torch.randint(1, most + 1, (B, 1), device=device)
        asked = (share * T / self.question_length * (0.5 + 0.5 * uniform(B, 1))).long()
        asked = torch.minimum(asked, (T - 24 - needles * self.needle_length) // self.question_length).clamp(min=1)
        sentences = ((T - needles * self.needle_length - asked * self.question_length) / 11.5).long()
        told = uniform(B, tell)
        if front:
            told[:, :1] = told[:, :1].masked_fill(uniform(B, 1) < front, -1)
        order = (uniform(B, tell) + (torch.arange(tell, device=device) >= needles)).argsort(1)
        again = (uniform(B, ask) * needles).long()
        i = torch.arange(ask, device=device).expand(B, ask)
        key = torch.where(i < needles, order.gather(1, i.clamp(max=tell - 1)), again)
        behind = told.gather(1, key).clamp(min=0)
        late, end = uniform(B, ask) < uniform(B, 1), 1 + uniform(B, ask)
        behind = torch.where(late, end, behind + (1 - behind) * uniform(B, ask))
        filler = torch.randint(0, self.pool, (B, fill), device=device)
        size = torch.randint(6, 41, (B, 1), device=device)
        again = (uniform(B, fill) * size).long()
        filler = filler.gather(1, torch.where(uniform(B, 1) < sets, again, torch.arange(fill, device=device)))
        i, j = torch.arange(fill, device=device), torch.arange(tell, device=device)
        times = torch.cat([torch.where(i < sentences, uniform(B, fill), 3 + i / fill),
                           told.masked_fill(j >= needles, 5),
                           behind.masked_fill(torch.arange(ask, device=device) >= asked, 5)], 1)
        block = torch.cat([filler, torch.full((B, tell), self.needle, device=device),
                           torch.full((B, ask), self.question, device=device)], 1)
        keys = torch.cat([torch.zeros_like(filler), j.expand(B, tell), key], 1)
        order = times.argsort(dim=1, stable=True)
        return self.write(block.gather(1, order), keys.gather(1, order), T, 0.5 if front else 0.0)

    def prompts(self, B, T, depth, distractors):
        """B rows whose only question, near the end, asks for the needle at `depth` (0…1)."""
        device = self.device
        room = T - self.question_length - (1 + distractors) * self.needle_length
        fill = int(room / 12.5)
        times = torch.cat([(torch.arange(fill, device=device) + 0.5).expand(B, fill) / fill,
                           torch.full((B, 1), float(depth), device=device), torch.rand(B, distractors, device=device),
                           torch.full((B, 1), 2.0, device=device), torch.full((B, 40), 3.0, device=device)], 1)
        block = torch.randint(0, self.pool, times.shape, device=device)
        block[:, fill:fill + 1 + distractors] = self.needle
        block[:, fill + 1 + distractors] = self.question
        key = torch.zeros_like(block)
        key[:, fill + 1:fill + 1 + distractors] = torch.arange(1, 1 + distractors, device=device)
        order = times.argsort(dim=1, stable=True)
        return self.write(block.gather(1, order), key.gather(1, order), T)

    def repeated(self, B, T, longest=60):
        """Rows that repeat 8…longest random tokens, and which positions of them can be known."""
        period = torch.randint(8, longest, (B, 1), device=self.device)
        t = torch.arange(T, device=self.device)
        return torch.randint(1, self.vocabulary, (B, T), device=self.device).gather(1, t % period), t >= period
