"""What a command works with: the settings, the database, the vault, and who is at the keyboard."""

import contextlib
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ops.settings import Settings
    from storage.secrets import Vault
    from storage.transactions import Store


@dataclass(frozen=True)
class Session:
    """One command's means."""

    settings: "Settings"
    store: "Store"
    actor: str

    @cached_property
    def vault(self) -> "Vault":
        """Opens and seals. Raises: WrongSetting where no master key is known."""
        from ops.settings import WrongSetting
        from storage.secrets import Vault

        if not self.settings.master_keys:
            raise WrongSetting("HOOKYARD_MASTER_KEY is not set: secrets cannot be read or stored without it")
        return Vault(self.settings.master_keys)

    @property
    def vault_if_known(self) -> "Vault | None":
        """The vault, or None where no master key is known and perhaps none is needed."""
        return self.vault if self.settings.master_keys else None


@contextlib.contextmanager
def session() -> Iterator[Session]:
    """The session of this process. Raises: WrongSetting, StorageUnavailable when it is used."""
    from ops.datadir import complete
    from ops.settings import load
    from storage.transactions import Store

    settings = complete(load())
    store = Store(settings.database_url or "")
    try:
        yield Session(settings, store, settings.actor or user())
    finally:
        store.close()


def user() -> str:
    """The operating system's name for who runs this."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
