"""Words of conversation: greetings, thanks, consent, and what is said about the answer before.

A turn that shares only such words with the memory is not about it: "Thanks, sounds good!" is in many transcripts. The
words are in lower case and without accents, as `Analyzer.content_words` returns them; of scripts without spaces, they
are the pairs of characters that it returns. Stop words need not be listed.
"""

# ruff: noqa: RUF001 -- letters of other scripts that look like Latin ones are words here

from collections.abc import Mapping
from typing import Final

_ENGLISH = """
happen happened happening happens discuss discussed talk talked talking
hi hello hey hiya yo greetings welcome morning afternoon evening night day today tonight tomorrow bye goodbye
later soon weekend monday tuesday wednesday thursday friday saturday sunday january february march april june
july august september october november december thanks thank thx ty cheers appreciate appreciated grateful kind
please pls sorry pardon excuse congrats congratulations ok okay yes yeah yep yup no nope nah sure right correct
exactly indeed true wrong false agree agreed fine great good nice cool awesome amazing excellent perfect
perfectly wonderful fantastic brilliant lovely super best better worse worst bad well wow haha hahaha lol hmm hm
oh ah uh um got get gets getting see know think thought guess suppose mean means sense understand understood
figure figured mind never ready maybe perhaps probably actually really very quite pretty much many lot lots bit
little more less most least only just also too even still already again once twice ever always help helps helped
helpful helping done do does did doing need needs needed want wants wanted let lets like likes liked go goes
going went gone ahead come comes came back start started stop stopped wait continue proceed try tried trying
next last first second third previous before after now then make makes made making put take takes took give
gives gave show shows tell told say says said ask asked look looks looking sound sounds feel feels seem seems
keep keeps use used using explain explanation describe summarize summarise summary rewrite rephrase reword
translate translation shorter longer short long simpler simple simply detail details detailed example examples
answer answers question questions reply message text word words sentence sentences paragraph point points bullet
list table tone formal casual format version change changes changed fix fixed check checked send sent write
writes wrote written read run add remove undo redo repeat same different difference other others another one two
three four five six seven eight nine ten thing things something anything everything nothing way time times year
years new funny joke jokes weather rain raining rainy sun sunny snow hot cold warm tired bored boring beautiful
fast quick quickly slow easy hard
"""

