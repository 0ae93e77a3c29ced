"""Everything wrong with a file is said at once, at its place, in words that its author uses."""

import json

import pytest

from salmon.spec import check, parse_spec
from salmon.spec.parse import MAX_PROBLEMS

THREE = "targets: [red, green, blue]\n"

TEN_MISTAKES = """\
targets: [red, green, blue, no]
titel: Colours
max_queries: 20
html:
  skip_button: perhaps
samplers:
  ARR: {R: 1, modul: STE}
  Random: {targets: [0, 1, 4]}
sampling:
  probs: {ARR: 50, Random: 30}
page:
  background: whit
  background: red
checks: {catch: 1e999}
resume: {max_gap: 2}
"""


def _said(text: str | bytes) -> list[str]:
    return [problem.sentence() for problem in check(text)]


def test_ten_mistakes_of_ten_kinds_are_found_in_one_pass_each_at_its_place():
    assert [(problem.line, problem.column, problem.path, problem.warning) for problem in check(TEN_MISTAKES)] == [
        (2, 1, "titel", False),
        (3, 1, "max_queries", False),
        (5, 16, "html.skip_button", False),
        (7, 15, "samplers.ARR.modul", False),
        (8, 28, "samplers.Random.targets.2", False),
        (10, 10, "sampling.probs", False),
        (12, 15, "page.background", False),
        (13, 3, "background", False),
        (14, 17, "checks.catch", False),
        (15, 19, "resume.max_gap", False),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sampler: {}", "2:1: There is no key 'sampler'. Did you mean samplers?"),
        ("samplers: {ARR: {rr: 1}}", "2:18: samplers.ARR has no key 'rr'. Known there are"),
        ("arrow_keys: false", "2:1: arrow_keys belongs under html, but in this file it is at the top level. Move arrow_keys under html."),
        ("instructions: Choose", "2:1: instructions belongs under html, but in this file it is at the top level. Move instructions under html."),
        ("html: {debreif: x}", "2:8: warning: html has no key 'debreif'. Did you mean debrief?"),
        ("html: {seed: 1}", "2:8: warning: seed has no effect under html. Move seed to the left margin."),
        ("html: {max_queries: fifty}", "2:21: html.max_queries must be a whole number, not 'fifty'."),
        ("html: 5", "2:7: html must be keys with values, not '5'."),
        ("samplers: {x: {class: Rando}}", "2:23: samplers.x.class must be Random, RoundRobin,"),
        ("samplers: {Rando: {}}", "2:12: There is no sampler 'Rando'. Did you mean Random?"),
        ("samplers: {my sampler: {class: ARR}}", "2:12: 'my sampler' cannot be the name of a sampler. Use at most 40 letters, digits, - and _."),
        ("samplers: []", "2:11: samplers must be samplers by name, such as {Adaptive: {d: 2}}, not an empty list."),
        ("samplers: {Adaptive: {noise: TSTEE}}", "2:30: samplers.Adaptive.noise must be TSTE, STE, CKL, GNMDS, SOE, PowerTSTE or Logistic, not 'TSTEE'. Did you mean TSTE?"),
        ("samplers: {ARR: {module: STE, module__alpha: 2}}", "2:31: samplers.ARR.module__alpha belongs to the noise model TSTE, and this sampler uses STE. Remove one of them."),
        ("samplers: {Adaptive: {k: 2, alpha: 1}}", "2:23: samplers.Adaptive has both k and alpha, which are the same parameter of two forms of t-STE. Keep one of them."),
        ("samplers: {ARR: {module: STE, noise: CKL}}", "2:31: noise and module are two names of one argument. Keep module."),
        ("samplers: {Validation: {queries: [[0, 1, 1]]}}", "2:35: samplers.Validation.queries, item 1 names one target twice; a query needs three different ones. Change one of the three."),
        ("samplers: {Random: {targets: [0, 1]}}", "2:30: samplers.Random.targets must be a list of at least three targets, counted from 0, not a list."),
        ("sampling: {common: {dd: 3}}", "2:21: sampling.common has no key 'dd'."),
        ("sampling: {probs: {Adaptive: 99.5}}", "2:30: The probability of Adaptive must be a whole percentage from 0 to 100, not '99.5'."),
        ("sampling: {probs: {Adaptive: 80}}", "2:19: The values in sampling.probs should add up to 100; here they add up to 80. Change them so that their sum is 100."),
        ("sampling: {probs: {Adaptiv: 100}}", "2:20: There is no sampler 'Adaptiv'. Did you mean Adaptive?"),
        ("sampling: {samplers_per_user: some}", "2:31: sampling.samplers_per_user must be 0 (a sampler is drawn for every query) or the number of samplers of each participant, not 'some'."),
        ("sampling: {samplers_per_user: -1}", "2:31: sampling.samplers_per_user must be 0 (a sampler is drawn for every query) or the number of samplers of each participant, not '-1'."),
        ("sampling: {samplers_per_user: 2}", "2:31: samplers_per_user is 2, but there is only 1 sampler. Write at most that number, or 0 to draw a sampler for every query."),
        ("samplers: {A: {class: Random}, B: {class: Random}}\nsampling: {samplers_per_user: 3}", "3:31: samplers_per_user is 3, but there are only 2 samplers."),
        ("sampling: {race: 20%}", "2:18: A race needs at least two samplers. Name another, or remove race."),
        ("samplers: {A: {class: Random}, B: {class: Random}}\nsampling: {race: 60%}", "3:18: More than half of the trials would be held out to compare samplers. Write at most 50%."),
        ("samplers: {A: {class: Random}, B: {class: Random}}\nsampling: {race: 20%, probs: {A: 80, B: 20}}", "3:30: In a race all samplers get as many participants, but sampling.probs gives them different shares. Remove probs."),
        ("samplers: {A: {class: Random}, B: {class: Random}}\nsampling: {race: 20%, samplers_per_user: 2}", "3:42: In a race each participant gets one sampler. Remove samplers_per_user."),
        ("samplers: {A: {class: Random}, B: {class: Random}}\nsampling: {race: 20%, details: {1: {sampler: A}}}", "3:32: In a race each participant gets one sampler, so that none can be fixed for a trial. Remove details."),
        ("samplers: {A: {class: Random}, B: {class: Random}}\nsampling: {race: 20%}\ngroups: {x: {samplers: [A]}, y: {}}", "4:24: In a race the samplers are drawn for all participants alike. Remove samplers from the groups."),
        ("samplers: {A: {class: Random}, B: {class: Random, test: true}}\nsampling: {race: 20%}", "2:57: B is a test sampler, whose answers are never fitted; it cannot take part in a race. Remove test, or race."),
        ("samplers: {Adaptive: {}}\nsampling: {common: {ridge: 0}}", "3:28: sampling.common.ridge must be a number above 0, not '0'."),
        ("sampling: {common: {ridge: 0}}", "2:28: sampling.common.ridge must be a number above 0, not '0'."),
        ("samplers: {Adaptive: {ridge: 0}}", "2:30: samplers.Adaptive.ridge must be a number above 0, not '0'."),
        ("sampling: {details: {1: {query: [0, 1, 2]}}}", "2:25: sampling.details.1 needs sampler."),
        ("sampling: {details: {0: {sampler: Adaptive}}}", "2:22: sampling.details: a key must be a whole number of at least 1, not '0'."),
        ("sampling: {details: {1: {sampler: Adaptive, query: [0, 1, 3]}}}", "2:59: sampling.details.1.query, item 3 must be a target from 0 to 2 (there are 3, counted from 0), not '3'."),
        ("page: {background: #fff\n}", "2:8: warning: background: has no value, so the background is white."),
        ("page: {fullscreen: always}", "2:20: page.fullscreen must be off or optional, not 'always'."),
        ("page: {stimulus_size: 0px}", "2:23: page.stimulus_size must be a size such as 320px, or fill, not '0px'."),
        ("page: {keys: [f, F]}", "2:14: page.keys has the same key for left and right. Choose two different keys."),
        ("page: {keys: [f]}", "2:14: page.keys must be two keys, for left and right, such as [ArrowLeft, ArrowRight], not a list."),
        ("page: {language: english language}", "2:18: page.language must be a language code such as en, de or pt-BR, not 'english language'."),
        ("page: {min_rt_ms: 50}", "2:19: page.min_rt_ms must be a whole number of milliseconds from 100 to 60,000, not '50'."),
        ("page: {devices: []}", "2:17: page.devices must be a list of at least 1, not an empty list."),
        ("page: {min_viewport: 800}", "2:22: page.min_viewport must be a width and a height in pixels, such as [800, 600], not '800'."),
        ("page: {min_viewport: [800, tall]}", "2:28: page.min_viewport, item 2 must be a whole number of pixels from 1 to 10,000, not 'tall'."),
        ("page: {strings: {begn: Go}}", "2:18: The page has no text called 'begn'. Did you mean begin?"),
        ("page: {strings: {farewell: Go}}", "2:18: The page has no text called 'farewell'. The manual of the participant page lists their names."),
        ("page: {strings: {page_of: '{page}/{page_count}'}}", "2:27: warning: The text page_of contains the unknown field {page_count}, which participants will see literally. Its fields are {page} and {pages}."),
        ("page: {strings: {begin: 'Go {you}'}}", "2:25: warning: The text begin contains the unknown field {you}, which participants will see literally. It has no fields."),
        ("consent: {decline_url: https://x.org}", "2:10: consent needs text."),
        ("practice: {queries: [[0, 1, 2, 0]]}", "2:22: practice.queries, item 1 says that neither of its two comparisons is nearer. Write 1 or 2 last."),
        ("comprehension: {questions: [{text: a, options: [b, c], answer: d}]}", "2:64: comprehension.questions, item 1.answer must be one of the options, not 'd'."),
        ("questions: [{name: a, text: b, type: choice}]", "2:13: questions, item 1 is a choice without options. Add options: [first, second]."),
        ("questions: [{name: a, text: b}, {name: a, text: c}]", "2:40: Two questions have the name 'a'. Each name becomes a column: give each question its own name."),
        ("checks: {catch: 1}", "2:17: checks.catch is 1, which could mean 1% or 100%. Write 1% or 100%."),
        ("checks: {catch: 60%, repeat: 50%}", "2:9: The checks are 55 of 50 trials. Two checks never follow each other: they can be at most half of the trials."),
        ("stopping: {participants: 0}", "2:26: stopping.participants must be a whole number of at least 1, not '0'."),
        ("stopping: {errors_above: 1}", "2:26: stopping.errors_above is 1, which could mean 1% or 100%. Write 1% or 100%."),
        ("stopping: {at: 2030-01-01}\nrecruitment: {opens_at: 2030-01-01 08:00}", "2:12: stopping.at is not after recruitment.opens_at, so nobody could take part. Write a later time, or remove one of them."),
        ("resume: {abandoned_after: 3}", "2:27: resume.abandoned_after must be a length of time with its unit, such as 30s, 15min or 2h, not '3'."),
        ("resume: {abandoned_after: 10s}", "2:27: resume.abandoned_after must be at least 1min, not '10s'."),
        ("groups: {a: {participants: 3}, b: {}}", "2:32: Some groups have a number of participants, and b has none. Give every group participants:, or none; then all grow together."),
        ("payment: {reward: 1.505}", "2:19: payment.reward must be an amount with at most two digits behind the point, from 0.01 to 10000, such as 0.50, not '1.505'."),
        ("payment: {currency: pounds}", "2:21: payment.currency must be three capital letters, such as GBP, USD or EUR, not 'pounds'."),
        ("payment: {bonus: [{answers: 3}]}", "2:19: payment.bonus, item 1 needs amount."),
        ("payment: {bonus: [{amount: 1, if: 'answers > 3'}]}", "2:31: payment.bonus, item 1 has no key 'if'. Known there are amount, answers,"),
        ("payment: {bonus: [{amount: 1, catch_accuracy: 90%}]}", "2:31: The bonus depends on catch trials, and checks.catch asks for none. Write checks: {catch: 5%}, or remove it."),
        ("payment: {bonus: [{amount: 1, answers: 51}]}", "2:31: Nobody gives 51 answers: html.max_queries is 50. Write a smaller number."),
        ("payment: {bonus: [{amount: 1, at_most: 5}]}", "2:31: at_most limits a bonus for each answer, and this one is paid once. Write for_each_answer_above, or remove it."),
        ("payment: {screened_out: 0.20}", "2:11: payment.screened_out is for those who fail the checks, and nobody is screened out. Write checks: {catch: 5%, on_failure: screen_out}, or remove it."),
        ("samplers: {Validation: {n_queries: 3}}\nrecruitment: {repeats: 2}", "3:15: Whoever came again would be asked the same fixed queries: Validation is the only sampler. Add another sampler, or remove repeats."),
        ("stopping: {at: tomorrow}", "2:16: stopping.at must be a date and time such as 2027-01-31 18:00 (UTC), not 'tomorrow'."),
        ("recruitment: {platform: mechanical}", "2:25: recruitment.platform must be link, prolific, connect, sona or mturk, not 'mechanical'."),
        ("recruitment: {platform: prolific, completion_code: C7, prolific: {minutes: 1, places: 1, screen_out_places: 2}}", "2:90: Nobody could be paid for being screened out without a code and an amount."),
        ("recruitment: {platform: prolific, completion_code: C7, prolific: {minutes: 0, places: 1}}", "2:76: recruitment.prolific.minutes must be a whole number from 1 to 1,000, not '0'."),
        ("recruitment: {prolific: {minutes: 1, places: 1}}", "2:15: warning: recruitment.prolific is not used: the platform is link."),
        ("recruitment: {platform: sona}", "2:25: Recruitment from SONA needs its study's settings."),
        ("recruitment: {platform: connect}", "2:25: Recruitment from Connect needs its project."),
        ("recruitment: {platform: prolific}", "2:25: warning: Participants from Prolific get no completion code."),
        ("recruitment: {sona: {school: a, experiment_id: 1, credit_token: a1b2c3d4}}", "2:15: warning: recruitment.sona is not used: the platform is link."),
        ("recruitment: {completion_code: YOUR_CODE}", "2:32: recruitment.completion_code is still the example 'YOUR_CODE'. Copy the code from the platform."),
        ("recruitment: {redirect: 'https://a.org/?p={{%PROLIFIC_PID%}}'}", "2:25: recruitment.redirect still contains a placeholder: "),
        ("recruitment: {redirect: 'https://a.org/?p=%SURVEY_CODE%'}", "2:25: recruitment.redirect still contains a placeholder: "),
        ("recruitment: {redirect: 'https://a.org/?p={puidd}'}", "2:25: recruitment.redirect has the field {puidd}, which nothing fills in. Did you mean puid?"),
        ("recruitment: {redirect: 'javascript:alert(1)'}", "2:25: recruitment.redirect must be a web address that begins with https://, not 'javascript:alert(1)'."),
        ("recruitment: {redirect: 'https://app.prolific.co/x'}", "2:25: warning: Links to app.prolific.co no longer work. Write app.prolific.com."),
        ("seed: " + "9" * 5000, "2:7: seed must be a whole number from 0 to 9,007,199,254,740,991, not '999"),
        ("seed: .nan", "2:7: seed must be a whole number from 0 to 9,007,199,254,740,991, not '.nan'."),
        ("seed: 1\nseed: 2", "3:1: 'seed' is defined twice here; the first definition is on line 2. Keep one of them."),
        ("title: a\nhtml: {title: b}", "2:1: There is another title under html, on line 3. Keep one of them."),
        ("seed: !!python/name:os.system 5", "2:7: The tag '!!python/name:os.system' has no meaning in a spec."),
        ("seed: *nowhere", "2:7: *nowhere refers to an anchor that is not defined above it."),
        ("? [a, b]\n: c", "2:3: A key must be a word, not a list. Put text with brackets or braces in quotes."),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_at_its_place(text: str, sentence: str):
    said = _said(THREE + text)
    assert [one[: len(sentence)] for one in said] == [sentence] or sentence in said, said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "1:1: The file is empty."),
        ("# only a comment\n", "1:1: The file is empty."),
        ("- a\n- b", "1:1: The file is a list; a spec is keys with values."),
        ("just words", "1:1: The file is a text; a spec is keys with values."),
        ("targets: []", "1:1: There are no targets."),
        ("targets: 2", "1:10: targets must be a list of targets, or their number from 3 to 100,000, not '2'."),
        ("targets: 1000000000", "1:10: targets must be a list of targets, or their number from 3 to 100,000, not '1000000000'."),
        ("targets: [a, b]", "1:10: There are 2 targets; a triplet needs at least three."),
        ("targets: [a, b: c, d]", "1:14: targets, item 2 reads as a key and a value. Put quotes around text that contains a colon and a space."),
        ("targets:\n- a\n-\n- c", "3:2: targets, item 2 is empty."),
        ("targets: [a, b, a]", "1:17: warning: The target 'a' is listed twice: as number 0 and 2, counted from 0."),
        ("targets: [a, b, <script>x</script>]", "1:17: warning: The target '<script>x</script>' contains active HTML, which is removed."),
        ("targets: [a, b, c", "2:1: The bracket opened on line 1 is not closed here."),
        ("title: a: b", "1:9: There is a second colon here. Put quotes around text that contains a colon and a space."),
        ("title: 'a", "1:10: A quotation mark opened on line 1 is not closed, or contains an unknown \\ code."),
        ("title: @a", "1:8: Text cannot begin with '@'. Put quotes around it."),
        ("a: 1\n---\nb: 2", "2:1: A second document begins here; a spec is one document."),
        ("title: a\x00b", "1:9: There is a character here that is not allowed in text (code 0)."),
        (b"title: caf\xe9", "1:11: The byte 0xe9 here is not UTF-8; the file may be saved as Latin-1 or Windows-1252. Save it as UTF-8."),
        ("title: a".encode("utf-16"), "1:1: The file is saved as UTF-16. Save it as UTF-8."),
        ("title: a\ntargets: [a, b, c]\nseed: 1".encode("utf-16-le"), "1:1: The file is saved as UTF-16. Save it as UTF-8."),
        (b"PK\x03\x04....", "1:1: This is a ZIP (or a Word or Excel file), not a spec. Upload the YAML file here."),
        ("%A\n" * 9, "1:1: The file has lines that begin with %."),
    ],
)  # fmt: skip
def test_what_is_no_spec_at_all_is_said_in_a_sentence(text: str | bytes, sentence: str):
    assert any(one.startswith(sentence) for one in _said(text)), _said(text)


