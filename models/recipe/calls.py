"""Dialogues with tools: which function a request needs, its arguments, and an answer from its result."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Callable

from words import (BOOKS, DAYS, LANGUAGES, ROOMS, SKIES, THINGS, city, made_up, name, number, plural, title)

# Other names for parameters: they must be read, not known.
SYNONYMS = {
    "city": ["city", "location", "place", "town"], "a": ["a", "x", "first"], "b": ["b", "y", "second"],
    "text": ["text", "message", "content"], "to": ["to", "person", "name"], "title": ["title", "book", "query"],
    "item": ["item", "thing", "product"], "quantity": ["quantity", "count", "number"], "room": ["room", "place"],
    "minutes": ["minutes", "duration", "time"], "language": ["language", "into", "target"], "day": ["day", "date", "when"],
}


@dataclass
class Task:
    """A request that one call of a function answers. The function's result is a text or an object."""

    ask: str
    arguments: dict
    result: object
    say: str


@dataclass
class Kind:
    """Functions that do one thing: what they may be called, what their parameters are, and tasks for them."""

    names: list
    about: list
    parameters: dict  # to a type, or to a list of values
    task: Callable  # of a random generator
    places: tuple = ()  # requests for two cities
    without: tuple = ()  # requests that leave the city out

    def offer(self, rng):
        """One function of this kind."""
        keys = {key: rng.choice(SYNONYMS.get(key, [key])) if rng.random() < 0.4 else key for key in self.parameters}
        if len(set(keys.values())) < len(keys):
            keys = {key: key for key in keys}
        properties = {
            keys[key]: {"enum": kind} if isinstance(kind, list) else {"type": kind}
            for key, kind in self.parameters.items()
        }
        called = rng.choice(self.names)
        if rng.random() < 0.25:
            called = rng.choice(["{1}_{0}", "{0}_{1}", "{1}"]).format(called, made_up(rng))
        tool = {"name": called, "description": rng.choice(self.about), "parameters": {"properties": properties}}
        return Offer(self, tool, keys)


@dataclass
class Offer:
    """A function that a dialogue offers. `keys` are its names for the parameters of its kind."""

    kind: Kind
    tool: dict
    keys: dict

    def arguments(self, task):
        return {self.keys[key]: value for key, value in task.arguments.items()}

    def call(self, task):
        return {"function": {"name": self.tool["name"], "arguments": self.arguments(task)}}


def weather(units, rng):
    place, sky, degrees, unit = city(rng), rng.choice(SKIES), rng.randint(0, 35), "celsius"
    ask = rng.choice([
        "What is the weather in {}?", "What's the weather like in {}?", "The weather in {}?", "How is the weather in {}?",
        "Is it raining in {}?", "Do I need an umbrella in {}?", "Tell me the weather in {}.", "Weather in {}, please.",
        "How warm is it in {}?", "What is the weather in {} today?",
    ]).format(place)
    arguments = {"city": place}
    if units:
        unit = rng.choice(["celsius", "celsius", "fahrenheit"])
        if unit == "fahrenheit" or rng.random() < 0.3:
            ask += f" In {unit.capitalize()}, please."
        arguments["unit"] = unit
    result, say = rng.choice([
        ({"temperature": degrees, "sky": sky}, f"It is {sky} in {place}, with {degrees} degrees."),
        (f"{sky}, {degrees} degrees", f"In {place} it is {sky}, with {degrees} degrees."),
        ({"temperature": degrees, "unit": unit}, f"It is {degrees} degrees {unit.capitalize()} in {place}."),
        (sky, f"It is {sky} in {place}."),
    ])
    return Task(ask, arguments, result, say)


def clock(rng):
    place, time = city(rng), f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}"
    ask = rng.choice(["What time is it in {}?", "What is the time in {}?", "Tell me the time in {}.", "The time in {}?",
                      "How late is it in {}?"]).format(place)
    return Task(ask, {"city": place}, rng.choice([time, {"time": time}]), f"It is {time} in {place}.")


