"""The words of the generated catalogue: what there is to sell, in which variants, and how people ask."""

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of product."""

    noun: str
    query: str
    """What shoppers type; products of a kind share it."""
    path: tuple[str, ...]
    """The shelf, below that of the category."""
    options: tuple[str, ...]
    """Keys of ``VALUES``."""
    dollars: tuple[int, int]
    traits: tuple[str, ...]
    """What products of this kind may be (``washable``), have (``+hood``) or be made for (``>travel``)."""


class Shelf(NamedTuple):
    """One category."""

    path: str
    brands: tuple[str, ...]
    kinds: tuple[Kind, ...]


def _kinds(text: str) -> tuple[Kind, ...]:
    """Read three lines per kind: noun; query; path; options; prices, then what it may be, then what else."""
    lines = [line.strip() for line in text.strip().splitlines()]
    kinds = []
    for head, be, others in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        noun, query, path, options, low, high = head.split("; ")
        shelf = tuple(path.split(" / "))
        kinds.append(
            Kind(
                noun,
                query,
                shelf,
                tuple(options.split()),
                (int(low), int(high)),
                (*be.split(", "), *others.split(", ")),
            )
        )
    return tuple(kinds)


VALUES: dict[str, tuple[str, tuple[str, ...]]] = {
    "color": (
        "Color",
        ("Black", "White", "Navy Blue", "Dark Green", "Wine Red", "Light Grey", "Yellow", "Purple", "Orange", "Khaki"),
    ),
    "finish": ("Color", ("Matte Black", "Bright White", "Silver", "Gold", "Walnut Brown", "Sky Blue", "Rose Pink")),
    "wear": ("Size", ("X-Small", "Small", "Medium", "Large", "X-Large", "XX-Large")),
    "shoe": ("Size", ("6", "7", "8", "9", "10", "11", "12")),
    "bed": ("Size", ("Twin", "Full", "Queen", "King")),
    "rug": ("Size", ("2 x 3 ft", "3 x 5 ft", "4 x 6 ft", "5 x 8 ft", "8 x 10 ft")),
    "square": ("Size", ("12 x 12 inch", "16 x 16 inch", "18 x 18 inch", "20 x 20 inch", "24 x 24 inch")),
    "pack": ("Size", ("Pack of 1", "Pack of 2", "Pack of 3", "Pack of 6", "Pack of 12")),
    "bottle": ("Size", ("1 Fl Oz", "4 Fl Oz", "8 Fl Oz", "16 Fl Oz", "33 Fl Oz")),
    "bag": ("Size", ("4 Ounce", "8 Ounce", "12 Ounce", "16 Ounce", "32 Ounce")),
    "cable": ("Length", ("1 Foot", "3 Feet", "6 Feet", "10 Feet", "15 Feet")),
    "memory": ("Capacity", ("32 GB", "64 GB", "128 GB", "256 GB", "512 GB")),
    "screen": ("Size", ("24 Inch", "27 Inch", "32 Inch", "43 Inch", "55 Inch")),
    "phone": ("Fits", ("Model A1", "Model A2", "Model B5", "Model B7", "Model C9")),
    "plug": ("Style", ("Wall Plug", "Desk Dock", "Car Mount", "Travel Kit")),
    "scent": ("Scent", ("Lavender", "Citrus", "Vanilla", "Eucalyptus", "Jasmine", "Cedarwood", "Unscented")),
    "shade": ("Shade", ("Fair", "Light Beige", "Medium Nude", "Warm Honey", "Deep Cocoa")),
    "sweet": ("Flavor Name", ("Vanilla", "Dark Chocolate", "Strawberry", "Salted Caramel", "Banana", "Hazelnut")),
    "savory": ("Flavor Name", ("Sea Salt", "Barbecue", "Garlic Herb", "Sour Cream", "Hot Chili", "Smoked Paprika")),
    "fruit": ("Flavor Name", ("Mango", "Raspberry", "Lemon", "Pineapple", "Black Cherry", "Apple")),
    "roast": ("Flavor Name", ("House Blend", "Breakfast Blend", "Dark Roast", "French Vanilla", "Decaf")),
}
"""The variants of an option: its name and its values."""

SHELVES: dict[str, Shelf] = {
    "beauty": Shelf(
        "Beauty & Personal Care",
        ("Velune", "Marisol Bay", "Oakwell", "Thera Lux", "Pure Linden", "Nuvelle", "Sable & Sun", "Ferncroft"),
        _kinds(
            """
