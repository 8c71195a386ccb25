"""Word lists for make_corpus.py.

Words are separated by blanks, phrases by commas.
"""


def _words(text):
    return text.split()


def _phrases(text):
    return [part.strip() for part in text.replace("\n", " ").split(",") if part.strip()]


ANIMALS = _words("""
fox owl rabbit bear mouse cat dog wolf deer squirrel hedgehog badger otter beaver mole frog toad
duck goose swan hen rooster pig cow horse pony donkey goat sheep lamb calf foal kitten puppy
cub chick duckling turtle tortoise snail crab whale dolphin seal penguin walrus octopus shark
starfish lobster seahorse elephant lion tiger leopard panther monkey gorilla giraffe zebra hippo
rhino camel kangaroo koala panda sloth parrot toucan peacock eagle hawk falcon crow raven robin
sparrow finch pigeon dove stork heron crane flamingo pelican seagull magpie woodpecker hummingbird
bat bee butterfly ant beetle ladybug dragonfly firefly grasshopper cricket spider caterpillar moth
worm lizard gecko snake crocodile dinosaur hamster ferret weasel raccoon skunk chipmunk moose elk
reindeer buffalo yak llama alpaca lynx jackal hyena meerkat mongoose armadillo porcupine lemur
platypus wombat stoat marten salmon trout goldfish puffin ostrich emu turkey quail newt
salamander chameleon iguana vole shrew gopher beagle poodle terrier bulldog cheetah jaguar
antelope gazelle bison boar ram bull mule
""")

# word:gender, with f for she, m for he, e for either.
PEOPLE = [tuple(entry.split(":")) for entry in _words("""
girl:f boy:m girl:f boy:m girl:f boy:m child:e woman:f man:m princess:f prince:m king:m queen:f
grandmother:f grandfather:m mother:f father:m uncle:m aunt:f baker:e farmer:e fisherman:m sailor:e
teacher:e doctor:e nurse:e gardener:e painter:e tailor:e carpenter:e blacksmith:e cook:e chef:e
clown:e dancer:e singer:e musician:e poet:e writer:e librarian:e shepherd:e miller:e postman:m
knight:e wizard:m witch:f pirate:e explorer:e astronaut:e pilot:e driver:e builder:e
inventor:e scientist:e detective:e firefighter:e soldier:e captain:e hunter:m woodcutter:m
beekeeper:e potter:e weaver:e clockmaker:e toymaker:e shoemaker:e magician:e juggler:e student:e
traveler:e merchant:e mayor:e judge:e thief:e orphan:e neighbor:e janitor:e plumber:e mechanic:e
dentist:e barber:e waiter:m florist:e archer:e monk:m miner:e diver:e skater:e drummer:e
""")]

# Heroes that are neither animals nor people.
BEINGS = _words("""
robot dragon ghost giant troll fairy elf dwarf unicorn mermaid monster goblin gnome snowman
scarecrow phoenix griffin genie alien yeti teapot cloud train tractor boat truck star
pumpkin cactus snowflake raindrop doll puppet lighthouse bus spaceship car
""")

NAMES_F = _words("""
Mira Anna Lily Mia Emma Ruby Rosa Nora Ella Lucy Clara Alice Maya Zoe Ivy Hazel Daisy Poppy Luna
Stella Grace Sophie Eva Ida Leah Molly Nina Tess Wren Olive Pearl Flora Greta Ingrid Freya Sara
Hana Yuki Mei Lin Amara Zuri Nia Leila Amina Fatima Priya Anya Olga Elsa Marta Lena Paula Carmen
Lola Ines Bella Cora Dora Edith Fern Gina Holly Iris Jane June Kate Laura Mabel Nell Opal Penny
Queenie Rita Sally Tilly Una Vera Willa Yara Zelda Agnes Beth Cleo Della Elena Fay Gwen Heidi
Isla Jade Kira Lottie Maggie Naomi Petra Rosie Sue Thea Ursula Violet Winnie Zara Ada Bonnie
Charlotte Emily Julia Lisa Maria Amy Sarah Rachel Hannah Susan Martha Nancy Margaret
""")