_OTHERS: Mapping[str, str] = {
    "de": """
        hallo guten morgen tag abend nacht moin servus tschuss wiedersehen danke dank vielen bitte gern gerne ja
        nein doch klar alles gut super toll prima genau stimmt okay einverstanden verstanden mach machen weiter
        nochmal kurzer langer erklaren erklare zusammen fassen fass satz satze wetter heute witz besser richtig
        falsch geholfen hilfe
    """,
    "fr": """
        bonjour bonsoir salut coucou revoir merci beaucoup plait oui non accord bien super parfait genial
        compris continue continuer encore court courte plus long expliquer explique resume resumer phrase
        phrases blague temps aujourd hui demain journee soiree bon bonne aide
    """,
    "es": """
        hola buenos buenas dias tardes noches adios luego manana gracias muchas favor vale si no bien perfecto
        genial claro entendido acuerdo sigue continua otra vez corto largo explica resume frase chiste tiempo
        hoy calor frio ayuda amable descanses
    """,
    "it": """
        ciao buongiorno buonasera buonanotte arrivederci grazie mille prego favore si no bene va perfetto capito
        continua ancora breve lungo spiega riassumi frase traduci traducilo barzelletta tempo oggi domani
        procedi pure aiuto
    """,
    "pt": """
        ola oi bom boa dia tarde noite tchau obrigado obrigada muito favor sim nao claro certo perfeito otimo
        entendi continua continue novo curto longo explica resume frase piada tempo hoje amanha lindo ajuda
    """,
    "nl": """
        hallo hoi goedemorgen goedenavond dag doei morgen avond fijne bedankt dank wel alsjeblieft ja nee goed
        prima precies begrepen verder nog keer probeer korter langer leg uit samen zin grap weer vandaag hulp
    """,
    "sv": """
        hej hejda god morgon kvall natt tack snalla ja nej okej bra perfekt precis forstar fortsatt igen kortare
        langre forklara sammanfatta mening skamt vader idag imorgon hjalp
    """,
    "pl": """
        czesc dzien dobry dobranoc wieczor widzenia zobaczenia jutro dzisiaj dzieki dziekuje prosze tak nie
        dobrze jasne super rozumiem dalej jeszcze raz krocej dluzej wyjasnij stresc zdanie zart pogoda pomoc
    """,
    "tr": """
        merhaba selam gunaydin iyi geceler aksamlar gunler gorusuruz tesekkurler tesekkur ederim lutfen evet
        hayir tamam anladim guzel harika devam tekrar kisa uzun acikla ozetle cumle saka hava bugun yarin cevir
        yardim
    """,
    "vi": """
        chao xin cam on vang da khong duoc tot roi tiep tuc lai lan nua ngan gon hon dai giai thich tom tat cau
        dich viet doan nay thoi tiet hom ngay mai giup
    """,
    "ru": """
        привет здравствуите доброе утро добрыи день вечер ночи пока свидания завтра сегодня спасибо большое
        пожалуиста да нет хорошо понял поняла понятно ладно отлично верно конечно продолжаи дальше еще раз
        попробуи короче длиннее объясни переведи предложение шутка погода дождь дела помог помощь
    """,
    "uk": """
        привіт добрии ранок день вечір добранич буваи побачення завтра сьогодні дякую дуже будь ласка так ні
        добре зрозуміло гаразд чудово продовжуи далі ще раз спробуи коротше довше поясни переклади речення жарт
        погода допомога
    """,
    "el": """
        γεια καλημερα καλησπερα καληνυχτα αντιο ευχαριστω πολυ παρακαλω ναι οχι ενταξει καλα τελεια καταλαβα
        συνεχισε ξανα συντομα εξηγησε αστειο καιροσ σημερα αυριο βοηθεια
    """,
    "ar": """
        مرحبا اهلا السلام عليكم صباح مساء الخير شكرا جزيلا من فضلك نعم لا حسنا تمام جيد ممتاز فهمت استمر مرة
        اخرى اقصر اشرح ترجم نكتة الطقس اليوم غدا مع السلامة
    """,
    "he": """
        שלום היי בוקר ערב לילה טוב להתראות תודה רבה בבקשה כן לא בסדר מעולה הבנתי המשך שוב קצר הסבר תרגם בדיחה
        היום מחר
    """,
    "hi": """
        नमसत नमस्ते सुपरभात धनयवाद धन्यवाद बहुत शुकरिया शुक्रिया कपया कृपया हा हां नही नहीं ठीक अचछा अच्छा समझ
        जारी फिर चुटकुला मौसम आज कल मदद सुनाओ
    """,
    "zh": """
        你好 您好 早上 晚上 晚安 再见 明天 今天 天气 谢谢 多谢 感谢 好的 可以 没问 问题 不是 知道 明白 继续 再来
        一遍 短一 简单 简短 解释 翻译 总结 笑话 帮助 請用 请用
    """,
    "ja": """
        おは よう こん にち ちは ばん おや すみ さよ なら また 明日 今日 天気 あり りが がと とう 感謝 助か はい
        いい いえ 了解 わか 大丈 丈夫 続け もう 一度 短く 説明 翻訳 要約 冗談 お願 願い 本当 少し
    """,
    "ko": """
        안녕 녕하 하세 감사 사합 합니 니다 고마 마워 네 아니 아니요 좋아 좋아요 알겠 계속 다시 짧게 설명 번역
        요약 농담 날씨 오늘 내일 정말 부탁
    """,
    "th": """
        สวัส วัสดี ขอบ อบคุ บคุณ คุณ ครับ ค่ะ ใช่ ไม่ โอเ อเค ดี ต่อ อีกค กครั้ ครั้ง สั้น อธิบ ธิบา บาย แปล สรุป ตลก อาก ากา กาศ วันนี้
        พรุ่ง รุ่งนี้
    """,
}

CONVERSATION_WORDS: Final = frozenset(word for text in (_ENGLISH, *_OTHERS.values()) for word in text.split())
"""The words of conversation in all languages."""