face moisturizer; face moisturizers; Skin Care / Face; bottle scent; 8; 45
  cruelty free, paraben free, oil free, fast absorbing
  +hyaluronic acid, +green tea, >dry skin, >sensitive skin
shampoo; shampoos; Hair Care / Shampoo; bottle scent; 6; 35
  sulfate free, color safe, plant based, tear free
  +argan oil, +tea tree, >damaged hair, >curly hair
body scrub; body scrubs; Skin Care / Body; bag scent; 7; 30
  cruelty free, dermatologist tested, non greasy, deeply cleansing
  +sea salt, +coconut oil, >dead skin, >dry skin
lip balm; lip balms; Skin Care / Lips; pack scent; 4; 18
  long lasting, certified organic, fragrance free, glossy finish
  +shea butter, +vitamin e, >chapped lips, >daily use
makeup brush set; makeup brushes; Tools & Accessories / Brushes; finish pack; 9; 55
  easy clean, vegan bristle, travel size, double ended
  +bamboo handle, +storage pouch, >eye shadow, >powder foundation
liquid foundation; foundations; Makeup / Face; shade bottle; 8; 40
  long lasting, oil free, full coverage, water resistant
  +sun protection, +hyaluronic acid, >oily skin, >mature skin
hair dryer; hair dryers; Hair Care / Styling Tools; finish plug; 25; 140
  fast drying, low noise, fold away, heat controlled
  +ionic technology, +cool shot button, >thick hair, >home salon
nail polish; nail polishes; Nail Care / Polish; color pack; 4; 20
  quick dry, chip resistant, high gloss, non toxic
  +top coat, +wide brush, >french manicure, >nail art
refillable travel bottle; travel bottles; Tools & Accessories / Containers; finish bottle; 5; 22
  leak proof, bpa free, easy fill, airline approved
  +spray nozzle, +silicone sleeve, >carry on, >toiletry bag
electric toothbrush; electric toothbrushes; Oral Care / Toothbrushes; finish pack; 18; 120
  fully waterproof, usb rechargeable, soft bristle, quiet motor
  +two minute timer, +travel case, >sensitive teeth, >plaque removal
beard oil; beard oils; Shave & Grooming / Beard; bottle scent; 7; 28
  non greasy, small batch, alcohol free, fast absorbing
  +jojoba oil, +dropper cap, >itchy skin, >coarse hair
sunscreen lotion; sunscreens; Skin Care / Sun; bottle pack; 8; 32
  reef safe, broad spectrum, water resistant, fragrance free
  +zinc oxide, +aloe vera, >young children, >outdoor sports
"""
        ),
    ),
    "electronics": Shelf(
        "Electronics",
        ("Voltara", "Kestrel", "Nimbus Audio", "Brightline", "Orbix", "Tekton", "Halden", "Pixelmoor"),
        _kinds(
            """
wireless headphones; wireless headphones; Headphones / Over-Ear; color plug; 25; 220
  noise cancelling, fold flat, sweat resistant, low latency
  +built in microphone, +memory foam, >long flights, >online meetings
portable speaker; portable speakers; Audio / Speakers; color pack; 18; 160
  fully waterproof, dust proof, hands free, shock resistant
  +stereo pairing, +carry strap, >beach parties, >shower use
charging cable; charging cables; Accessories / Cables; cable color; 5; 25
  fast charging, tangle free, heavy duty, gold plated
  +braided nylon, +right angle plug, >data transfer, >car use
phone case; phone cases; Accessories / Cases; phone color; 6; 40
  shock proof, scratch resistant, ultra slim, wireless charging compatible
  +kickstand, +card holder, >outdoor work, >daily commute
memory card; memory cards; Accessories / Memory; memory pack; 8; 90
  high speed, temperature proof, water resistant, x ray proof
  +full adapter, +storage case, >action cameras, >drone footage
smart television; televisions; Video / Televisions; screen plug; 180; 1300
  ultra hd, energy saving, wall mountable, anti glare
  +voice remote, +dolby audio, >wide living rooms, >video games
computer monitor; computer monitors; Computers / Monitors; screen finish; 90; 600
  high resolution, flicker free, height adjustable, low blue light
  +curved panel, +built in speakers, >photo editing, >home office
security camera; security cameras; Video / Surveillance; pack plug; 25; 190
  motion activated, weather proof, battery powered, two way audio
  +night vision, +local storage, >front door, >baby room
tablet stand; tablet stands; Accessories / Stands; finish plug; 9; 45
  fully adjustable, non slip, light weight, easy carry
  +aluminum alloy, +rotating base, >kitchen counter, >drawing board
