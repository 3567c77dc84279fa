"""Words that say nothing about what is looked for. They are indexed all the same, and left out of queries only."""

from typing import Final

_ARTICLES_CONJUNCTIONS_PREPOSITIONS = """
a an the and or but nor if then than so as at by for from in into of off on onto out over to up with about after again
before between during through under until while because
"""
_PRONOUNS = """
i me my mine we us our ours you your yours he him his she her hers it its they them their theirs this that these those
there here who whom whose which what when where why how
"""
_AUXILIARIES = """
am is are was were be been being do does did done doing have has had having can could will would shall should may might
must
"""
_REST_OF_CONTRACTIONS = """
s t d m ll re ve don doesn didn isn aren wasn weren won couldn shouldn wouldn hasn haven hadn
"""
_FILLERS = "not no any some all each also just only very too please tell"

STOP_WORDS: Final = frozenset(
    {
        *_ARTICLES_CONJUNCTIONS_PREPOSITIONS.split(),
        *_PRONOUNS.split(),
        *_AUXILIARIES.split(),
        *_REST_OF_CONTRACTIONS.split(),
        *_FILLERS.split(),
    }
)
"""English function words, folded."""
