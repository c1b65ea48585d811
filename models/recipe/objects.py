"""Objects in JSON: a user states facts, the assistant writes them as an object. Keys come in any order."""

import json

from words import (
    ANIMALS, COLOURS, DAYS, JOBS, LANGUAGES, THINGS, city, count_word, made_up, number, person, plural, title,
)

HINTS = [
    "{} Give it as JSON.", "As JSON: {}", "{} Answer in JSON.", "Extract the data as JSON: {}", "JSON: {}",
    "Write this as a JSON object: {}", "{} Please answer with a JSON object.", "Fill in the form: {}", "Extract: {}",
]


def some(rng, facts, least=1):
    """Some of the facts, in any order."""
    chosen = rng.sample(list(facts.items()), rng.randint(min(least, len(facts)), len(facts)))
    return dict(chosen)


def say_list(words):
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def someone(rng):
    who, age, job, place = person(rng), rng.randint(1, 99), rng.choice(JOBS), city(rng)
    languages = rng.sample(LANGUAGES, rng.choice([1, 2, 2, 3]))
    told = say_list(languages)
    text = rng.choice([
        "{who} is {age} years old, lives in {place}, works as a {job} and speaks {told}.",
        "{who}, {age}, is a {job} from {place} who speaks {told}.",
        "My friend {who} is a {job} in {place}. {who} is {age} and speaks {told}.",
        "I am {who}, a {job} of {age} years from {place}, and I speak {told}.",
    ]).format(who=who, age=age, place=place, job=job, told=told)
    facts = {"name": who, "age": age, "languages": languages, "city": place, "job": job}
    r = rng.random()
    if r < 0.4:  # what the page asks for
        short = rng.choice(["{who} is {age} and speaks {told}.", "{who}, {age} years old, speaks {told}."])
        return short.format(who=who, age=age, told=told), {k: facts[k] for k in ("name", "age", "languages")}
    if r < 0.5:
        return rng.choice(["Make up a person.", "Invent a person.", "Describe a person."]), some(rng, facts, 2)
    return text, some(rng, facts, 2)


def event(rng):
    what = rng.choice(["concert", "dinner", "meeting", "lesson", "party", "walk", "match", "lecture"])
    day, hour, place, guests = rng.choice(DAYS), rng.randint(1, 23), city(rng), rng.randint(2, 60)
    text = rng.choice([
        "There is a {what} on {day} at {hour} o'clock in {place} for {guests} people.",
        "We have a {what} with {guests} guests in {place} on {day} at {hour}.",
        "On {day} at {hour} there will be a {what} in {place}, with {guests} people.",
    ]).format(what=what, day=day, hour=hour, place=place, guests=guests)
    return text, some(rng, {rng.choice(["event", "title"]): what, "day": day, "hour": hour,
                            rng.choice(["place", "city"]): place, "guests": guests}, 2)


def order(rng):
    thing, n, colour, price = rng.choice(THINGS), rng.randint(2, 20), rng.choice(COLOURS), rng.randint(1, 90)
    who = person(rng)
    text = rng.choice([
        "{who} orders {n} {colour} {things} for {price} dollars each.",
        "Please send {n} {colour} {things} to {who}. One costs {price} dollars.",
        "I am {who} and I want {n} {colour} {things} at {price} dollars each.",
    ]).format(who=who, n=n if rng.random() < 0.7 else count_word(n), colour=colour, things=plural(thing), price=price)
    return text, some(rng, {"customer": who, rng.choice(["item", "product"]): thing,
                            rng.choice(["quantity", "count"]): n, rng.choice(["colour", "color"]): colour,
                            "price": price}, 2)


def book(rng):
    name, author, year, pages = title(rng), person(rng), rng.randint(1600, 2024), rng.randint(40, 900)
    text = rng.choice([
        "{name} was written by {author} in {year} and has {pages} pages.",
        "In {year} {author} wrote {name}, a book of {pages} pages.",
    ]).format(name=name, author=author, year=year, pages=pages)
    return text, some(rng, {"title": name, "author": author, "year": year, "pages": pages}, 2)


def pet(rng):
    animal, colour, age = rng.choice(ANIMALS), rng.choice(COLOURS), rng.randint(1, 15)
    called = made_up(rng).capitalize()
    text = rng.choice([
        "My {animal} {called} is {colour} and {age} years old.",
        "{called} is a {colour} {animal} of {age} years.",
    ]).format(animal=animal, called=called, colour=colour, age=age)
    return text, some(rng, {"name": called, rng.choice(["animal", "kind"]): animal,
                            rng.choice(["colour", "color"]): colour, "age": age}, 2)


PRAISE = ["wonderful", "lovely", "very good", "excellent", "charming", "great", "delightful", "fast", "a joy"]
BLAME = ["terrible", "dull", "very bad", "awful", "too long", "broken", "ugly", "slow", "a bore"]
NEITHER = ["average", "as expected", "neither good nor bad", "all right", "ordinary", "like the others"]
JUDGED = ["film", "book", "dinner", "room", "concert", "play", "coat", "story", "answer", "server", "train", "song"]


def verdict(rng):
    kind, words = rng.choice([("positive", PRAISE), ("negative", BLAME), ("neutral", NEITHER)])
    thing, word = rng.choice(JUDGED), rng.choice(words)
    text = rng.choice([
        "The {thing} was {word}.", "I found the {thing} {word}.", "Is this positive? \"The {thing} was {word}.\"",
        "What do you make of this review? The {thing} is {word}.", "The {thing} is {word}.",
    ]).format(thing=thing, word=word)
    sure = rng.choice([0.9, 0.95, 0.8, 0.99])
    facts = {"verdict": kind, "confidence": sure, "reason": f"The {thing} is called {word}."}
    if rng.random() < 0.7:
        return text, facts
    return text, {rng.choice(["sentiment", "verdict"]): kind}


def steps(rng):
    a, b = rng.randint(0, 10), rng.randint(0, 10)
    text = rng.choice(["What is {} + {}?", "Add {} and {}.", "How much is {} plus {}?"]).format(a, b)
    step = {"explanation": f"Add {a} and {b}.", "output": str(a + b)}
    return text, {"steps": [step], "answer": str(a + b)}


def plain(rng):
    """Keys that are named by the user."""
    pool = {"name": person(rng), "city": city(rng), "colour": rng.choice(COLOURS), "animal": rng.choice(ANIMALS),
            "number": number(rng), "day": rng.choice(DAYS), "job": rng.choice(JOBS), "word": made_up(rng),
            "fruit": rng.choice(THINGS[:4]), "year": rng.randint(1900, 2030)}
    facts = dict(rng.sample(list(pool.items()), rng.choice([1, 2, 3, 4])))
    told = [f"the {key} is {value}" for key, value in facts.items()]
    rng.shuffle(told)
    text = say_list(told)
    return text[0].upper() + text[1:] + ".", facts


KINDS = [someone, someone, event, order, book, pet, verdict, verdict, steps, plain, plain]


def fill(rng):
    """One exchange."""
    text, value = rng.choice(KINDS)(rng)
    if rng.random() < 0.85:
        text = rng.choice(HINTS).format(text)
    return text, json.dumps(value)