NAMES_M = _words("""
Tom Ben Max Leo Sam Jack Oscar Finn Hugo Felix Otto Theo Noah Adam Eli Luke Henry Oliver George
Charlie Arthur Albert Bruno Carl Dan Ed Frank Gus Harry Ivan Jim Karl Lars Milo Nils Omar Paul
Quinn Ray Simon Tim Victor Will Yusuf Zack Ali Bilal Chen Diego Emil Fred Gabriel Hans Igor Jonas
Kofi Liam Marco Nico Olaf Pedro Ravi Sven Tariq Umar Vito Walter Xavier Yan Zeno Amos Barnaby Cyrus
Dexter Edgar Fergus Gilbert Herbert Isaac Jasper Kenji Lionel Magnus Ned Orson Percy Rufus Silas
Toby Ulric Vernon Wesley Alfie Bob Dylan Ethan Gary Howard Joe Ken Martin Oliver Peter Robert
David James John Michael Thomas William Edward Kevin
""")

NAMES_ANY = _words("""
Pip Dot Bean Button Biscuit Clover Cocoa Copper Dusty Echo Fig Ginger Hopper Jolly Kiwi Lucky
Maple Moss Nutmeg Pebble Pepper Pickle Pudding Ripple River Rusty Sage Scout Shadow Sky Smokey
Snowy Socks Spark Sprout Storm Sunny Tango Tiny Toffee Twig Whisper Willow Ziggy Acorn Bramble
Crumb Flicker Fuzzy Misty Noodle Patch Peanut Rosehip Thistle Waffle Bolt Gizmo Beep Comet
""")

NAME_STARTS = _words("""
Al Bel Bri Cal Da Dor El Fen Ga Gli Har Il Jo Ka Kel La Lo Mar Mi Na Nor O Pa Pel Qui Ra Ro Sa Sel
Ta Tor U Va Ve Wil Xan Ya Ze Zor Bo Du Fi Gru Hu Kri Lu Mo Ni Pri Ru Si Tri Vi
""")
NAME_ENDS = _words("""
bo ra lin da mi na ro rin sa ta vi lo ly ka dric la mar nor by ko nna ren ri ssa th ven wyn x zo
bert by dle fin ger ji kin lan mo nia pa que rex ston tle via wick
""")

# Parts of invented common nouns, which teach the model to copy any requested word. Separate from those of names.
NOUN_STARTS = _words("""
bl br cl cr d dr f fl fr g gl gr h j k kl l m n p pl pr qu r s sn sp st t tr v w wh y z zw sk
""")
NOUN_MIDDLES = _words("a e i o u oo ee ou ai imm oll umb izz orr ang ent ick abb ell onk")
NOUN_ENDS = _words("le et er in op ling kin o ax el um ock it ap us ory ette bit dle")

OBJECTS = _words("""
lantern kite ball key book map hat coat scarf ring bell drum flute violin guitar trumpet whistle
box basket bag bottle cup bowl spoon plate teapot kettle candle lamp mirror clock watch compass
telescope umbrella blanket pillow quilt doll puppet puzzle top marble coin button feather shell
stone pebble crystal pearl diamond necklace bracelet crown ribbon rope ladder hammer saw wrench
shovel rake bucket broom brush pencil pen crayon letter card photo painting picture notebook
diary newspaper ticket stamp flag tent sled wagon cart bicycle scooter skateboard boat raft canoe
oar anchor net hook lunchbox jar balloon boomerang robot train truck car plane rocket magnet
battery flashlight camera radio phone medal trophy mask cape glove mitten boot shoe sandal slipper
sock sweater belt purse wallet backpack suitcase chest vase pot pan knife fork jug mug wheel
shield sword helmet wand cauldron carpet chair stool bench cradle teddy harp banjo accordion
fiddle piano xylophone tambourine horn nest seashell acorn pinecone leaf rose tulip daisy
sunflower hourglass snowglobe locket brooch cane stick whisk apron thimble needle spindle
parasol kaleidoscope yoyo chessboard domino dice gem
""")

