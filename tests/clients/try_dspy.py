"""dspy: Predict with typed outputs."""
import dspy

from record import EVA, SENTENCE, URL, Record


class Keep(dspy.Signature):
    """Make a record of the sentence."""
    sentence: str = dspy.InputField()
    record: Record = dspy.OutputField()


class Count(dspy.Signature):
    """How many were bought?"""
    sentence: str = dspy.InputField()
    quantity: int = dspy.OutputField()


dspy.configure(lm=dspy.LM("openai/json", api_base=URL, api_key="none", temperature=0, max_tokens=300, cache=False), adapter=dspy.JSONAdapter())
kept = dspy.Predict(Keep)(sentence=SENTENCE).record
assert isinstance(kept, Record), kept
assert isinstance(dspy.Predict(Count)(sentence=SENTENCE).quantity, int)
print(kept, kept == EVA)
