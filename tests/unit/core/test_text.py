import time

import pytest

from corbits_memory.core.text import (
    ParsedQuery,
    ends_with_question,
    identifiers,
    is_unsegmented,
    normalise,
    parse_query,
    word_count,
    words,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("Hello, world! (again)", "Hello world again"),
        ("  “quoted” — words…  ", "quoted words"),
        ("Maria's don’t", "Maria s don t"),
        ("ＡＢＣ ﬁne ①", "ABC fine 1"),
        ("soft\u00adhyphen zero\u200bwidth \ufeffbom", "softhyphen zero width bom"),
        ("well-known and/or", "well known and or"),
        ("हिन्दी में", "हिन्दी में"),
        ("naïve Straße", "naïve Straße"),
        ("\x00a\x01b", "a b"),
        ("🎉 party 🎉", "party"),
    ],
)
def test_words_are_separated_by_single_spaces(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("猫", "猫"),
        ("我喜欢绿茶。", "我喜 喜欢 欢绿 绿茶"),
        ("コンピュータを使う", "コン ンピ ピュ ュー ータ タを を使 使う"),
        ("ｺﾝﾋﾟｭｰﾀ", "コン ンピ ピュ ュー ータ"),
        ("使用Python编程", "使用 Python 编程"),
        ("2023年5月", "2023 年 5 月"),
        ("ジョン・スミス", "ジョ ョン スミ ミス"),
        ("กี่ที่", "กี่ที่"),
        ("ไทยแลนด์", "ไท ทย ยแ แล ลน นด์"),
        ("ខ្មែរ", "ខ្មែ មែរ"),
        ("မြန်မာ", "မြန် န်မာ"),
        ("ລາວ", "ລາ າວ"),
        ("日本語 text 日本", "日本 本語 text 日本"),
    ],
)
def test_unsegmented_scripts_become_bigrams(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("학교에서", "학교에서 학교 교에 에서"), ("학교", "학교"), ("밥", "밥"), ("AI가", "AI 가")],
)
def test_hangul_words_keep_company_with_their_bigrams(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("绿茶", "我喜欢喝绿茶，不喝咖啡"),
        ("コンピュータ", "新しいコンピュータを買った"),
        ("학교", "학교에서 만나요"),
        ("CL-5868", "see CL-5868, please"),
        ("v0.8.6", "pgvector 0.8.6 is out"),
        ("foo_bar", "call foo_bar()"),
        ("a@b.com", "Mail a@b.com."),
        ("C++", "I write C++ daily"),
        ("ﬁnance", "FINANCE"),
    ],
)
def test_every_word_of_the_query_is_found_in_the_document(query: str, document: str) -> None:
    assert set(words(query)) <= set(words(document))


def test_identifiers_are_told_apart_from_their_neighbours() -> None:
    assert not set(words("CL-5868")) <= set(words("CL-5869 and PR-5868"))
    assert not set(words("v1.12")) <= set(words("v11.2 and 1 12"))


def test_a_very_long_token_has_no_joined_form() -> None:
    token = "-".join(["a1"] * 40)
    assert normalise(token) == " ".join(["a1"] * 40)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fix CL-5868 in foo_bar", ("CL-5868", "foo_bar")),
        ("write to a.b@example.org", ("a.b@example.org",)),
        ("pgvector 0.8.6 on 2026-12-02", ("0.8.6", "2026-12-02")),
        ("std::vector main.py", ("std::vector", "main.py")),
        ("C++ or C#, C++", ("C++", "C#")),
        ("a well-known word. And/or two", ()),
        ("CL-5868 CL-5868", ("CL-5868",)),
    ],
)
def test_identifiers(text: str, expected: tuple[str, ...]) -> None:
    assert identifiers(text) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("plain words", ParsedQuery(text="plain words")),
        (
            'find "exact  phrase" -bad -"very bad"',
            ParsedQuery(text="find exact phrase", phrases=("exact phrase",), excluded=("bad", "very bad")),
        ),
        ("a-b at -5 or -3.5%", ParsedQuery(text="a-b at -5 or -3.5%", identifiers=("3.5",))),
        ("a - b", ParsedQuery(text="a - b")),
        ("-foo", ParsedQuery(text="", excluded=("foo",))),
        ('open "quote', ParsedQuery(text='open "quote')),
        ('"" x', ParsedQuery(text="x")),
        (
            "“eins zwei” „drei“ «vier»",
            ParsedQuery(text="eins zwei drei vier", phrases=("eins zwei", "drei", "vier")),
        ),
        ('中文"短语"', ParsedQuery(text="中文 短语", phrases=("短语",))),
        ("-CL-5868 CL-1", ParsedQuery(text="CL-1", excluded=("CL-5868",), identifiers=("CL-1",))),
        ('"a" "a"', ParsedQuery(text="a a", phrases=("a",))),
        ("  ", ParsedQuery(text="")),
    ],
)
def test_web_search_syntax(query: str, expected: ParsedQuery) -> None:
    assert parse_query(query) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what?", True),
        ("what? 😊", True),
        ('he said "why?"', True),
        ("why?!", True),
        ("really?? :)", True),
        ("什么？", True),
        ("ماذا؟", True),
        ("why? yes.", False),
        ("why? yes", False),
        ("yes!", False),
        ("well...", False),
        ("", False),
        ("😊", False),
        ("?", True),
    ],
)
def test_ends_with_question(text: str, expected: bool) -> None:
    assert ends_with_question(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("one", 1),
        ("one, two  three!", 3),
        ("我喜欢绿茶", 2),
        ("猫", 1),
        ("학교에서 만나요", 2),
        ("!!", 0),
    ],
)
def test_word_count(text: str, expected: int) -> None:
    assert word_count(text) == expected


def test_is_unsegmented() -> None:
    assert is_unsegmented("猫 and dog")
    assert is_unsegmented("학교")
    assert not is_unsegmented("dog हिन्दी")


@pytest.mark.parametrize("unit", ["a", "a-", "a1-", "中", "가", "“", '"', "-a ", "é.", "v1."])
def test_reading_takes_linear_time(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    start = time.process_time()
    normalise(text)
    identifiers(text)
    parse_query(text[:8192])
    assert time.process_time() - start < 5
