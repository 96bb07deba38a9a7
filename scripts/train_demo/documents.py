"""Small sets of documents in the demo models' language, one for each family of tasks, and the task files that ask them.

Everything comes from a seed of its own, so the files are the same bytes wherever they are made.
"""
import json
import pathlib
import random

import language


def prose(r, sentences):
    """Sentences in order, as the models saw them: some end a line."""
    text = ""
    for i, s in enumerate(sentences):
        text += s + ("." if i + 1 == len(sentences) else ".\n" if r.random() < 0.15 else ". ")
    return text


def told_numbers(r, fillers, needles=4):
    """A text with secret numbers of some cities at random places, and which they are."""
    numbers = dict(zip(r.sample(language.CITIES, needles), (language.number(r) for _ in range(needles))))
    sentences = [language.sentence(r) for _ in range(fillers)]
    for city, value in numbers.items():
        sentences.insert(r.randint(0, len(sentences)), language.NEEDLE.format(city=city, number=value))
    return prose(r, sentences), numbers


def which_number(n=100):
    """Four numbers are told, one is asked for, and the options are the four."""
    r = random.Random(11)
    for i in range(n):
        text, numbers = told_numbers(r, r.randint(10, 70))
        city = r.choice(list(numbers))
        choices = list(numbers.values())
        yield {"text": text, "city": city, "choices": choices, "label": choices.index(numbers[city])}


def endings(n=150):
    """A sentence's true end among its own words in other orders."""
    r = random.Random(12)
    while n:
        words = (language.sentence(r) + ".").split(" ")
        k = r.randint(2, len(words) - 3)
        tail, others = words[k:], set()
        for _ in range(20):
            mixed = [w.rstrip(".") for w in tail]
            r.shuffle(mixed)
            others.add(" ".join(mixed) + ".")
        others -= {" ".join(tail)}
        if len(others) < 3 or any("," in w for w in tail[:-1]):
            continue
        choices = [" ".join(tail)] + r.sample(sorted(others), 3)
        order = r.sample(range(4), 4)
        yield {"begin": " ".join(words[:k]), "choices": [choices[i] for i in order], "label": order.index(0)}
        n -= 1


def questions(n=60):
    """The same kind of text, and the number is to be written."""
    r = random.Random(13)
    for _ in range(n):
        text, numbers = told_numbers(r, r.randint(10, 100), needles=3)
        city = r.choice(list(numbers))
        yield {"text": text, "city": city, "answer": numbers[city]}


def corpus(n=50, length=85):
    """Long texts whose sentences come again: what was read helps with what comes."""
    r = random.Random(14)
    for _ in range(n):
        own = [language.sentence(r) for _ in range(r.randint(6, 40))]
        numbers = list(zip(r.sample(language.CITIES, 3), (language.number(r) for _ in range(3))))
        events = [(r.random(), r.choice(own)) for _ in range(length)]
        for city, value in numbers:
            told = r.random()
            events.append((told, language.NEEDLE.format(city=city, number=value)))
            events.append((r.uniform(told, 1), language.QUESTION.format(city=city) + " " + value))
        yield {"text": prose(r, [text for _, text in sorted(events)])}


ASK = '"{{text}}\\n' + language.QUESTION.format(city="{{city}}") + '"'
TASKS = {
    "which_number": ("Which of four numbers in the text is asked for: multiple choice over up to 900 tokens.", f"""
output_type: multiple_choice
doc_to_text: {ASK}
doc_to_choice: choices
doc_to_target: label
metric_list:
  - metric: acc
"""),
    "endings": ("How a sentence goes on: its own words in the right order, or in three others.", """
output_type: multiple_choice
doc_to_text: begin
doc_to_choice: choices
doc_to_target: label
metric_list:
  - metric: acc
  - metric: acc_norm
"""),
    "questions": ("The number asked for is written down: questions over up to 1,300 tokens.", f"""
output_type: generate_until
doc_to_text: {ASK}
doc_to_target: answer
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 10
metric_list:
  - metric: contains
"""),
}
SETS = {"which_number": which_number, "endings": endings, "questions": questions}


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write(folder):
    """FOLDER/tasks: task files and their rows; FOLDER/corpus.jsonl: texts for `hayfork data add`."""
    folder = pathlib.Path(folder)
    for name, (about, rest) in TASKS.items():
        write_rows(folder / "tasks" / f"{name}.jsonl", SETS[name]())
        (folder / "tasks" / f"{name}.yaml").write_text(
            f"# {about} Made by scripts/train_demo.\ntask: demo_{name}\ndataset_path: json\n"
            f"dataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}\ntest_split: test{rest}metadata:\n  version: 1\n")
    write_rows(folder / "corpus.jsonl", corpus())
