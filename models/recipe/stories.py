"""Very short stories from a grammar of our own: plain words, one thread, an ending."""

HEROES = [
    ("fox", "it"), ("old sailor", "he"), ("young queen", "she"), ("little girl", "she"), ("small boy", "he"),
    ("shepherd", "he"), ("baker", "she"), ("clockmaker", "he"), ("gray mouse", "it"), ("cat", "she"), ("dog", "he"),
    ("king", "he"), ("poor fisherman", "he"), ("dragon", "it"), ("robot", "it"), ("wise old owl", "she"),
    ("lighthouse keeper", "he"), ("young painter", "she"), ("miller", "he"), ("teacher", "she"), ("princess", "she"),
    ("knight", "he"), ("wizard", "he"), ("bear", "he"), ("rabbit", "it"), ("captain", "she"), ("gardener", "she"),
    ("bird", "it"), ("horse", "he"), ("farmer", "he"), ("doctor", "she"), ("traveller", "he"), ("whale", "it"),
    ("librarian", "she"), ("lion", "he"), ("elephant", "she"), ("computer", "it"), ("token", "it"),
]
PLACES = [
    "in a quiet village by the sea", "at the edge of a deep forest", "in a small house on a hill", "in a great city",
    "on a lonely island", "beside a wide river", "in a valley between two mountains", "in an old castle",
    "near the harbour of a little town", "in a garden full of roses", "in a tower above the cliffs",
    "at the end of a long and dusty road", "in a land where it almost always rained", "under the roots of a tall oak",
]
TRAITS = ["kind", "curious", "proud", "lonely", "brave", "patient", "clever", "shy", "merry", "careful", "stubborn", "honest"]
WISHES = [
    ("see the other side of the mountains", "the other side of the mountains", "a path through the mountains"),
    ("find a lost golden ring", "the ring", "the golden ring"),
    ("learn how to sing", "the art of singing", "a song that nobody knew"),
    ("hear a story that nobody had ever told", "a new story", "a book without a title"),
    ("find a true friend", "a friend", "a friend"),
    ("bring light to the dark harbour", "the light", "an old lamp"),
    ("build a boat that could not sink", "the boat", "a good piece of wood"),
    ("find out where the stars go in the morning", "the place of the stars", "the answer"),
    ("grow a flower that bloomed in the snow", "the winter flower", "a small white seed"),
    ("mend the great clock in the square", "the clock", "the missing wheel"),
    ("catch the wind in a bag", "the wind", "a bag of fine silk"),
    ("win back the old family house", "the house", "a forgotten key"),
]
TIMES = ["One morning", "One evening in autumn", "One cold night", "On the first day of spring", "One day, when the sun was hot",
         "Late one summer", "One stormy evening", "On a bright winter morning"]
