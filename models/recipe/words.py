"""Words that fill calls and objects. Part of the names are made up, so that copying is learnt and not a list."""

from facts import CAPITALS

NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
           "seventeen eighteen nineteen twenty").split()

FIRST = (
    "Anna Ben Clara David Emma Frank Grace Henry Ida Jonas Kate Leo Mary Nora Oscar Paul Rosa Simon Thomas Vera William "
    "Alice Bruno Carmen Daniel Elena Felix Georg Hannah Ivan Julia Karl Laura Martin Nina Oliver Peter Rita Samuel Tina"
).split()
LAST = (
    "Adams Baker Cooper Dixon Evans Fisher Green Harris Irving Jones King Lopez Meyer Nolan Owen Parker Quinn Rossi "
    "Smith Taylor Underwood Vogel Weber Young Larsen Novak Silva Tanaka Kowalski Moreau"
).split()
MORE_CITIES = (
    "New York|Boston|Chicago|Toronto|Sydney|Melbourne|Munich|Hamburg|Milan|Naples|Barcelona|Seville|Porto|Lyon|Geneva|"
    "Zurich|Oxford|Cambridge|Bristol|Osaka|Mumbai|Shanghai|Istanbul|Prague|San Francisco|Los Angeles|Rio"
).split("|")
CITIES = list(CAPITALS.values()) + MORE_CITIES
JOBS = (
    "teacher|doctor|baker|painter|sailor|engineer|nurse|farmer|writer|lawyer|gardener|pilot|carpenter|cook|judge|tailor|"
    "musician|librarian|clockmaker|shepherd"
).split("|")
LANGUAGES = "English French German Greek Spanish Italian Polish Danish Dutch Turkish Latin Russian Arabic Hindi".split()
COLOURS = "red blue green yellow black white brown gray golden purple orange pink".split()
ANIMALS = "cat dog horse bird fish mouse lion fox bear goat sheep owl rabbit whale".split()
THINGS = (
    "apple pear cherry lemon candle lamp book chair table cup plate ring coat hat boot spoon basket pencil clock kettle"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ROOMS = "kitchen|hall|bedroom|study|garden|cellar|bathroom|living room|library|attic".split("|")
BOOKS = [
    "Emma", "Moby Dick", "Persuasion", "Pride and Prejudice", "Hamlet", "The Odyssey", "The Adventures of Tom Sawyer",
    "Don Quixote", "Robinson Crusoe", "Treasure Island", "Jane Eyre", "Dracula",
]
SKIES = "sunny cloudy rainy windy foggy clear stormy snowy".split()
ONSETS = "b br c d dr f g gr h k l m n p r s st t tr v w".split()
VOWELS = "a e i o u ai ea ou".split()
ENDINGS = "n r l s th m nd rt ck lin ton den va ria dor".split()


def made_up(rng):
    """A word that nobody has read before."""
    parts = [rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.choice([1, 2, 2, 3]))]
    return "".join(parts) + rng.choice(ENDINGS)


def name(rng):
    if rng.random() < 0.3:
        return made_up(rng).capitalize()
    return rng.choice(FIRST)


def person(rng):
    if rng.random() < 0.4:
        return name(rng)
    last = made_up(rng).capitalize() if rng.random() < 0.3 else rng.choice(LAST)
    return f"{name(rng)} {last}"


def city(rng):
    return made_up(rng).capitalize() if rng.random() < 0.3 else rng.choice(CITIES)


def title(rng):
    if rng.random() < 0.5:
        return rng.choice(BOOKS)
    word = made_up(rng).capitalize() if rng.random() < 0.4 else rng.choice(THINGS + ANIMALS).capitalize()
    return rng.choice(["The {}", "The Last {}", "The House of {}", "A Day in {}", "{}", "The Golden {}"]).format(word)


def plural(word):
    return word[:-1] + "ies" if word.endswith("y") else word + "s"


def number(rng):
    """Mostly small."""
    return rng.randint(0, rng.choice([10, 20, 100, 100, 1000]))


def count_word(n):
    return NUMBERS[n] if n < len(NUMBERS) else str(n)