wireless keyboard; keyboards; Computers / Input; color plug; 16; 130
  low noise, spill proof, multi device, battery saving
  +number pad, +back light, >left handed people, >office desk
power bank; power banks; Accessories / Chargers; color pack; 15; 80
  fast charging, high capacity, light weight, over charge protected
  +led display, +solar panel, >hiking trips, >tablet computers
action camera; action cameras; Photo / Cameras; memory plug; 45; 350
  fully waterproof, image stabilized, wide angle, slow motion
  +touch screen, +remote control, >under water, >bike helmets
"""
        ),
    ),
    "fashion": Shelf(
        "Clothing, Shoes & Jewelry",
        ("Wrenfield", "Solana", "Harbor & Hem", "Juno Trail", "Alder Row", "Cassia", "Northloom", "Tindale"),
        _kinds(
            """
hooded sweatshirt; hooded sweatshirts; Men / Hoodies; wear color; 18; 65
  machine washable, slim fit, fleece lined, quick drying
  +kangaroo pocket, +drawstring hood, >cold weather, >school days
summer dress; summer dresses; Women / Dresses; wear color; 16; 70
  hand wash, knee length, short sleeve, wrinkle free
  +elastic waist, +v neck, >beach holidays, >garden parties
running shoes; running shoes; Shoes / Athletic; shoe color; 30; 140
  light weight, non slip, breathable mesh, wide fit
  +arch support, +rubber sole, >trail running, >flat feet
yoga pants; yoga pants; Women / Active; wear color; 14; 55
  moisture wicking, butt lifting, squat proof, four way stretch
  +high waist, +side pockets, >gym workouts, >hot yoga
leather belt; leather belts; Accessories / Belts; wear color; 10; 48
  hand crafted, full grain, scratch resistant, reversible strap
  +metal buckle, +ratchet closure, >formal suits, >casual jeans
rain jacket; rain jackets; Men / Coats; wear color; 28; 150
  wind proof, machine washable, packs small, breathable fabric
  +taped seams, +reflective trim, >bike rides, >mountain hikes
ankle boots; ankle boots; Shoes / Boots; shoe color; 32; 160
  slip resistant, faux leather, water repellent, fleece lined
  +block heel, +side zipper, >winter streets, >office wear
polo shirt; polo shirts; Men / Shirts; wear color; 12; 50
  classic fit, machine washable, short sleeve, moisture wicking
  +button closure, +chest pocket, >golf rounds, >work uniforms
pajama set; pajama sets; Women / Sleepwear; wear color; 17; 60
  long sleeve, soft cotton, loose fit, tumble dry
  +lace trim, +button closure, >new mothers, >lazy sundays
wool socks; wool socks; Accessories / Socks; wear pack; 9; 36
  moisture wicking, odor resistant, machine washable, extra thick
  +cushioned heel, +seamless toe, >hiking boots, >cold nights
swim trunks; swim trunks; Men / Swimwear; wear color; 13; 48
  quick drying, chlorine resistant, mid length, salt proof
  +mesh lining, +zip pocket, >surf lessons, >pool laps
crossbody bag; crossbody bags; Accessories / Handbags; color plug; 15; 95
  water repellent, faux leather, light weight, anti theft
  +adjustable strap, +inner pockets, >city trips, >day outings
"""
        ),
    ),
    "garden": Shelf(
        "Home & Kitchen",
        ("Hearthline", "Mossgate", "Casa Verra", "Birch & Bolt", "Lumenook", "Everstead", "Plume House", "Quarry Lane"),
        _kinds(
            """
throw pillow cover; throw pillow covers; Bedding / Pillows; square color; 7; 32
  double sided, machine washable, super soft, fade resistant
  +hidden zipper, +tassel corners, >living room, >patio chairs
area rug; area rugs; Decor / Rugs; rug color; 30; 240
  stain resistant, low pile, spot clean, hand woven
  +non slip backing, +braided edge, >dining room, >high traffic
bed sheet set; bed sheets; Bedding / Sheets; bed color; 20; 110
  wrinkle free, deep pocket, machine washable, cooling fabric
  +envelope closure, +bamboo fiber, >hot sleepers, >guest room
table lamp; table lamps; Lighting / Lamps; finish pack; 18; 130
  fully dimmable, energy efficient, touch controlled, easy assemble
  +linen lampshade, +usb port, >bedside table, >reading corner
