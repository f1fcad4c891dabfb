import pytest

from core.errors import SealBroken
from core.sealing import Sealer, seal, unseal

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


OLD, NEW = "o" * 32, "n" * 32


def test_a_new_key_seals_and_older_ones_still_open():
    old, both, new = Sealer([OLD]), Sealer([NEW, OLD]), Sealer([NEW])
    stored = old.seal("whsec_é")
    assert "whsec" not in stored
    assert both.unseal(stored) == old.unseal(stored) == "whsec_é"
    with pytest.raises(SealBroken):
        new.unseal(stored)
    again = both.seal(both.unseal(stored))
    assert again.startswith(new.mark)
    assert not stored.startswith(new.mark)
    assert new.unseal(again) == "whsec_é"
    with pytest.raises(SealBroken):
        new.unseal(f"{again[:-6]}AAAA==")


def test_without_a_key_nothing_is_sealed_and_what_never_was_is_read():
    none = Sealer()
    assert none.seal("whsec_a") == "whsec_a"
    assert Sealer([NEW]).unseal("whsec_a") == "whsec_a"
    with pytest.raises(SealBroken):
        none.unseal(Sealer([NEW]).seal("whsec_a"))
