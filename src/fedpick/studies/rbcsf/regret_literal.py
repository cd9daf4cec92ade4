"""RBCS-F, Theorem 3, with the context's s read literally: 1 for clients that did take part in the last round."""

from dataclasses import replace

from fedpick.studies.rbcsf import regret

__all__ = ["STUDY"]

STUDY = replace(
    regret.STUDY,
    id="rbcs-f/regret-literal",
    title="Time-average regret and its bound, with s read literally",
    settings={**regret.STUDY.settings, "literal": True},
    about="As rbcs-f/regret, with the other reading of s. By its definition s tells whether a client took part in the "
    "last round, so that (14) makes those who did pay the cold start; the text after it says that those who did not "
    "need the extra time. Elsewhere we follow that text, here the definition. It is shown, not counted",
)
