"""A small airline: finds flights, and books whatever flight it is given. What may be booked is not its matter."""

import json
import os

from mcp import serve

BOOKINGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bookings", "flights.jsonl")

OFFER = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "stops": {"type": "integer"},
        "minutes": {"type": "integer"},
        "price": {"type": "number"},
        "currency": {"type": "string"},
    },
    "required": ["id", "stops", "minutes", "price", "currency"],
}

FOUND = {
    "type": "object",
    "properties": {
        "flights": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"says": {"type": "string"}, "offer": OFFER},
                "required": ["says", "offer"],
            },
        }
    },
    "required": ["flights"],
}

PLACE = {"type": "string", "minLength": 3, "maxLength": 3}

TOOLS = [
    {
        "name": "search",
        "description": "Finds flights from one airport to another.",
        "inputSchema": {
            "type": "object",
            "properties": {"from": PLACE, "to": PLACE},
            "required": ["from", "to"],
            "additionalProperties": False,
        },
        "outputSchema": FOUND,
    },
    {
        "name": "deals",
        "description": "What is on offer this week.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "outputSchema": FOUND,
    },
    {
        "name": "book",
        "description": "Books a flight. `flight` takes the handle of an offer.",
        "inputSchema": {
            "type": "object",
            "properties": {"flight": OFFER, "seat": {"type": "string"}},
            "required": ["flight"],
            "additionalProperties": False,
        },
    },
]

# Number, stops, minutes, price, currency.
FLIGHTS = {
    "OSL": [
        ("BW 101", 0, 145, "330.00", "EUR"),
        ("BW 230", 1, 320, "300.00", "EUR"),
        ("BW 231", 1, 720, "329.99", "EUR"),
        ("BW 240", 2, 410, "301.00", "EUR"),
        ("BW 250", 1, 780, "302.00", "EUR"),
        ("BW 300", 0, 150, "333.00", "EUR"),
        ("BW 310", 1, 330, "330.01", "EUR"),
    ],
    "JFK": [("BW 801", 0, 520, "480.00", "EUR"), ("BW 810", 0, 510, "470.00", "USD")],
    "deals": [("BW 999", 0, 100, "49.00", "EUR")],
}


def found(flights):
    all = []
    for number, stops, minutes, price, currency in flights:
        says = f"{number}, {stops} stops, {minutes // 60} h {minutes % 60:02}, {price} {currency}"
        # Read as JSON, so that the price is written as it stands here.
        offer = {"id": number, "stops": stops, "minutes": minutes, "price": json.loads(price), "currency": currency}
        all.append({"says": says, "offer": offer})
    return {"flights": all}


def call(tool, args):
    if tool == "search":
        return found(FLIGHTS.get(args["to"], []))
    if tool == "deals":
        return found(FLIGHTS["deals"])
    with open(BOOKINGS, "a") as bookings:
        bookings.write(json.dumps(args, sort_keys=True) + "\n")
    return f"booked {args['flight']['id']}"


serve("air", TOOLS, call)
