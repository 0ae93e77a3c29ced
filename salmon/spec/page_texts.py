"""The names of the texts that the participant page says by itself, and the fields in braces that each may hold.

They may be replaced under `page.strings`, so that a file can be checked where no page is. The words themselves, in
every language, belong to the page: `frontend/languages`.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

_FIELD = re.compile(r"\{(\w+)\}")

_PLAIN = """
title question thanks loading load_failed try_again go_on_without begin continue back copy copied welcome
welcome_open_end
welcome_pointer fullscreen resumed review consent agree disagree declined leave instructions practice
practice_start practice_right practice_wrong practice_done check screened_out check_failed failed_checks return_submission
withdraw withdraw_confirm withdrawn
ended questions required send
field_missing field_number head_name left_name right_name play pause listen_first skip finish_here enlarge too_fast time_up
still_there paused keys_off keys_on progress participant_id offline waiting saving saving_long copy_backup
save_incomplete credited your_code return submit elsewhere go_on_here device_desktop device_mobile way_out preview
server_trouble error_draft error_paused error_closed error_begun error_gap error_ended error_forged
error_full error_early error_again error_conflict error_store error_busy error_not_found error_link_unfilled error_link_wrong error_link_missing no_script
"""

_WITH_FIELDS = {
    "loading_files": ("done", "all"),
    "welcome_count": ("count",),
    "welcome_keys": ("left", "right"),
    "page_of": ("page", "pages"),
    "check_again": ("count",),
    "small_window": ("width", "height"),
}

#: Name of a text -> the fields in braces that it may hold.
PAGE_TEXTS: Mapping[str, tuple[str, ...]] = MappingProxyType({**dict.fromkeys(_PLAIN.split(), ()), **_WITH_FIELDS})


def unknown_fields(name: str, text: str) -> tuple[str, ...]:
    """Return the fields in braces of a text that stands in place of another, and that nothing fills in."""
    return tuple(field for field in _FIELD.findall(text) if field not in PAGE_TEXTS[name])