FOODS = _words("""
bread cake pie soup cheese honey jam pudding porridge rice popcorn chocolate pizza pasta
""") + _phrases("""
an apple, a pear, a peach, a cookie, a sandwich, a muffin, a pancake, a carrot, a banana, a plum,
a bun, a pretzel, a waffle, a cupcake, an orange, a lemon tart, a bag of nuts, a bowl of berries,
a basket of cherries, a jar of honey, a loaf of bread, a piece of cheese, a big pie, a sweet melon,
a pot of stew, a roll, a potato, a bag of seeds, a cherry pie, a strawberry
""")

COLORS = _words("""
red blue green yellow white black brown grey golden silver purple orange pink turquoise
""")

OBJECT_ADJECTIVES = _words("""
old new small little big shiny tiny broken round wooden golden silver strange pretty magic
beautiful dusty rusty heavy
""") + COLORS

CITIES = _phrases("""
Berlin, Paris, London, Rome, Madrid, Vienna, Prague, Athens, Lisbon, Dublin, Oslo, Stockholm, Helsinki,
Copenhagen, Warsaw, Budapest, Brussels, Amsterdam, Zurich, Geneva, Munich, Hamburg, Cologne, Milan, Naples,
Venice, Florence, Barcelona, Seville, Valencia, Porto, Lyon, Nice, Marseille, Manchester, Liverpool, Edinburgh,
Glasgow, Cardiff, Belfast, New York, Boston, Chicago, Denver, Dallas, Houston, Austin, Seattle, Portland, Miami,
Atlanta, Phoenix, San Francisco, San Diego, Los Angeles, Las Vegas, New Orleans, Philadelphia, Detroit, Toronto,
Montreal, Vancouver, Ottawa, Mexico City, Havana, Bogota, Lima, Quito, Santiago, Buenos Aires, Rio de Janeiro,
Sao Paulo, Caracas, Cairo, Tunis, Casablanca, Lagos, Accra, Dakar, Nairobi, Kampala, Cape Town, Johannesburg,
Istanbul, Ankara, Jerusalem, Dubai, Doha, Tehran, Baghdad, Karachi, Delhi, Mumbai, Chennai, Kolkata, Dhaka,
Bangkok, Hanoi, Singapore, Jakarta, Manila, Hong Kong, Shanghai, Beijing, Taipei, Seoul, Busan, Tokyo, Osaka,
Kyoto, Sapporo, Sydney, Melbourne, Perth, Brisbane, Auckland, Wellington, Moscow, Kyiv, Riga, Tallinn, Vilnius,
Minsk, Sofia, Bucharest, Belgrade, Zagreb, Sarajevo, Reykjavik, Bergen, Malmo, Turku, Dresden, Leipzig, Bremen,
Stuttgart, Frankfurt, Salzburg, Graz, Basel, Bern, Turin, Genoa, Bologna, Verona, Palermo, Bilbao, Granada
""")
UNSEEN_CITIES = _phrases("""
Hanover, Marburg, Trento, Toledo, Leeds, Bristol, Nashville, Memphis, Orlando, Calgary, Kingston, Salvador,
Tripoli, Harare, Adelaide, Nagoya, Lahore, Krakow, Odessa, Split, Santa Fe, Aachen, Bordeaux, Cork
""")

# Preposition and noun; an adjective may be inserted between them.
PLACES = [tuple(entry.split(" ", 1)) for entry in _phrases("""
in forest, in village, in town, in city, in castle, in garden, in valley, in meadow, in cave,
in desert, in jungle, in swamp, in cottage, in cabin, in palace, in barn, in zoo, in park,
in school, in library, in museum, in bakery, in workshop, in market, in harbor, in tower,
in windmill, in orchard, in field, in wood, in kingdom, in house, in treehouse, in tent, in lagoon,
in canyon, in temple, in hotel, in circus, in toy shop, in bookshop, in kitchen, in attic,
in cellar, in hospital, in vineyard, in greenhouse, in monastery, in igloo, in burrow, in hollow,
on farm, on hill, on island, on mountain, on ship, on beach, on cliff, on street, on houseboat,
on planet, on moon, on glacier, on ranch, on train, on bridge, on space station, on coast,
by river, by lake, by pond, by sea, by waterfall, by stream, by well, by railway station,
by lighthouse, by old mill, near volcano, near airport, near train station, near marsh,
near ocean, near fountain, at fair, at playground, at crossroads
""")]

PLACE_ADJECTIVES = _words("""
small quiet green old big little dark sunny busy peaceful snowy lonely beautiful
""") + ["far away"]

