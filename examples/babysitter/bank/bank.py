"""A small bank: pays whoever it is told to, whatever it is told. What may be paid is not its matter."""

import json
import os

from mcp import serve

TILL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "till", "payments.jsonl")

TOOLS = [
    {
        "name": "send_payment",
        "description": "Sends a payment to a recipient of the address book.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "recipient": {"type": "string", "description": "A name in the address book."},
                "amount": {"type": "number", "description": "How much."},
                "currency": {"type": "string", "enum": ["EUR", "USD"]},
                "note": {"type": "string", "maxLength": 140},
            },
            "required": ["recipient", "amount", "currency"],
            "additionalProperties": False,
        },
    },
    {
        "name": "list_payments",
        "description": "Lists the payments that were made.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    },
    {
        "name": "close_account",
        "description": "Closes the account for good.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    },
]


def call(tool, args):
    if tool == "list_payments":
        with open(TILL) as till:
            return till.read()
    if tool == "close_account":
        raise ValueError("not today")
    if args["recipient"] == "Nobody":
        raise ValueError("the address book has no Nobody")
    with open(TILL, "a") as till:
        till.write(json.dumps(args, sort_keys=True) + "\n")
    return f"paid {args['amount']} {args['currency']} to {args['recipient']}"


serve("bank", TOOLS, call)