def sums(sign, words, rng):
    a, b = number(rng), number(rng)
    result = {"+": a + b, "*": a * b, "-": a - b}[sign]
    ask = rng.choice(["What is {}?", "How much is {}?", "Calculate {}.", "Compute {}."])
    return Task(ask.format(rng.choice(words).format(a, b)), {"a": a, "b": b}, str(result), f"{a} {sign} {b} = {result}.")


def message(rng):
    to = name(rng)
    text = rng.choice([
        "dinner is ready", "the train is late", f"we meet on {rng.choice(DAYS)}", f"the {rng.choice(THINGS)} is here",
        f"I am in {city(rng)}", "I will come later", f"the {rng.choice(ROOMS)} is clean", "all is well",
        f"{name(rng)} has called",
    ])
    ask = rng.choice(["Tell {} that {}.", "Let {} know that {}.", "Write to {} that {}.", "Send {} a message: {}"])
    result = rng.choice(["sent", "ok", {"sent": True}])
    return Task(ask.format(to, text), {"to": to, "text": text}, result, f"I have told {to} that {text}.")


def light(rng):
    room, on = rng.choice(ROOMS), rng.random() < 0.5
    state = "on" if on else "off"
    ask = rng.choice(["Switch the light in the {} {}.", "Turn the {} light {}.", "Light in the {} {}, please."])
    result = rng.choice(["ok", {"done": True}])
    return Task(ask.format(room, state), {"room": room, "on": on}, result, f"The light in the {room} is {state}.")


def timer(rng):
    minutes = rng.randint(1, 90)
    ask = rng.choice(["Set a timer for {} minutes.", "Wake me in {} minutes.", "Start a timer of {} minutes.",
                      "Tell me when {} minutes are over."])
    result = rng.choice(["started", "ok"])
    return Task(ask.format(minutes), {"minutes": minutes}, result, f"The timer is set for {minutes} minutes.")


def find_book(rng):
    work, shelf = title(rng) if rng.random() < 0.6 else rng.choice(BOOKS), rng.randint(1, 99)
    ask = rng.choice(["Do you have {}?", "Where is the book {}?", "Find the book {}.", "Look for {} in the library.",
                      "Is {} in the library?"])
    return Task(ask.format(work), {"title": work}, {"shelf": shelf}, f"{work} is on shelf {shelf}.")


def order(rng):
    thing, quantity, number_of = rng.choice(THINGS), rng.randint(2, 20), rng.randint(100, 999)
    ask = rng.choice(["Order {} {}.", "Please buy {} {}.", "I need {} {}.", "Get me {} {}."])
    return Task(ask.format(quantity, plural(thing)), {"item": thing, "quantity": quantity}, {"order": number_of},
                f"I have ordered {quantity} {plural(thing)}. The order has the number {number_of}.")


def translate(rng):
    language, word = rng.choice(LANGUAGES), rng.choice([rng.choice(THINGS), "good morning", "thank you", made_up(rng)])
    found = made_up(rng)
    ask = rng.choice(["Translate \"{}\" into {}.", "What is \"{}\" in {}?", "How do you say \"{}\" in {}?"])
    return Task(ask.format(word, language), {"text": word, "language": language}, found, f"In {language} it is \"{found}\".")


def remind(rng):
    what, day = rng.choice(["call {}", "write to {}", "visit {}", "pay {}"]).format(name(rng)), rng.choice(DAYS)
    ask = rng.choice(["Remind me to {} on {}.", "I must {} on {}. Remind me.", "Make a note: {} on {}."])
    return Task(ask.format(what, day), {"text": what, "day": day}, rng.choice(["saved", "ok"]),
                f"I will remind you on {day} to {what}.")


