import pytest

pytest.register_assert_rewrite("unit.store.contract", "unit.store.history_contract")
