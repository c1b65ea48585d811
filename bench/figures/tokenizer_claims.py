"""What documents say about the tokenizer compared with others."""
from claims import Claim
from raw import fixed, numbers, table_rows, text
from runs import TOKENIZER as COMMIT

ABOUT = "tokenizer"
HF = 3  # the column


def times(pass_, most_tokens=2048):
    """Hugging Face's time as a multiple of ours: pass_ 0 is the second pass, 1 the first, after the others."""
    rows = [row for run in (1, 2, 3) for row in table_rows(text(COMMIT, ABOUT, f"text-{run}.txt"))]
    short = [row for row in rows if int(row[0].split(", ")[1]) <= most_tokens]
    return [numbers(row[HF])[pass_] for row in short]


def instructions():
    return [numbers(row[2])[1] for row in table_rows(text(COMMIT, ABOUT, "instructions.txt"))]


def random_letters(name):
    return [float(row[3]) for row in table_rows(text(COMMIT, ABOUT, name))]


def spread(values, digits=0):
    return {"least": fixed(min(values), digits), "most": fixed(max(values), digits)}


README = [
    Claim("{least} to {most} times as fast from 10 to 2,048 tokens once its tables are in the caches",
          spread(times(0))),
    Claim("and {least} to {most} times right after other tokenizers had them", spread(times(1))),
    Claim("in {least} to {most} times fewer instructions", spread(instructions())),
]
CHANGELOG = [
    Claim("with AVX2 letters at random take {least} to {most} times the time of English, {least_before} to "
          "{most_before} before",
          spread(random_letters("worst.txt"), 1)
          | {f"{k}_before": v for k, v in spread(random_letters("worst-before.txt"), 1).items()}),
]
