"""tests/lines.py: lines that went, came, and only moved."""

import lines
import pytest


@pytest.fixture
def commit(tmp_path, monkeypatch):
    """commit(files): the name of a commit of a repository that has these alone, path -> number of lines."""
    monkeypatch.setattr(lines, "ROOT", tmp_path)
    lines.git("init", "-q")

    def make(files: dict[str, int]) -> str:
        lines.git("rm", "-rqf", "--ignore-unmatch", ".")
        for path, count in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text("".join(f"{path.split('/')[-1]} {line}\n" for line in range(count)))
        lines.git("add", ".")
        lines.git("-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a")
        return lines.git("rev-parse", "HEAD").strip()

    return make


def test_what_moved_out_of_a_room_counts_as_the_rooms(commit, capsys):
    before = commit({"base/a.h": 10, "base/gone.cc": 20, "launch/b.py": 30, "tests/c.py": 40, "README.md": 50})
    after = commit({"base/a.h": 11, "base/new.cu": 5, "bench/b.py": 30, "bench/d.py": 60, "tests/c.py": 80})
    assert lines.difference(before, after) == {"base": (30, 16), "launch": (30, 30)}
    lines.main(before, after)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", "60", "46", "-14"]