def test_tabs_are_all_found_and_do_not_hide_other_mistakes():
    text = "targets: [a, b, c]\nhtml:\n\tmax_queries: many\n\ttitle: x\npage:\n\tlanguage: en\n"
    tab = "The line is indented with a tab. YAML requires spaces: replace the tab with two spaces."
    assert _said(text) == [
        f"3:1: {tab}",
        "3:16: html.max_queries must be a whole number, not 'many'.",
        f"4:1: {tab}",
        f"6:1: {tab}",
    ]


def test_every_wrong_item_of_a_list_is_named():
    said = _said("targets: 5\nsamplers: {Validation: {queries: [[0, 1, 9], [8, 1, 2], [0, 1]]}}")
    assert [one.split(" must")[0] for one in said] == [
        "2:42: samplers.Validation.queries, item 1, item 3",
        "2:47: samplers.Validation.queries, item 2, item 1",
        "2:57: samplers.Validation.queries, item 3",
    ]


def test_a_thousand_mistakes_are_counted_and_the_first_are_shown():
    problems = check("targets: [" + "[], " * 1000 + "a, b, c]")
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].message == f"There are {1000 - MAX_PROBLEMS} more problems."


def test_warnings_never_hide_a_mistake():
    assert "seed must be" in "".join(_said("targets: [" + "a, " * 1000 + "b, c]\nseed: x"))


