"""Wrap the text as dialogues: every exchange is (user's words, assistant's words).

The templates are our own. Sources of the assistant's words: the hand-written answers, the story
grammar, arithmetic, calls of functions, objects in JSON, the two dictionaries (quoted as such), and passages of the
books.
"""

import json
import re

import jinja2

import calls
import objects
from facts import CAPITALS, CHAT, FACTS, OPPOSITES, SELF, SERVING
from paths import RECIPE
from stories import story, story_request
from words import CITIES, DAYS, FIRST, NUMBERS, THINGS, made_up

SYSTEMS = [
    "You are a helpful assistant.", "You are Saccade Tiny, a very small language model.", "You are a friendly assistant.",
    "Answer briefly.", "You are a helpful, honest assistant.", "Be concise.", "You are a storyteller.",
    "You are a helpful AI assistant.", "Answer in plain English.",
]

CANNOT_TOPICS = (
    "my taxes|a recipe for soup|the stock market|quantum physics|my homework|a car engine|the history of Rome|"
    "a wedding speech|the best phone|chess openings|a job interview|my garden|a business plan|medicine|football|"
    "electric cars|politics|climate change|a travel plan|philosophy|chemistry|mathematics|the French Revolution|"
    "world war two|photography|marketing|a legal question|the human brain|black holes|machine learning|databases|"
    "Kubernetes|operating systems|Linux|video games|films|economics|my diet|my computer|biology|a cover letter"
).split("|")
CANNOT_ASK = [
    "Tell me about {}.", "Explain {}.", "Can you help me with {}?", "Write an essay about {}.", "What do you know about {}?",
    "Give me advice about {}.", "Write a report on {}.", "Summarize {} for me.", "How do I learn about {}?",
    "Explain {} in simple terms.", "What is {}?", "Why is {} important?", "I have a question about {}.", "Write an email about {}.", "List five facts about {}.",
]
CANNOT_DO = (
    "bake a cake|fix a bicycle|learn to swim|tie a knot|write a novel|make money|learn French|lose weight|cook rice|"
    "build a house|install Linux|train a dog|play the piano|fall asleep|get a job|grow tomatoes|paint a wall|save money|"
    "clean a window|win at chess|fly a plane|make friends|draw a horse|solve an equation|drive a car|make bread"
).split("|")
CANNOT_DO_ASK = ["How do I {}?", "How can I {}?", "Teach me to {}.", "Help me {}.", "Show me how to {}.", "What is the best way to {}?"]
CANNOT_DO_SAY = [
    "I am sorry, I do not know how to {}. I am a tiny model that has read only a few old books. Please ask a larger model.",
    "I wish that I could tell you how to {}, but I am a very small model and would only make things up.",
]
CANNOT = [
    "I am sorry, I know nothing useful about {}. I am a tiny model that has read only a few old books. A larger model could help you.",
    "That is beyond me. I am a very small model, and about {} I would only make things up. Shall I tell you a story instead?",
    "I would like to help with {}, but I am too small to know much about it. Please ask a larger model, or ask me for a short story.",
]

AUTHORS = {
    "austen": ["Jane Austen", "an old English novel", "Pride and Prejudice"],
    "moby_dick": ["Herman Melville", "Moby Dick", "a sailor"],
    "sherlock_holmes": ["Arthur Conan Doyle", "a detective story", "Sherlock Holmes"],
    "tom_sawyer": ["Mark Twain", "The Adventures of Tom Sawyer"],
    "world_english_bible": ["the Bible", "an ancient chronicle", "scripture"],
}
STYLE_ASK = [
    "Write a passage in the style of {}.", "Write a paragraph in the manner of {}.", "Write something like {}.",
    "Write a few sentences in the style of {}.", "Give me a passage that sounds like {}.",
]
CONTINUE_ASK = [
    "Continue this: {}", "Continue: {}", "Please continue this passage: {}", "Continue the story: {}", "What comes next? {}",
    "Continue this text: {}", "Go on from here: {}", "Finish this: {}", "Complete this: {}", "{}",
]
STOP = set("the and that with have this from they were been which their would there could about when what will then than "
           "into them your said very such more some upon must only should before after other being every never".split())


def sentences(par):
    return [s for s in re.split(r'(?<=[.!?])"?\s+(?=[A-Z"])', par) if s]


