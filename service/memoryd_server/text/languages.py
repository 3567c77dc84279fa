"""Language detection by function words; the stop words of a query.

Function words, such as "the" or "und", hold sentences together and carry no topic. They are listed by language (ISO
639-1). They distinguish the languages of Latin script, and are left out of queries; they are indexed like other words.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from memoryd_server.text.stemming import DEFAULT, accented, fold

# ruff: noqa: RUF001 -- letters of other scripts that look like Latin ones are words here

ENGLISH = """
a an the and or but nor if then than so as at by for from in into of off on onto out over to up with about after again
before between during through under until while because
i me my mine we us our ours you your yours he him his she her hers it its they them their theirs this that these those
there here who whom whose which what when where why how
am is are was were be been being do does did done doing have has had having can could will would shall should may might
must
s t d m ll re ve don doesn didn isn aren wasn weren won couldn shouldn wouldn hasn haven hadn
not no any some all each also just only very too please tell
"""

LATIN: Mapping[str, str] = {
    "ca": """el la els les un una uns unes i o però de del dels a al als en amb per sense que qui com quan on és
        són era no més molt també aquest aquesta això va ser ha han té hi ho es se li jo tu ell ella nosaltres quin
        quina""",
    "cs": """a i o u v ve s se si z ze k ke na do od po pro před při za nad pod bez že ale nebo jako když který
        která které co kdo kde kdy jak proč je jsou byl byla bylo být má není to ten ta tento jeho její jejich také""",
    "da": """og i at det den de en et er var på af til for med som der har ikke om men jeg du han hun vi sig sin
        ved fra hvad hvem hvor hvornår hvordan hvorfor hvilken efter eller blev bliver kan skal vil også være hvis
        når""",
    "de": """der die das den dem des ein eine einen einem einer eines und oder aber nicht kein keine ist sind war
        waren sein wird werden wurde wurden hat haben hatte ich du er sie es wir ihr mich dich sich uns mein dein
        sein unser zu zur zum von vom in im an am auf aus bei beim mit nach für über um durch als wie wenn dass ob
        auch noch nur was wer wen wem wo wann warum wieso weshalb welche welcher welches welchen wurde diese dieser
        dieses""",
    "es": """el la los las un una unos unas y o u e pero de del a al en con por para sin sobre entre hasta desde
        que qué quién quien quiénes cuál cuáles cuándo cuando dónde donde cómo como cuánto cuántos cuántas es son
        era eran fue fueron ser estar está están ha han había hay se su sus lo le les me te nos mi tu yo él ella
        ellos ellas nosotros este esta estos estas ese esa esto eso no sí más muy también ya si porque ayer""",
    "fi": """ja tai mutta on ovat oli olivat ei en et emme eivät että se ne hän he minä sinä me te tämä tuo joka
        jotka mikä mitä kuka missä milloin miten miksi kuinka kun jos kuin myös ollut sen hänen niiden mukaan
        jälkeen""",
    "fr": """le la les un une des du de d l et ou mais donc ni car à au aux en dans par pour sans sous sur avec
        entre vers chez ce cet cette ces il elle ils elles on je tu nous vous se sa son ses mon ma mes ton ta tes
        leur leurs qui que quoi quel quelle quels quelles dont où quand comment pourquoi combien est sont était
        étaient été être a ont avait avoir fut ne pas plus très aussi y comme si hier""",
    "hu": """a az egy és vagy de hogy nem is ez azt ezt van volt voltak lesz lenni ki mi mit kinek hol mikor hogyan
        miért melyik mely aki ami amely mint meg el fel be csak már még után által alatt között""",
    "id": """yang dan di ke dari untuk dengan pada adalah ini itu tidak bukan akan telah sudah oleh sebagai dalam
        atau juga karena bahwa saya kamu dia mereka kita kami apa siapa kapan bagaimana mengapa berapa mana""",
    "it": """il lo la i gli le un uno una e o ma di del dello della dei degli delle a al allo alla ai agli alle da
        dal dalla dai dalle in nel nella nei nelle con su sul sulla sui sulle per tra fra che chi cosa quale quali
        quando dove come perché quanto quanti è sono era erano fu furono essere ha hanno aveva si suo sua suoi sue
        mi ti ci vi io tu lui lei noi voi loro questo questa questi queste non più molto anche se ieri""",
    "nl": """de het een en of maar van voor met op in aan uit bij naar om te door over onder tot tegen is zijn was
        waren wordt worden werd werden heeft hebben had ik jij je hij zij ze wij we jullie mijn jouw haar hun ons
        deze dit dat die er niet geen ook nog als dan wat wie waar wanneer hoe waarom welke hoeveel""",
    "no": """og i å det den de en et er var på av til for med som har ikke om men jeg du han hun vi seg sin ved fra
        hva hvem hvor når hvordan hvorfor hvilken etter eller ble blir kan skal vil også være hvis dette""",
    "pl": """i w we z ze na do od po za przez przy dla o u nie że ale lub albo jak jako się to ten ta te jest są
        był była było być ma co kto gdzie kiedy dlaczego który która które czy jego jej ich go mu tym oraz także""",
    "pt": """o a os as um uma uns umas e ou mas de do da dos das em no na nos nas a ao aos à às por pelo pela pelos
        pelas para com sem sobre entre até que quem qual quais quando onde como quanto quantos é são era eram foi
        foram ser estar está estão tem têm tinha há se seu sua seus suas me te lhe eu tu ele ela eles elas nós você
        vocês meu minha este esta isto esse essa isso não mais muito também já porque ontem""",
    "ro": """și şi sau dar de la în din pe cu pentru prin fără despre între până după că ce cine care cui când unde
        cum cât câți câte este sunt era erau fost fi a au ai am avea are se sa să său sale lui lor eu tu el ea noi
        voi ei ele un o unei unui unor al ale acest această aceste acesta nu mai foarte dacă ca""",
    "sv": """och i att det den de en ett är var på av till för med som har inte om men jag du han hon vi sig sin
        vid från vad vem var när hur varför vilken vilket vilka efter eller blev blir kan ska vill också vara detta
        denna""",
    "tr": """ve veya ya da de bir bu şu o ile için gibi kadar daha çok en ne kim kimin nerede nereye nasıl neden
        niçin hangi kaç zaman olarak olan oldu olduğu değil var yok mı mi mu mü ise ama fakat ben sen biz siz onlar
        göre sonra önce her tarafından""",
    "vi": """và của là có không được cho trong một những các với này đã để người như khi thì mà từ ở đó ra vào về
        bị sẽ cũng nhưng hay hoặc tại do bởi gì ai nào đâu sao bao nhiêu tôi bạn anh chị họ nó chúng theo trên""",
}

SPACED: Mapping[str, str] = {
    "ar": """في من إلى الى على عن مع هو هي هم هن أنا انا نحن أنت انت هذا هذه ذلك تلك التي الذي الذين ما ماذا متى
        أين اين كيف لماذا هل كم أي اي أن ان إن كان كانت يكون قد لقد لا لم لن ليس ثم أو او و ف كل بعض بعد قبل بين
        عند بالأمس""",
    "el": """ο η το οι τα του της των τον την τους τις ένας μια μία ένα και ή αλλά σε στο στη στην στον στα στις
        στους από για με χωρίς πως πώς που πού πότε όταν ποιος ποια ποιο ποιοι ποιες τι γιατί πόσο πόσα είναι ήταν
        έχει έχουν είχε να θα δεν μην ως κατά μετά πριν αυτό αυτή αυτός αυτά εγώ εσύ μου σου""",
    "hi": """का की के को में से पर ने और या है हैं था थे थी हो हुआ हुई हुए कि जो यह वह ये वे इस उस इन उन क्या कौन कब
        कहाँ कहां कैसे क्यों किस किसने कितने कितना कितनी नहीं भी तो ही एक लिए साथ द्वारा तक कर करने किया मैं तुम आप""",
    "ko": """나 나는 내가 저 저는 제가 우리 우리는 너 너는 당신 그 그는 그녀 그녀는 그들은 이 이것 저것 그것 이것은
        그것은 그리고 그래서 그러나 하지만 그런데 또는 및 또 더 아주 매우 무엇 무엇을 무엇이 무엇인가 누구 누가
        언제 어디 어디서 어디에 어떻게 왜 어떤 어느 몇 있는 있다 있었다 없는 하는 한 했다 된 되는 대한 위한 수 것
        것을 것이 때 등 좀""",
    "ru": """и в во не на что с со по как это эта этот эти из у за от для о об к ко до над под при без же ли бы но
        или а то так вы мы он она они оно я ты его её их ему ей им нам вам мне тебе меня нас вас мой твой наш ваш
        свой был была было были быть есть где когда какой какая какое какие каким кто кого кому чем чего почему
        зачем сколько чей который которая которое которые также уже""",
    "uk": """і й та в у не на що з із зі по як це ця цей ці за від для о об до над під при без же чи б але або то
        так ви ми він вона вони воно я ти його її їх був була було були бути є де коли який яка яке які хто кого
        чому скільки також""",
}

UNSPACED: Mapping[str, str] = {
    "ja": """これ それ あれ この その あの ここ そこ どこ どちら だれ 誰 なに 何 いつ いくつ いくら なぜ どう
        どの どれ どんな 何か 誰か です でした でしょう だった である であった ですか ますか ましたか でしたか
        ました ません する した して している していた される された されて いる いた ある あった なる なった
        なって なりました できる できた という として について によって において に対して ください から まで
        など ため こと もの よう ような ように ところ とき ので のは のか とは には では""",
    "th": """ที่ และ ของ ใน เป็น มี การ ได้ ให้ คือ อะไร ใคร เมื่อใด เมื่อไร เมื่อไหร่ อย่างไร ที่ไหน ทำไม กี่ ว่า ซึ่ง จาก โดย
        กับ""",
    "zh": """什么 甚麼 怎么 怎麼 怎样 为什么 為什麼 哪里 哪裡 哪个 哪些 哪儿 多少 几个 我们 我們 你们 他们 她们
        它们 这个 這個 那个 那個 这些 那些 这里 那里 因为 所以 但是 可是 如果 还是 或者 以及 关于 關於 是否 请问
        一个 的是""",
}

MIN_VOTES: Final = 3
MIN_SHARE: Final = 0.06

# The most bytes of UTF-8 per character in Latin script; Vietnamese has the most. Other scripts have 1.8 to 3.
_MOST_LATIN_BYTES = 1.6


def _voters() -> Mapping[str, tuple[str, ...]]:
    voters: dict[str, tuple[str, ...]] = {}
    for language, words in {DEFAULT: ENGLISH, **LATIN}.items():
        for word in dict.fromkeys(words.split()):
            voters[word] = (*voters.get(word, ()), language)
    return voters


_VOTERS = _voters()


def votes(words: Iterable[str]) -> Counter[str]:
    """Return how many of these words are function words of each language."""
    return Counter(language for word in words if word in _VOTERS for language in _VOTERS[word])


def detect(sample: str) -> str:
    """Return the language of a text of some hundred words; the default for English, other scripts and short texts."""
    # A Chinese text with a French title is not French, although most of its words between spaces may be.
    if len(sample.encode("utf-8", "replace")) > _MOST_LATIN_BYTES * len(sample):
        return DEFAULT
    words = accented(sample).split()
    counted = votes(words)
    if not counted:
        return DEFAULT
    language, most = counted.most_common(1)[0]
    enough = most >= MIN_VOTES and most >= MIN_SHARE * len(words)
    return language if enough and most > counted[DEFAULT] else DEFAULT


# The function words that identify the language of a query if the index has no text in it.
_MIN_VOTES_IN_A_QUERY = 2


def _folded(words: str) -> frozenset[str]:
    return frozenset(map(fold, words.split()))


STOP_WORDS = _folded(ENGLISH).union(*map(_folded, SPACED.values()))
"""Function words that are left out of every query, folded: the English ones, and those of other scripts."""

_LATIN_STOP_WORDS: Mapping[str, frozenset[str]] = {language: _folded(words) for language, words in LATIN.items()}
_UNSPACED = "|".join(sorted(" ".join(UNSPACED.values()).split(), key=len, reverse=True))
# Japanese particles between function words. The rarer particles are left out: they are more often the end of a word.
_BETWEEN = "[はがをにでとの]"
_STOP_SPAN = re.compile(f"(?:{_BETWEEN}?(?:{_UNSPACED}))+{_BETWEEN}?")


def stop_words(words: Iterable[str], languages: Collection[str]) -> frozenset[str]:
    """Return the stop words for a query of these words (accented, without case) over texts in `languages`.

    "die" is a stop word in a German query, not in an English one. So the function words of another language of Latin
    script count only if the query has more of them than of any other language's.
    """
    counted = votes(words)
    most = max(counted.values(), default=0)
    query_languages = [
        language
        for language, count in counted.items()
        if language != DEFAULT and count == most and (language in languages or count >= _MIN_VOTES_IN_A_QUERY)
    ]
    if not query_languages:
        return STOP_WORDS
    return STOP_WORDS.union(*(_LATIN_STOP_WORDS[language] for language in query_languages))


def stop_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of function words in a text of unspaced script; neighbours and their particles form one span."""
    return [match.span() for match in _STOP_SPAN.finditer(text)]
