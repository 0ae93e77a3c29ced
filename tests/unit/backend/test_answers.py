"""What the learners see of the answers."""

from backend.learner import AnswerLog, Entry


def test_only_queries_that_come_again_by_chance_or_on_purpose_tell_how_much_people_agree() -> None:
    log = AnswerLog()
    log.append(
        [
            Entry("1-0", "S", (0, 1, 2), predicted=True, repeatable=True),
            Entry("2-0", "S", (3, 4, 5), predicted=False, repeatable=False),
        ]
    )
    assert (len(log), log.repeatable().tolist()) == (2, [[0, 1, 2]])