def test_places_are_the_same_without_the_fast_parser(monkeypatch: pytest.MonkeyPatch):
    fast = check(TEN_MISTAKES)
    monkeypatch.delattr("yaml.CSafeLoader")
    assert check(TEN_MISTAKES) == fast


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("stopping: {per: 500}", "2:12: warning: stopping.per has no effect without stopping.accuracy_gain_below. Write for example accuracy_gain_below: 0.5%, or remove per."),
        ("stopping: {accuracy_gain_below: 0%}", "2:33: stopping.accuracy_gain_below is 0 %, and further answers always bring a little. Write a share above zero, such as 0.5%."),
        ("html: {max_queries: -3}", "2:21: html.max_queries is -3, and nobody can give fewer answers than none. Write how many answers each participant gives, or 0 for as many as they like."),
        ("html: {max_queries: -2}", "2:21: html.max_queries is -2, and nobody can give fewer answers than none. Write how many answers each participant gives, or 0 for as many as they like."),
        ("samplers: {Random: {}}\nstopping: {accuracy_gain_below: 2%}", "3:12: No sampler of this experiment fits a map while it runs, so that its accuracy closes nothing. Add Adaptive to samplers, or remove stopping.accuracy_gain_below."),
        ("html: {query_params: [puid, group]}", "2:8: html.query_params does not work yet: parameters in the page's address would not be passed to queries. Remove html.query_params."),
        ("html: {query_params: [puid]}", "2:8: warning: html.query_params has its default value, and no other value works yet. Remove html.query_params."),
        ("n: 3", "2:1: warning: n is a key that Salmon 1 adds to the files it returns; it has no effect. Remove n."),
        ("samplers: {ARR: {optimizer__lr: 0.1}}", "2:18: warning: samplers.ARR.optimizer__lr is accepted in files of Salmon 1 and has no effect. Remove optimizer__lr."),
    ],
)  # fmt: skip
def test_a_key_that_nothing_acts_on_is_refused_or_at_least_said(text: str, sentence: str):
    assert _said(THREE + text) == [sentence]


