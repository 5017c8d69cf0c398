"""Changed files of vLLM as a folder that goes before the installed package on the import path."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from services.export.carried import source

SHIM = '''"""The installed package of this name, with the files of this folder before its own."""

from vllm_overlay import lay_over

lay_over(globals())
'''
ROOT = "overlay"


def place(path: str) -> str:
    """Where the overlay keeps a file of the tree: a package's own code lies beside its shim."""
    name = PurePosixPath(path)
    return f"{ROOT}/{name.with_name('changed_init.py') if name.name == '__init__.py' else name}"


def overlay(changed: Mapping[str, bytes], version: str) -> dict[str, bytes]:
    """Files of the overlay, by path in the export, for changed files by path in the tree."""
    wanted = source("vllm_overlay.py").replace(
        'WANTED = ""', f"WANTED = {version!r}".replace("'", '"')
    )
    files = {f"{ROOT}/vllm_overlay.py": wanted.encode()}
    for path, content in changed.items():
        files[place(path)] = content
        for folder in list(PurePosixPath(path).parents)[:-1]:
            files[f"{ROOT}/{folder}/__init__.py"] = SHIM.encode()
    return files
