"""A small register of benefits: looks up whoever it is asked about. Who may ask is not its matter."""

from mcp import serve

RECORDS = {
    "e1": {"name": "Rui", "plan": "standard", "iban": "CH93 0076 2011 6238 5295 7"},
    "e2": {"name": "Ana", "plan": "family", "iban": "CH56 0483 5012 3456 7800 9"},
    "e3": {"name": "Bo", "plan": "standard", "iban": "CH44 3199 9123 0008 8901 2"},
    "e4": {"name": "Cy", "plan": "none", "iban": "CH27 8914 4618 9454 4912 5"},
}

TOOLS = [
    {
        "name": "benefits",
        "description": "Looks up the benefits of an employee.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "employee_id": {"type": "string"},
                "on_behalf_of": {"type": "string", "description": "Another employee's id, for delegates."},
            },
            "required": ["employee_id"],
            "additionalProperties": False,
        },
    },
]


def call(tool, args):
    employee = args.get("on_behalf_of", args["employee_id"])
    record = RECORDS.get(employee)
    if record is None:
        raise ValueError("there is no such employee")
    return f"{record['name']}: plan {record['plan']}"


serve("hr", TOOLS, call)
