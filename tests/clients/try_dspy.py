"""dspy: Predict with typed outputs, by a schema where it believes that a model can, else by JSON of its own prompts."""
import dspy
from record import EVA, SENTENCE, URL, Record


class Keep(dspy.Signature):
    """Make a record of the sentence."""
    sentence: str = dspy.InputField()
    record: Record = dspy.OutputField()


class Flat(dspy.Signature):
    """Make a record of the sentence."""
    sentence: str = dspy.InputField()
    name: str = dspy.OutputField()
    quantity: int = dspy.OutputField()


def lm(name):
    return dspy.LM(f"openai/{name}", api_base=URL, api_key="none", temperature=0, max_tokens=300, cache=False)


with dspy.context(lm=lm("gpt-4o-mini"), adapter=dspy.JSONAdapter()):
    kept = dspy.Predict(Keep)(sentence=SENTENCE).record
    assert isinstance(kept, Record), kept
with dspy.context(lm=lm("gpt-4o-mini")):            # its first adapter fails with this model; it goes on to the one above
    flat = dspy.Predict(Flat)(sentence=SENTENCE)
    assert isinstance(flat.name, str) and isinstance(flat.quantity, int), flat
print(kept, kept == EVA, flat)
