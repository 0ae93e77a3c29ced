"""What the pages of the console show: one dataclass a template, whose fields are exactly the names it may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Tab = Literal["overview", "map", "targets", "participants", "exports", "settings"]


@dataclass(frozen=True)
class Frame:
    """What stands around every page: who is logged in, and what forms and requests of this session carry."""

    account: str
    role: str
    csrf: str


@dataclass(frozen=True)
class ExperimentHead:
    """What stands above every page of one experiment; `address` is the link for participants."""

    slug: str
    title: str
    state: str
    revision: int
    owner: str
    address: str


@dataclass(frozen=True)
class ExperimentLine:
    """One experiment in the list."""

    slug: str
    title: str
    state: str
    owner: str
    targets: int
    answers: int
    participants: int
    created_ms: int
    address: str


@dataclass(frozen=True)
class ExperimentsPage:
    """The experiments that somebody may see."""

    template = "console/experiments.html"
    frame: Frame
    experiments: tuple[ExperimentLine, ...]


@dataclass(frozen=True)
class LaunchPage:
    """The editor of a new experiment; `data` is what its script begins with."""

    template = "console/launch.html"
    frame: Frame
    data: dict[str, Any]


@dataclass(frozen=True)
class AccountPage:
    """One's own password and, for the owner, everybody's account."""

    template = "console/account.html"
    frame: Frame
    data: dict[str, Any]


@dataclass(frozen=True)
class _TabPage:
    frame: Frame
    experiment: ExperimentHead
    tab: Tab
    data: dict[str, Any]


@dataclass(frozen=True)
class OverviewPage(_TabPage):
    """The live dashboard of one experiment."""

    template = "console/overview.html"


@dataclass(frozen=True)
class MapPage(_TabPage):
    """The embedding, with the targets at their places."""

    template = "console/map.html"


@dataclass(frozen=True)
class TargetsPage(_TabPage):
    """All targets, with what looks odd about them."""

    template = "console/targets.html"


@dataclass(frozen=True)
class ParticipantsPage(_TabPage):
    """Who took part, how well, and whose answers are left out."""

    template = "console/participants.html"


@dataclass(frozen=True)
class ExportsPage(_TabPage):
    """Everything that can be taken home."""

    template = "console/exports.html"


@dataclass(frozen=True)
class SettingsPage(_TabPage):
    """The file of the experiment, its state, who shares it, and its end."""

    template = "console/settings.html"


TabPage = OverviewPage | MapPage | TargetsPage | ParticipantsPage | ExportsPage | SettingsPage
ConsolePage = ExperimentsPage | LaunchPage | AccountPage | TabPage

#: The page of each tab.
TABS: dict[Tab, type[TabPage]] = {
    "overview": OverviewPage,
    "map": MapPage,
    "targets": TargetsPage,
    "participants": ParticipantsPage,
    "exports": ExportsPage,
    "settings": SettingsPage,
}
