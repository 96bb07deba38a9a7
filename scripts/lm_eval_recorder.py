"""Stands in for the model of lm-evaluation-harness: keeps what it would be asked, and answers with made-up scores.

The harness's own code puts texts together, turns them into ids and makes metrics of the answers; only the forward pass
is left out. A made-up log-probability is a multiple of a quarter drawn from the digest of its texts, so that whoever has
the texts has the answers too, and equal ones are common.
"""
import hashlib
import json


def draw(*texts):
    """A whole number that belongs to the texts."""
    return int.from_bytes(hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()[:4], "big")


def made_score(context, continuation):
    """(log-probability, is it what the model would say)"""
    number = draw(context, continuation)
    return -0.25 - number % 96 / 4, number // 96 % 3 == 0


def made_answer(context, target, until):
    choice = [f"so {target.upper()}, it says", "nothing of it", target.lower() + " ", "a" + target[1:], target.swapcase()]
    answer = choice[draw(context) % 5]
    for stop in until:
        answer = answer.split(stop)[0]
    return answer


class Recorder:
    """Wraps a harness model (HFLM)."""

    def __init__(self, model):
        self.model, self.ids, self.prompts, self.windows, self.seen = model, {}, {}, {}, None
        self.rolling, self.generate = model.loglikelihood_rolling, model.generate_until
        model._loglikelihood_tokens = self.on_tokens
        model._model_generate = self.on_generate
        model.loglikelihood_rolling = self.on_rolling
        model.generate_until = self.on_generate_until

    def on_tokens(self, requests, **kwargs):
        answers = []
        for texts, context, continuation in requests:
            if texts is None:  # a window of a text that is rolled over
                self.seen.append({"context_ids": context, "continuation_ids": continuation})
                answers.append((0.0, False))
            else:
                self.ids.setdefault(tuple(texts), (context, continuation))
                answers.append(made_score(*texts))
        return answers

    def on_rolling(self, requests, disable_tqdm=False):
        for request in requests:
            self.seen = []
            self.rolling([request], disable_tqdm=True)
            self.windows[request.args[0]] = self.seen
        return [made_score("", request.args[0])[0] * 100 for request in requests]

    def on_generate(self, context, **kwargs):
        self.seen = context[0].tolist()
        return context

    def on_generate_until(self, requests, disable_tqdm=False):
        for request in requests:
            self.generate([request], disable_tqdm=True)
            self.prompts[request.args[0]] = self.seen
        return [made_answer(request.args[0], request.doc["value"].strip(), request.args[1]["until"]) for request in requests]

    def row(self, task, sample):
        """One document as `hayfork show prompts -o jsonl` writes it, with the made-up answers and the harness's metrics."""
        arguments = [list(sample["arguments"][i]) for i in range(len(sample["arguments"]))]
        row = {"task": task, "doc_id": sample["doc_id"]}
        row.update({key: sample[key] for key in ("doc_hash", "prompt_hash", "target_hash")})
        first = arguments[0]
        if len(first) == 1:
            row.update(text=first[0], windows=self.windows[first[0]])
        elif isinstance(first[1], dict):
            row.update(context=first[0], context_ids=self.prompts[first[0]], until=first[1]["until"])
            row.update(max_gen_toks=first[1]["max_gen_toks"])
        else:
            row["requests"] = []
            for context, continuation in arguments:
                ids = self.ids[context, continuation]
                row["requests"].append({"context": context, "continuation": continuation, "context_ids": ids[0],
                                        "continuation_ids": ids[1]})  # fmt: skip
        row["answers"] = [response[0] for response in sample["resps"]]
        row["metrics"] = {name: sample[name] for name in sample["metrics"]}
        return row

    def save(self, results, path):
        """A line a document, then one a task with its aggregates."""
        with open(path, "w", encoding="utf-8") as out:
            for task, samples in results["samples"].items():
                for sample in samples:
                    out.write(json.dumps(self.row(task, sample), default=lambda value: value.item()) + "\n")
            for task, values in results["results"].items():
                line = {"task": task, "version": results["versions"].get(task), "results": values}
                out.write(json.dumps(line, default=lambda value: value.item()) + "\n")
