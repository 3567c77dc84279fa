"""The ways in which editors save a file."""

import os
import secrets
import shutil


def save_beside_and_replace(file, text):
    spare = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    spare.write_text(text)
    spare.replace(file)


def save_like_sed(file, text):
    # sed draws a name, so that two of them can work in one folder.
    spare = file.with_name(f"sed{secrets.token_hex(3)}")
    spare.write_text(text)
    spare.rename(file)


def save_like_vim(file, text):
    swap = file.with_name(f".{file.name}.swp")
    swap.write_bytes(b"b0VIM 8.2" + text.encode())
    file.with_name("4913").touch()
    file.with_name("4913").unlink(missing_ok=True)
    file.rename(file.with_name(f"{file.name}~"))
    file.write_text(text)
    file.with_name(f"{file.name}~").unlink()
    swap.unlink()


def save_like_emacs(file, text):
    file.with_name(f"#{file.name}#").write_text(text)
    file.with_name(f".#{file.name}").symlink_to("user@host.1:1")
    shutil.copy(file, file.with_name(f"{file.name}~"))
    file.write_text(text)
    file.with_name(f".#{file.name}").unlink()
    file.with_name(f"#{file.name}#").unlink()


def save_in_place(file, text):
    with file.open("r+") as stream:
        stream.truncate()
        for letter in text:
            stream.write(letter)
            stream.flush()


SAVES = [save_beside_and_replace, save_like_sed, save_like_vim, save_like_emacs, save_in_place]
