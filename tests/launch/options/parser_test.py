"""What the parser says of words in a wrong place."""

import pytest

from cohort_gnn.launch.main import main


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--device", "cpu", "train", "DIR"],
            "cohort: error: expected a command before --device, as in: cohort COMMAND ... --device ...",
        ),
        (
            ["dataset", "--verify=no", "info", "DIR"],
            "cohort dataset: error: expected a command before --verify, as in: cohort dataset COMMAND ... --verify ...",
        ),
    ],
    ids=["cohort", "dataset"],
)
def test_options_before_the_command_are_named(words, text, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == text


def test_options_of_cohort_itself_come_before_a_command(capsys):
    for word in ("--version", "--help", "-h"):
        with pytest.raises(SystemExit) as end:
            main([word])
        assert end.value.code == 0 and capsys.readouterr().out.startswith(("cohort", "usage: cohort"))


def test_more_ranks_than_a_sampler_serves_are_refused_before_trainers_start(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "DIR", "--ranks", "1025"])
    assert end.value.code == 2
    assert "--ranks: expected an integer from 1 to 1,024, found 1025" in capsys.readouterr().err