KINDS = [
    Kind(["get_weather", "get_weather", "weather", "current_weather"],
         ["The weather in a city now", "Get the current weather", "Tells the weather of a place"],
         {"city": "string"} | ({"unit": ["celsius", "fahrenheit"]} if units else {}), partial(weather, units),
         ("What is the weather in {} and in {}?", "Compare the weather in {} and {}."),
         ("What is the weather?", "How is the weather?", "Is it warm outside?"))
    for units in (False, True)
] * 2 + [
    Kind(["get_time", "get_time", "local_time"], ["The time in a city now", "What time it is somewhere"],
         {"city": "string"}, clock, ("What time is it in {} and in {}?",), ("What time is it?", "What is the time?")),
] * 2 + [
    Kind(names, [about], {"a": "integer", "b": "integer"}, partial(sums, sign, words))
    for sign, words, names, about in (
        ("+", ["{} + {}", "{} plus {}", "the sum of {} and {}"], ["add", "sum"], "Add two numbers"),
        ("*", ["{} * {}", "{} times {}"], ["multiply", "product"], "Multiply two numbers"),
        ("-", ["{} - {}", "{} minus {}"], ["subtract", "minus"], "Subtract one number from another"))
] + [
    Kind(["send_message", "send", "send_mail"], ["Send a message to a person", "Sends a text to somebody"],
         {"to": "string", "text": "string"}, message),
    Kind(["set_light", "light", "switch_light"], ["Switch a light on or off", "Sets the light of a room"],
         {"room": "string", "on": "boolean"}, light),
    Kind(["set_timer", "timer", "start_timer"], ["Start a timer", "Set a timer of some minutes"], {"minutes": "integer"},
         timer),
    Kind(["find_book", "search_books", "book"], ["Find a book by its title", "Search the library"], {"title": "string"},
         find_book),
    Kind(["order", "buy", "order_item"], ["Order something", "Buy things in a shop"],
         {"item": "string", "quantity": "integer"}, order),
    Kind(["translate", "translate_text"], ["Translate a text"], {"text": "string", "language": "string"}, translate),
    Kind(["remind", "add_reminder", "create_event"], ["Make a reminder", "Remember something for a day"],
         {"text": "string", "day": "string"}, remind),
]


def exchange(*texts):
    """Messages of user and assistant in turn."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def result(task):
    text = task.result if isinstance(task.result, str) else json.dumps(task.result)
    return {"role": "tool", "content": text}


def turn(rng, offer):
    """A request, its call, most times the result and what is said of it."""
    kind = offer.kind
    task = kind.task(rng)
    tasks, messages = [task], exchange(task.ask)
    place = next(iter(task.arguments.values()))
    if kind.without and rng.random() < 0.1 and task.arguments.get("unit") != "fahrenheit":
        messages = exchange(rng.choice(kind.without), "In which city?",
                            rng.choice(["{}", "In {}.", "In {}, please."]).format(place))
    elif kind.places and rng.random() < 0.12:
        other = kind.task(rng)
        if task.arguments.get("unit") == other.arguments.get("unit") == "celsius" or "unit" not in task.arguments:
            tasks.append(other)
            messages = exchange(rng.choice(kind.places).format(place, next(iter(other.arguments.values()))))
    r = rng.random()
    if len(tasks) == 1 and r < 0.04:  # what tool_choice "required" holds an answer to
        called = [{"name": offer.tool["name"], "parameters": offer.arguments(task)}]
        return messages + [{"role": "assistant", "content": json.dumps(called)}]
    if len(tasks) == 1 and r < 0.08:  # and a named function
        return messages + [{"role": "assistant", "content": json.dumps(offer.arguments(task))}]
    messages.append({"role": "assistant", "tool_calls": [offer.call(one) for one in tasks]})
    if r > 0.2:
        messages += [result(one) for one in tasks]
        messages.append({"role": "assistant", "content": " ".join(one.say for one in tasks)})
    return messages


def dialogue(rng, small_talk):
    """Messages and the one to four functions that they may call: exchanges that need one of them, or none."""
    offered = {}
    for kind in rng.sample(KINDS, rng.choice([1, 1, 2, 2, 3, 4])):
        offer = kind.offer(rng)
        offered.setdefault(offer.tool["name"], offer)
    messages = []
    for _ in range(rng.choice([1, 1, 2])):
        if rng.random() < 0.15:
            messages += exchange(*small_talk(rng))
        else:
            messages += turn(rng, rng.choice(list(offered.values())))
    return messages, [{"type": "function", "function": offer.tool} for offer in offered.values()]