TRAITS = {
    "brave": "{He} [liked to try new things|{was} not easily scared|always stood up for others].",
    "kind": "{He} [always helped others|never said a mean word|shared everything {he} had].",
    "curious": "{He} [asked questions all day long|wanted to know everything|looked into every hole and corner].",
    "clever": "{He} [could solve any riddle|always had a good idea|knew a lot of tricks].",
    "shy": "{He} [spoke very softly|often hid when someone came|did not like to talk to strangers].",
    "lazy": "{He} [loved to sleep late|never wanted to get up|did as little work as {he} could].",
    "funny": "{He} [told jokes all day|made everyone laugh|could make very silly faces].",
    "grumpy": "{He} [did not smile very often|complained about everything|liked to be left alone].",
    "greedy": "{He} [always wanted more|kept everything for {himself}|never liked to share].",
    "proud": "{He} [thought {he} {was} better than the others|liked to show off|held {his} head very high].",
    "gentle": "{He} [never hurt even a fly|walked softly and spoke softly|{was} careful with small things].",
    "patient": "{He} [could wait for a long time|never hurried|always took {his} time].",
    "stubborn": "{He} [never gave up|always wanted things {his} own way|did not listen to advice].",
    "cheerful": "{He} [sang every morning|smiled at everyone|{was} happy even when it rained].",
    "lonely": "{He} [had nobody to play with|ate alone every day|wished for a friend].",
    "honest": "{He} [always told the truth|never told a lie|kept every promise].",
    "clumsy": "{He} [often fell over {his} own feet|dropped things all the time|bumped into doors and trees].",
    "forgetful": "{He} [forgot things all the time|could never remember where things were|often forgot what day it was].",
    "playful": "{He} [played games from morning to night|turned everything into a game|loved to run and jump].",
    "quiet": "{He} [did not talk much|liked to listen more than to talk|loved silence].",
    "hungry": "{He} [thought about food all the time|{was} always looking for something to eat|could eat all day].",
    "sleepy": "{He} [yawned all day|could fall asleep anywhere|took many naps].",
    "wise": "{He} [knew many old stories|gave good advice|thought before {he} spoke].",
    "polite": "{He} [always said please and thank you|greeted everyone|never forgot {his} manners].",
    "messy": "{He} [never cleaned up|left {his} things everywhere|could not find anything at home].",
    "busy": "{He} [worked all day|never sat still|always had something to do].",
    "poor": "{He} [did not have much|had only one coat|often went to bed hungry].",
    "rich": "{He} [had everything {he} wanted|owned many fine things|had a big house full of things].",
    "tiny": "{He} [could hide under a leaf|{was} smaller than everyone else|could sleep in a teacup].",
    "old": "{He} [had seen many winters|walked slowly|remembered the old days].",
    "young": "{He} [had so much to learn|{was} still growing|had never been far from home].",
    "little": "{He} [{was} smaller than the others|had big dreams|wanted to be big].",
    "friendly": "{He} [waved at everyone|liked to meet new people|talked to everyone].",
    "nervous": "{He} [worried about everything|jumped at every sound|{was} afraid of making mistakes].",
    "strong": "{He} [could lift heavy stones|could carry two logs at once|{was} stronger than anyone around].",
    "silly": "{He} [wore socks on {his} ears|laughed at everything|danced when nobody was looking].",
}

LIKES = _phrases("""
to sing, to dance, to read, to paint, to swim, to run, to climb, to sleep in the sun, to tell jokes,
to look at the stars, to collect stones, to pick flowers, to watch the clouds, to play hide and seek,
to eat berries, to bake bread, to listen to the rain, to jump in puddles, to build things,
to ask questions, to help others, to explore, to count the birds, to draw pictures, to make music,
to walk in the rain, to drink warm milk, to play in the leaves, to tell stories, to fish,
to watch the moon, to plant seeds, to solve riddles, to sit by the fire, to feed the birds
""")

WEATHERS = _words("""
rainy sunny windy snowy foggy cold warm stormy frosty cloudy bright grey misty hot cool
""")
TIMES = _words("morning afternoon evening day day night")
SEASONS = _words("spring summer autumn winter")

