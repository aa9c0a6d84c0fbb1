"""What all tries share: where the server is, a sentence, and the record that the demo's adapter "json" makes of it."""
import os

from pydantic import BaseModel, Field

URL = os.environ["PUNICA_URL"] + "/v1"
SENTENCE = "On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them."


class Record(BaseModel):
    """The sentence as a record."""
    name: str = Field(description="who bought")
    city: str
    item: str
    colour: str
    quantity: int
    price: int


EVA = Record(name="Eva", city="Rome", item="lamp", colour="green", quantity=3, price=45)


def record(name: str, city: str, item: str, colour: str, quantity: int, price: int) -> str:
    """Keep a record."""
    return f"kept {name}"
