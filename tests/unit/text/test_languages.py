"""A text's language is detected from its function words, and only if they are unambiguous."""

# ruff: noqa: RUF001 -- letters that look like others are what is tested

import pytest

from memoryd_server.text.analyzer import Analyzer
from memoryd_server.text.languages import LATIN, detect

SENTENCES = {
    "": "The heron stands in the reeds by the lake and waits for fish, as it has done since the morning.",
    "ca": "L'arròs és el plat que més li agrada, però no en fa gaire perquè els dies que té amb la família són pocs.",
    "cs": "Včera jsem byl na trhu a koupil jsem ryby, které byly čerstvé, ale ne pro kočku, protože to není možné.",
    "da": "Hun var ikke hjemme, da jeg kom, og det var en skam, for jeg havde en gave med til hende fra min søster.",
    "de": "Der Reiher steht im Schilf und wartet auf die Fische, die sich aber nicht zeigen, weil es zu kalt ist.",
    "es": "La garza está en los juncos y espera a los peces, pero no se muestran porque el agua está muy fría.",
    "fi": "Hän ei ollut kotona, kun minä tulin, mutta se oli hyvä, koska olin myös väsynyt ja me olimme nälkäisiä.",
    "fr": "Le héron est dans les roseaux et il attend les poissons, mais ils ne se montrent pas car l'eau est froide.",
    "hu": "A gém a nádasban áll, és a halakra vár, de nem jönnek, mert a víz már hideg, és ez így van minden évben.",
    "id": "Burung itu berdiri di rawa dan menunggu ikan, tetapi ikan tidak datang karena air ini dingin dan dalam.",
    "it": "L'airone sta nelle canne e aspetta i pesci, ma non si fanno vedere perché l'acqua è troppo fredda per loro.",
    "nl": "De reiger staat in het riet en wacht op de vissen, maar die komen niet omdat het water te koud is voor hen.",
    "pl": "Czapla stoi w trzcinach i czeka na ryby, ale nie przypływają, bo woda jest zimna, jak to jest co roku.",
    "pt": "A garça está nos juncos e espera pelos peixes, mas eles não aparecem porque a água está muito fria.",
    "ro": "Stârcul stă în stuf și așteaptă peștii, dar nu apar pentru că apa este prea rece, după cum se vede.",
    "sv": "Hägern står i vassen och väntar på fisken, men den kommer inte för att det är för kallt i vattnet.",
    "tr": "Balıkçıl sazlıkta duruyor ve balıkları bekliyor, ama su çok soğuk olduğu için bu gün bir tane bile yok.",
    "vi": "Con diệc đứng trong đám sậy và chờ những con cá, nhưng chúng không đến vì nước đã quá lạnh cho các loài.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_the_language_of_a_sentence_is_detected(language):
    assert Analyzer().language_of(SENTENCES[language]) == language


@pytest.mark.parametrize(
    "text",
    [
        "",
        "der die",
        "git push origin main --force",
        "今天我们去公园玩了《Les Fleurs du Mal》和 la vie en rose，然后回家吃饭，看电视，睡觉，第二天早上起来继续工作"
        * 3,
        "Мы пошли в парк и гуляли там до вечера",
        "The meeting with de la Cruz and van der Berg was about the budget of the year, and it was long.",
        "x" * 5000,
        "\ud800",
    ],
)
def test_no_language_is_detected_in_short_texts_or_names(text):
    assert Analyzer().language_of(text) == ""


def test_the_middle_of_a_text_counts_as_well_as_its_beginning():
    code = "parser.add_argument(name) " * 20
    assert Analyzer().language_of(code + SENTENCES["de"] * 12) == "de"


@pytest.mark.parametrize("language", LATIN)
def test_a_language_of_function_words_alone_is_detected_or_shared(language):
    told = detect(" ".join(LATIN[language].split()))
    assert told == language