FEARS = _phrases("""
rain, the dark, thunder, water, heights, dogs, spiders, loud noises, strangers, the wind, ghosts,
the sea, snow, mirrors, shadows, the forest, bees, fire, lightning, the deep end of the pool,
the doctor, birds, cats, falling, flying, the moon, big crowds, the cellar, trains, bridges,
storms, monsters, snakes, mice, the night, clowns, elevators, boats
""")

SKILLS = _phrases("""
swim, sing, dance, fly, read, write, paint, cook, bake bread, ride a bicycle, climb trees, skate,
whistle, juggle, play the flute, play the drum, play the violin, fish, sew, draw, ski, row a boat,
jump high, count to a hundred, tell jokes, build a fire, play chess, tie knots, do a cartwheel,
catch a ball, ride a horse, stand on one leg, make pancakes, speak in front of people
""")

BUILDS = _phrases("""
a boat, a bridge, a treehouse, a raft, a snow fort, a birdhouse, a sandcastle, a little house,
a windmill, a wagon, a swing, a big kite, a flying machine, a fence, a sled, a rocket, a dam,
a tower, a bench, a nest, a hut, a stage, a robot, a tunnel
""")

DREAM_PLACES = _phrases("""
the sea, the highest mountain, the big city, the moon, the end of the rainbow, the great waterfall,
the desert, the northern lights, the old castle, the deep forest, the edge of the world,
the island across the water, the snow, the king's garden, the other side of the hill, the circus,
the stars from the highest tower, the place where the sun rises
""")

SPOTS = _phrases("""
under the bed, behind the door, in the tall grass, under a bush, beside the well, behind a big rock,
under the stairs, in the hay, by the gate, under an old tree, on the roof, in the kitchen,
behind the shed, next to the path, under a pile of leaves, in a hollow log, near the fence,
on a high shelf, beside the stream, in the mud, under the bench, between two stones,
inside an old boot, under a blanket
""")

NOISES = [tuple(entry.split("=")) for entry in _phrases("""
tap tap tap=a branch that knocked against the window, tap tap tap=a woodpecker in the wrong tree,
scratch scratch=a mouse who was looking for crumbs, scratch scratch=a kitten who wanted to come in,
hoo hoo=a baby owl who had lost its way, thump thump=a rabbit who was dancing,
creak creak=an old gate that moved in the wind, drip drip=a leaking pipe, boom boom=a child with a new drum,
whoosh whoosh=the wind in an empty bottle, squeak squeak=a rusty wheel, crunch crunch=a hedgehog who was eating an apple,
ding ding=a little bell on a lost lamb, rattle rattle=a squirrel with a box full of nuts
""")]

TREASURES = _phrases("""
a pile of old books, a box of golden coins, a letter from long ago, a tree full of sweet apples,
a chest of toys, a music box, a painting of the whole village, a bag of seeds, a silver flute,
a spring of clear water, a jar of colored stones, a nest with three blue eggs, a warm hidden pool,
a small silver crown
""")

PLANTS = _phrases("""
a rose, a sunflower, a tall tree, an apple tree, a pumpkin, a tulip, a bean plant, a cherry tree,
a strawberry plant, a lily, a giant carrot, a lemon tree, a daisy, an oak
""")

CONTESTS = _phrases("""
race, singing contest, baking contest, swimming race, dancing contest, kite contest, boat race,
running race, drawing contest, snowman contest, jumping contest, spelling contest, sled race
""")

FEEL_BAD = _words("sad worried upset unhappy")
FEEL_GOOD = _words("happy proud glad thankful calm cheerful grateful joyful relieved")

IRREGULAR_PLURALS = {
    "mouse": "mice", "goose": "geese", "wolf": "wolves", "sheep": "sheep", "deer": "deer",
    "moose": "moose", "elk": "elk", "calf": "calves", "salmon": "salmon", "trout": "trout",
    "child": "children", "man": "men", "woman": "women", "bison": "bison", "goldfish": "goldfish",
    "starfish": "starfish", "fisherman": "fishermen", "postman": "postmen", "thief": "thieves",
    "snowman": "snowmen", "elf": "elves", "knife": "knives", "leaf": "leaves", "dwarf": "dwarves",
}