storage basket; storage baskets; Storage / Baskets; square color; 9; 48
  hand woven, fold flat, eco friendly, moisture proof
  +carry handles, +cotton liner, >toy room, >laundry room
coffee table; coffee tables; Furniture / Tables; square finish; 70; 420
  easy assemble, space saving, scratch resistant, heavy duty
  +lower shelf, +steel frame, >small spaces, >living room
blackout curtain; curtains; Decor / Curtains; rug color; 14; 80
  noise reducing, energy efficient, machine washable, thermal insulated
  +grommet top, +two panels, >bay windows, >night shift
garden hose; garden hoses; Patio / Watering; cable color; 19; 90
  kink free, heavy duty, leak proof, drinking safe
  +brass fittings, +spray nozzle, >raised beds, >car washing
knife set; knife sets; Kitchen / Cutlery; finish pack; 22; 190
  dishwasher safe, rust resistant, razor sharp, full tang
  +wooden block, +ergonomic handle, >home chefs, >bread slicing
office chair; office chairs; Furniture / Chairs; finish plug; 75; 480
  height adjustable, easy assemble, mesh back, quiet rolling
  +lumbar support, +head rest, >tall people, >home office
wall clock; wall clocks; Decor / Clocks; square finish; 12; 85
  non ticking, battery operated, easy read, hand painted
  +roman numerals, +wooden frame, >home office, >kitchen wall
baking sheet; baking sheets; Kitchen / Bakeware; finish pack; 9; 46
  non stick, dishwasher safe, warp resistant, heavy duty
  +raised edge, +silicone grips, >cookie dough, >roast vegetables
"""
        ),
    ),
    "grocery": Shelf(
        "Grocery & Gourmet Food",
        (
            "Meadow Fork",
            "Sunny Acre",
            "Old Mill",
            "Tidewater",
            "Copper Kettle",
            "Green Bramble",
            "Nonna Rosa",
            "Highfold",
        ),
        _kinds(
            """
protein bar; protein bars; Snacks / Bars; sweet pack; 9; 42
  gluten free, plant based, high protein, low sugar
  +chia seeds, +natural ingredients, >post workout, >long hikes
ground coffee; ground coffee; Beverages / Coffee; roast bag; 8; 36
  fair trade, certified organic, low acid, small batch
  +resealable bag, +arabica beans, >french press, >cold brew
herbal tea; herbal teas; Beverages / Tea; fruit pack; 5; 26
  caffeine free, certified organic, hand picked, non gmo
  +real fruit, +compostable bags, >restful sleep, >iced drinks
potato chips; potato chips; Snacks / Chips; savory bag; 4; 30
  kettle cooked, gluten free, non gmo, reduced fat
  +avocado oil, +ridged cut, >school lunches, >movie nights
olive oil; olive oils; Pantry / Oils; bottle pack; 9; 60
  cold pressed, extra virgin, single origin, unfiltered harvest
  +dark glass, +pour spout, >salad dressing, >low heat
dried fruit mix; dried fruits; Snacks / Fruit; fruit bag; 6; 34
  no sugar added, sulfite free, sun dried, non gmo
  +resealable bag, +whole nuts, >trail snacks, >oatmeal topping
hot sauce; hot sauces; Pantry / Sauces; savory bottle; 5; 28
  small batch, keto friendly, extra hot, vinegar based
  +habanero pepper, +squeeze cap, >taco nights, >chicken wings
pancake mix; pancake mixes; Pantry / Baking; sweet bag; 5; 29
  gluten free, dairy free, whole grain, just add water
  +ancient grains, +pea protein, >busy mornings, >waffle makers
granola cereal; granola; Breakfast / Cereal; sweet bag; 6; 33
  nut free, oven baked, low sodium, high fiber
  +rolled oats, +pumpkin seeds, >yogurt bowls, >quick breakfast
sparkling water; sparkling water; Beverages / Water; fruit pack; 6; 31
  zero calorie, sugar free, lightly carbonated, no sweeteners
  +natural flavors, +recyclable cans, >mixed drinks, >office fridge
gift candy box; candy gifts; Sweets / Candy; sweet pack; 10; 58
  individually wrapped, nut free, hand made, kosher certified
  +ribbon bow, +greeting card, >birthday party, >valentine day
beef jerky; jerky; Snacks / Meat; savory bag; 7; 45
  grass fed, high protein, gluten free, slow smoked
  +zero nitrates, +brown sugar, >road trips, >camping food
"""
        ),
    ),
}
"""What is sold, by category."""
