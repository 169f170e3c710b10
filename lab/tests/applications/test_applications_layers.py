"""Images of many layers: the archive is what Coracle loads, and each layer is what it says."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from coracle_lab.applications import images, layers
from coracle_lab.design import Image


@pytest.mark.parametrize("count", [2, 60])
def test_the_archive_has_so_many_layers(tmp_path: Path, count: int) -> None:
    tree = tmp_path / "tree.tar"
    with tarfile.open(tree, "w") as out:
        out.add(__file__, "etc/file")
    made = [tmp_path / "one.tar", tmp_path / "two.tar"]
    for path in made:
        layers.write(tree, count, "lab/x", path)
    with tarfile.open(made[0]) as archive:

        def read(name: str) -> bytes:
            file = archive.extractfile(name)
            assert file is not None
            return file.read()

        (manifest,) = json.loads(read("manifest.json"))
        config = json.loads(read(manifest["Config"]))
        assert manifest["RepoTags"] == ["lab/x"]
        assert len(manifest["Layers"]) == len(set(manifest["Layers"])) == count
        digests = [
            f"sha256:{hashlib.sha256(read(name)).hexdigest()}" for name in manifest["Layers"]
        ]
        assert config["rootfs"]["diff_ids"] == digests
        assert read(manifest["Layers"][0]) == tree.read_bytes()
        names = []
        for name in manifest["Layers"][1:]:
            with tarfile.open(fileobj=io.BytesIO(read(name))) as layer:
                names.append(layer.getnames())
    assert names == [[f"usr/share/coracle-lab/layer-{at}"] for at in range(2, count + 1)]


CORACLE = """#!/bin/sh
echo "$@" >> {place}/asked
case "$1" in
    load) cp "$4" {place}/loaded.tar ;;
    image) exit 1 ;;
esac
"""
MMDEBSTRAP = """#!/bin/sh
for word; do case "$word" in */image.tar) tar -cf "$word" -C {place} asked ;; esac; done
"""


@pytest.mark.parametrize("count", [1, 3])
def test_an_image_of_a_recipe_is_imported_or_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for name, text in (("coracle", CORACLE), ("mmdebstrap", MMDEBSTRAP)):
        (tmp_path / name).write_text(text.format(place=tmp_path))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "asked").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CORACLE_LAB_CACHE", str(tmp_path / "cache"))
    images.ensure(f"lab/{count}", [Image(f"lab/{count}", "bookworm", layers=count)])
    asked = (tmp_path / "asked").read_text().splitlines()[-1].split()
    if count == 1:
        assert asked[0] == "import" and asked[-1] == "lab/1"
        return
    assert asked[:3] == ["load", "-q", "-i"]
    with tarfile.open(tmp_path / "loaded.tar") as archive:
        assert len([name for name in archive.getnames() if name.endswith("/layer.tar")]) == count
    assert not list((tmp_path / "cache").iterdir())
