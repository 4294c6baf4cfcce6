import uuid

import pytest

from corbits_memory.core import ids


def test_an_id_is_prefix_and_22_digits() -> None:
    text = ids.encode_id(ids.DOCUMENT, uuid.UUID(int=0))
    assert text == "kdoc_" + "0" * 22


def test_the_largest_uuid_fits_and_comes_back() -> None:
    largest = uuid.UUID(int=2**128 - 1)
    assert ids.decode_id(ids.VERSION, ids.encode_id(ids.VERSION, largest)) == largest


def test_the_alphabet_is_in_ascii_order() -> None:
    assert sorted(ids.ALPHABET) == list(ids.ALPHABET)
    assert len(set(ids.ALPHABET)) == 62


@pytest.mark.parametrize(
    "text",
    [
        "kver_" + "0" * 22,  # another type
        "kdoc_" + "0" * 21,
        "kdoc_" + "0" * 23,
        "kdoc_" + "0" * 21 + "-",
        "kdoc_" + "0" * 21 + "é",
        "kdoc" + "0" * 22,
        "kdoc_" + "z" * 22,  # 62**22 - 1 is above 2**128
        "",
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ids.InvalidIdError, match="not a kdoc id"):
        ids.decode_id(ids.DOCUMENT, text)


def test_one_above_128_bits_is_refused() -> None:
    number, digits = 2**128, ""
    while number:
        number, digit = divmod(number, 62)
        digits = ids.ALPHABET[digit] + digits
    with pytest.raises(ids.InvalidIdError, match="128 bits"):
        ids.decode_id(ids.DOCUMENT, f"kdoc_{digits.rjust(22, '0')}")
