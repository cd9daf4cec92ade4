"""Python imports this when it starts: processes that tests start get the mutant, too (`prepare` in serve.py)."""

import json
import os

if change := os.environ.get("FEDPICK_MUTANTS_CHANGE"):
    from swapped import swap

    with open(change, encoding="utf-8") as text:
        swap(**json.load(text))