def test_a_stored_file_with_a_key_that_is_refused_today_opens_with_a_warning():
    parsed = parse_spec(
        THREE + "html: {query_params: [puid, group]}\nstopping: {accuracy_gain_below: 0%}\n", stored=True
    )
    assert parsed.spec.html.query_params == ("puid", "group")
    assert {(problem.path, problem.warning) for problem in parsed.warnings} == {
        ("html.query_params", True),
        ("stopping.accuracy_gain_below", True),
    }


@pytest.mark.parametrize("count", [0, -1])
def test_participants_may_answer_as_many_queries_as_they_like(count: int):
    assert parse_spec(THREE + f"html: {{max_queries: {count}}}\n").spec.html.max_queries == count


def test_a_stored_file_with_fewer_answers_than_none_opens_with_a_warning():
    parsed = parse_spec(THREE + "html: {max_queries: -3}\n", stored=True)
    assert parsed.spec.html.max_queries == -3
    assert [(problem.path, problem.warning) for problem in parsed.warnings] == [("html.max_queries", True)]


def test_what_python_writes_as_ascii_only_json_is_a_spec_and_keeps_its_columns():
    targets = ("\U0001f600", "\\\U0001f600", "b")
    written = json.dumps({"targets": targets, "bogus": 1})
    assert "\\ud83d\\ude00" in written
    assert parse_spec(json.dumps({"targets": targets})).spec.targets == targets
    (problem,) = check(written)
    assert (problem.path, problem.column) == ("bogus", written.index('"bogus"') + 1)