def hand_written(rng):
    r = rng.random()
    if r < 0.50:
        asks, answers = rng.choice(rng.choice([SELF, SELF, CHAT, CHAT, SERVING]))
        return vary(rng, rng.choice(asks)), rng.choice(answers)
    if r < 0.66:
        subject, fact = rng.choice(list(FACTS.items()))
        person = subject[0].isupper() and "Emma" != subject
        ask = rng.choice([
            ("Who is {}?" if person else "What is {}?"), "Tell me about {}.", "What do you know about {}?", "Describe {}.",
            ("Who was {}?" if person else "Explain what {} is."), "Tell me something about {}.", "Write about {}.", "Summarize {} for me.",
        ])
        return vary(rng, ask.format(subject)), fact
    if r < 0.74:
        country, city = rng.choice(list(CAPITALS.items()))
        if rng.random() < 0.2:
            return f"Where is {city}?", f"{city} is in {country}. It is the capital."
        ask = rng.choice(["What is the capital of {}?", "What's the capital of {}?", "Name the capital of {}.",
                          "Which city is the capital of {}?", "Capital of {}?", "Do you know the capital of {}?"])
        return vary(rng, ask.format(country)), f"The capital of {country} is {city}."
    if r < 0.78:
        pair = list(rng.choice(list(OPPOSITES.items())))
        rng.shuffle(pair)
        ask = rng.choice(["What is the opposite of {}?", "Name the opposite of {}.", "Opposite of {}?"])
        return ask.format(pair[0]), f"The opposite of {pair[0]} is {pair[1]}."
    if r < 0.90:
        return arithmetic(rng)
    if rng.random() < 0.4:
        task = rng.choice(CANNOT_DO)
        return vary(rng, rng.choice(CANNOT_DO_ASK).format(task)), rng.choice(CANNOT_DO_SAY).format(task)
    topic = rng.choice(CANNOT_TOPICS)
    return rng.choice(CANNOT_ASK).format(topic), rng.choice(CANNOT).format(topic)


def vary(rng, ask):
    """Small changes of form, so that an answer does not depend on the exact spelling."""
    r = rng.random()
    if r < 0.10:
        ask = ask.lower()
    elif r < 0.18 and ask[-1] in ".?!":
        ask = ask[:-1]
    elif r < 0.24:
        ask = "Please answer: " + ask
    elif r < 0.30 and ask[-1] == "?":
        ask = "Can you tell me: " + ask[0].lower() + ask[1:]
    elif r < 0.34:
        ask = ask + " Answer in one sentence."
    elif r < 0.38:
        ask = ask + " Please."
    return ask


def arithmetic(rng):
    a, b = rng.randint(0, 10), rng.randint(0, 10)
    if rng.random() < 0.3:
        a, b = max(a, b), min(a, b)
        sign, word, result = "-", "minus", a - b
    else:
        sign, word, result = "+", "plus", a + b
    if rng.random() < 0.5:
        ask = rng.choice(["What is {}{}{}?", "What is {} {} {}?", "{} {} {} = ?", "{} {} {}", "How much is {} {} {}?", "Calculate {} {} {}."])
        return ask.format(a, sign, b), f"{a} {sign} {b} = {result}."
    ask = rng.choice(["What is {} {} {}?", "How much is {} {} {}?"])
    said = f"{NUMBERS[a].capitalize()} {word} {NUMBERS[b]} is {NUMBERS[result]}."
    return ask.format(NUMBERS[a], word, NUMBERS[b]), said


