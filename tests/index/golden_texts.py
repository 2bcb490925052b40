"""A small collection with queries, to pin the first stage's rankings and scores."""

SHORT = """
bread|Bread rises because yeast turns sugar into gas, which the dough holds.
sourdough|A sourdough starter is flour and water in which wild yeast and bacteria live.
kneading|Kneading stretches the dough until its gluten can hold the gas of the yeast.
oven|The oven must be hot before the loaf goes in, or the crust will not form.
crust|Steam in the first minutes keeps the crust soft, so that the loaf can rise.
salt|Salt slows the yeast down and gives bread its taste.
rye|Rye flour has little gluten; a rye loaf is dense and keeps for many days.
tides|The moon pulls at the sea, and the tides follow it twice a day.
moon|One side of the moon always faces the earth, since it turns as fast as it circles.
eclipse|In an eclipse of the sun the moon's shadow crosses the earth.
spring-tide|A spring tide comes when sun and moon pull in one line.
harbour|Ships wait outside the harbour for the tide to rise.
lighthouse|A lighthouse shows ships the way into the harbour at night.
lens|The lens of a lighthouse bends the lamp's light into one beam.
telescope|A telescope gathers light with a lens or a mirror.
mirror|A large mirror is easier to make than a large lens.
glass|Glass is sand that was melted, with ash to lower the heat it needs.
window|Window glass floats on molten tin until it is flat.
bees|Bees dance to tell the hive where the flowers are.
honey|Honey keeps for years, for it has too little water for yeast to live in.
hive|A hive in winter is warm: the bees shiver around their queen.
wax|Bees make wax in small plates and chew it soft.
candles|Candles of wax burn with less smoke than those of tallow.
ink|Ink of oak galls turns black as it meets the air.
paper|Paper was made from rags before it was made from wood.
press|The press spread from one workshop to a thousand in fifty years.
letters|Letters of lead were cast one by one and set by hand.
queue|A queue gives back first what was put in first.
stack|A stack gives back first what was put in last.
sorting|Merge sort splits a list, sorts both halves, and merges them.
hashing|A hash table finds a key without looking at the others.
index|An index lists, for each word, the pages that have it.
cache|A cache keeps what was asked for last, since it may be asked for again.
O'Neill|O'Neill's 2nd letter, dated 12.5.1911, mentions the U.S. harbour twice.
empty|...
"""

# Longer than 40 terms, where Lucene begins to round lengths.
LONG = {
    "baking-day": """A baking day begins the evening before. Mix flour, water and the sourdough
        starter, and let the dough rest while the yeast works. In the morning add salt, knead the
        dough, and fold it every half hour until the gas shows under its skin. Shape the loaf,
        let it rise again, and heat the oven until the stone is hot. Steam keeps the crust soft
        for the first minutes; then let the steam out, so that the crust turns brown and the
        bread sounds hollow.""",
    "voyage": """The voyage lasted forty days. Every night the mate took the height of the moon
        and the stars, and every noon the height of the sun, and wrote both into the log. They
        missed the tide at the first harbour and lay outside it until morning, in sight of the
        lighthouse, whose lamp went round and round. In the second harbour the ship took in
        water, salt, flour and rye bread; in the third, wax, honey and glass. The log of the
        voyage, in black ink on thick paper, lies in the harbour's museum beside the lens of the
        old lighthouse, a brass telescope, and a candle of tallow that the mice left alone.""",
    "printing": """Printing needs letters, ink, paper and a press. The letters are cast of lead
        and tin, sorted into cases, and set line by line; the ink is made of soot and oil, since
        an ink of water would run off the lead. Paper is wetted before it goes under the press,
        for dry paper takes the ink badly. Each sheet is pulled, hung up to dry, and turned. When
        a book is done its letters go back into their cases, and an index, made last of all,
        lists the pages for each word that a reader may ask for.""",
    "search": """A search engine keeps an index: for each word the list of pages that have it,
        sorted, so that two lists merge in one pass. Scores are sums over the words of the query;
        the best pages are kept in a small heap, and a cache answers what was asked before. Words
        that nearly all pages have tell little, and long pages have more words of every kind, so
        both count for less. A hash table, or a sorted list and bisection, finds the list of a
        word. New pages go into a small index of their own, and small indexes are merged into
        larger ones when there are enough of them, as in a merge sort.""",
    "bees-and-light": """Bees see light that we do not. A bee finds the sun behind clouds by the
        pattern of the sky, and tells the hive by a dance how far the flowers are, and at which
        angle to the sun. At night the hive is dark; yet even a little light, of a candle or of
        the moon, draws some bees to the entrance.""",
}

DOCS = dict(line.split("|") for line in SHORT.split("\n") if line) | LONG

QUERIES = {
    "one": "yeast",
    "two": "harbour lighthouse",
    "question": "Why does bread rise in the oven?",
    "repeated": "wax wax and honey from bees",
    "common": "what is made of light and glass",
    "possessive": "the moon's pull on the sea",
    "code": "merge sort of a sorted list",
    "number": "letter of 12.5.1911",
    "unknown": "xylophone",
    "partly-unknown": "xylophone made of lead",
}
