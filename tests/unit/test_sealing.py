import pytest

from core.sealing import SealBroken, seal, unseal

ONE, TWO = "sk-one", "sk-two"


def test_what_is_sealed_opens_with_its_secret_alone():
    sealed = seal(b"whsec_abc", secret=ONE)
    assert unseal(sealed, secret=ONE) == b"whsec_abc"
    assert b"whsec" not in sealed
    with pytest.raises(SealBroken):
        unseal(sealed, secret=TWO)


def test_no_two_seals_are_alike_and_none_can_be_changed():
    first, second = seal(b"same", secret=ONE), seal(b"same", secret=ONE)
    assert first != second
    changed = first[:-5] + bytes([first[-5] ^ 1]) + first[-4:]
    with pytest.raises(SealBroken):
        unseal(changed, secret=ONE)