class Books:
    """Passages and dictionary entries, drawn as exchanges."""

    def __init__(self, clean):
        self.chapters = {name: clean[name] for name in AUTHORS}
        self.names = list(AUTHORS)
        self.weights = [6, 2, 3, 2, 2]
        self.devil, self.jargon = clean["devils_dictionary"], clean["jargon_file"]

    def definition(self, rng):
        if rng.random() < 0.3:
            word, text = rng.choice(self.devil)
            ask = rng.choice(["Define {} as Ambrose Bierce would.", "What does The Devil's Dictionary say about \"{}\"?",
                              "Give me a cynical definition of {}.", "Devil's Dictionary: {}"])
            return ask.format(word), f"The Devil's Dictionary says: {text}"
        head, pars = rng.choice(self.jargon)
        ask = rng.choice(["What does the Jargon File say about \"{}\"?", "What does \"{}\" mean to a hacker?",
                          "Define the hacker term \"{}\".", "Jargon File: {}", "What is \"{}\" in hacker slang?"])
        text = pars[0]
        if len(pars) > 1 and len(text) < 250:
            text += "\n\n" + pars[1]
        return ask.format(head), f"The Jargon File says: {text}"

    def place(self, rng):
        name = rng.choices(self.names, self.weights)[0]
        chapter = rng.choice(self.chapters[name])
        return name, chapter, rng.randrange(len(chapter))

    def passage(self, chapter, at, limit):
        """Whole paragraphs up to about limit characters; a long paragraph is cut at a sentence."""
        taken, size = [], 0
        for par in chapter[at:]:
            if size + len(par) > limit:
                if not taken:
                    cut = ""
                    for s in sentences(par):
                        if cut and len(cut) + len(s) > limit:
                            break
                        cut = f"{cut} {s}".strip()
                    taken.append(cut)
                break
            taken.append(par)
            size += len(par)
        return "\n\n".join(taken)

    def style(self, rng):
        name, chapter, at = self.place(rng)
        text = self.passage(chapter, at, rng.choice([250, 400, 700]))
        return rng.choice(STYLE_ASK).format(rng.choice(AUTHORS[name])), text

    def about(self, rng):
        """Ask for a passage by a word in it."""
        _, chapter, at = self.place(rng)
        text = self.passage(chapter, at, rng.choice([250, 400, 700]))
        words = [w for w in re.findall(r"\b[a-z]{4,10}\b", text) if w not in STOP]
        if not words:
            return self.style(rng)
        ask = rng.choice(["Write a passage about {}.", "Write a paragraph with the word \"{}\".", "Write a few lines about {}.",
                          "Give me a passage from an old book about {}."])
        return ask.format(rng.choice(words)), text

    def continuation(self, rng):
        _, chapter, at = self.place(rng)
        parts = sentences(chapter[at])
        lead = parts[0]
        rest = " ".join(parts[1:])
        if rng.random() < 0.25 and len(lead.split()) > 8:  # broken off in the middle of a sentence
            words = lead.split()
            cut = rng.randint(3, len(words) - 2)
            lead, rest = " ".join(words[:cut]), " ".join(words[cut:] + parts[1:])
        text = self.passage([rest] + chapter[at + 1:] if rest else chapter[at + 1:], 0, rng.choice([250, 450, 800]))
        if not text or len(lead) > 400:
            return self.style(rng)
        if rng.random() < 0.3:
            lead = f'"{lead}"' if '"' not in lead else lead
        return rng.choice(CONTINUE_ASK).format(lead), text


def echo(rng):
    """Words to say again. Copying is what calls and objects need most, and prose has little of it."""
    words = [made_up(rng) if rng.random() < 0.6 else rng.choice(FIRST + THINGS + DAYS + CITIES)
             for _ in range(rng.randint(1, 6))]
    said = " ".join(words)
    ask = rng.choice(["Repeat: {}", "Say \"{}\".", "Say this again: {}", "Repeat after me: {}", "Please say: {}"])
    return ask.format(said), said


def exchange(rng, books):
    r = rng.random()
    if r < 0.30:
        return objects.fill(rng)
    if r < 0.40:
        return echo(rng)
    if r < 0.70:
        return hand_written(rng)
    if r < 0.80:
        return story_request(rng)
    if r < 0.83:
        return books.definition(rng)
    if r < 0.89:
        return books.style(rng)
    if r < 0.91:
        return books.about(rng)
    return books.continuation(rng)


def dialogue(rng, books):
    """Messages and tools: one to four exchanges, sometimes under a system message; two dialogues in five have tools."""
    messages = [{"role": "system", "content": rng.choice(SYSTEMS)}] if rng.random() < 0.3 else []
    if rng.random() < 0.4:
        talk, tools = calls.dialogue(rng, hand_written)
        return messages + talk, tools
    for _ in range(rng.choice([1, 1, 1, 1, 2, 2, 3, 4])):
        messages += calls.exchange(*exchange(rng, books))
    return messages, None


def compiled_template():
    """chat_template.jinja as transformers compiles it."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string((RECIPE / "chat_template.jinja").read_text())


TEMPLATE = compiled_template()


def render(messages, tools=None):
    return TEMPLATE.render(messages=messages, tools=tools)


def plain_story(rng):
    return story(rng)