MEETINGS = [
    ("an old woman with a basket of apples", "she", "Take one of my apples, and walk where the wind comes from."),
    ("a raven that could speak", "it", "What you want is nearer than you think."),
    ("a boy who was carrying a lantern", "he", "Take my lantern. I know the way in the dark."),
    ("a stranger in a long blue coat", "he", "I will help you, if you tell me one true thing."),
    ("a little fish in a silver pool", "it", "Put your hand in the water and do not be afraid."),
    ("a tired soldier", "he", "Share your bread with me, and I will tell you a secret."),
    ("a girl who was feeding the geese", "she", "My geese have seen it. Let us follow them."),
    ("a merchant with three gray donkeys", "he", "Everything has a price, but the best things are given away."),
    ("a very old tortoise", "it", "Go slowly, and you will arrive before the others."),
    ("a musician with a broken violin", "she", "Sit with me for a while and listen."),
]
TROUBLES = [
    "The way was long, and the rain fell without an end.", "Twice the road was lost, and twice it was found again.",
    "A storm came up, and the night was full of noise.", "Nobody believed that it could be done.",
    "The bridge was broken, and the river was high.", "For three days there was nothing to eat but berries.",
    "There was a wall with no door in it.", "The snow lay deep, and there were wolves in the hills.",
    "At first every attempt ended badly.", "The people in the town only laughed.",
]
TURNS = [
    "But {p} did not give up.", "Still {p} went on, step by step.", "Then {p} remembered the words and tried once more.",
    "{P} sat down, thought for a long time, and then began again.", "{P} was afraid, but {p} went on all the same.",
    "In the end {p} asked for help, and help came.",
]
ENDS = [
    "When the sun rose, there it was: {find}.", "And there, under a flat stone, lay {find}.",
    "In the last light of the day {p} saw {find}.", "At last, when {p} had almost stopped hoping, {p} came upon {find}.",
]
MORALS = [
    "From that day on, {p} was never lonely again.", "And everybody in the place was glad, and there was a feast that lasted until morning.",
    "{P} went home with a light heart, and told the story to everyone who would listen.",
    "And if nobody has moved it, it is still there today.", "Since then {p} has always kept a place at the table for strangers.",
    "{P} had learned that patience opens more doors than force.", "So it was that a small thing, done with care, changed everything.",
    "And that is the end of the story.", "And they lived in peace for many years.",
]
ASK = [
    "Tell me a story about {a}.", "Tell me a short story about {a}.", "Write a story about {a}.", "Write a short story about {a}.",
    "Can you tell me a story about {a}?", "I would like to hear a story about {a}.", "Write a tale about {a}.",
    "Please write a short story about {a}.", "Story about {a}, please.", "Make up a story about {a}.",
]
ASK_ANY = [
    "Tell me a story.", "Tell me a short story.", "Write a story.", "Write a short story.", "Tell me another story.",
    "Please tell me a story.", "Can you tell me a story?", "I want to hear a story.", "Once upon a time", "Tell me a bedtime story.",
    "Tell me a fairy tale.", "Write me a story.", "Tell me a long story.", "Another one, please.",
]


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def story(rng, hero=None):
    """One story; hero is (noun, pronoun)."""
    noun, p = hero or rng.choice(HEROES)
    their = {"he": "his", "she": "her", "it": "its"}[p]
    want, _, find = rng.choice(WISHES)
    who, they, says = rng.choice(MEETINGS)
    trait = rng.choice(TRAITS)
    fill = {"p": p, "P": p.capitalize(), "find": find}
    opening = rng.choice([
        "Once upon a time there was {a} who lived {place}. The {noun} was {trait}, and wished for nothing so much as to {want}.",
        "There was once {a} who lived {place}. Everybody knew that the {noun} was {trait}, but nobody knew that {p} wanted to {want}.",
        "Long ago, {place}, there lived {a}. {P} was {trait}, and {p} had one great wish: to {want}.",
        "Once there lived {a} {place}. All {their} life the {trait} {noun} had wanted to {want}.",
    ]).format(a=article(noun), place=rng.choice(PLACES), noun=noun, trait=trait, want=want, their=their, **fill)
    meeting = rng.choice([
        "{time} the {noun} met {who}. \"{says}\" said {they}.",
        "{time} {p} set out. On the way {p} met {who}. \"Where are you going?\" asked {they}. \"I want to {want},\" said the {noun}. \"{says}\"",
        "{time} there came {who}. \"I have heard of your wish,\" said {they}. \"{says}\"",
    ]).format(time=rng.choice(TIMES), noun=noun, who=who, says=says, they=they, want=want, **fill)
    meeting = meeting.replace('." said', '," said')
    middle = rng.sample(TROUBLES, rng.choice([1, 1, 2])) + [rng.choice(TURNS).format(**fill)]
    ending = [rng.choice(ENDS).format(**fill), rng.choice(MORALS).format(**fill)]
    join = rng.choice([" ", "\n\n"])
    return join.join([opening, meeting, " ".join(middle), " ".join(ending)])


def story_request(rng):
    if rng.random() < 0.45:
        return rng.choice(ASK_ANY), story(rng)
    hero = rng.choice(HEROES)
    return rng.choice(ASK).format(a=article(hero[0])), story(rng, hero)
