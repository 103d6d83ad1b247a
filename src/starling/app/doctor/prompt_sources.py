"""The sources of prompts: whether Langfuse answers, and which texts can't be used."""

from collections.abc import Sequence

from brain.registry.prompt_versions import usable
from starling.core.diagnostics import Diagnostic, ok, warning
from starling.core.errors import PromptSourceUnavailableError
from starling.core.prompts import PROMPT_NAMES, Offers
from starling.core.settings.schema import Settings
from starling.infra.prompts.factory import PromptFolder, remote_prompts

_KEPT = "Prompts keep their texts until `starling registry reload` can ask again."


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Return what the folder and Langfuse have, where they are configured."""
    findings = _refused(await PromptFolder(settings.prompts_dir).offers())
    remote = remote_prompts(settings)
    if remote is None:
        return findings
    try:
        offers = await remote.offers()
    except PromptSourceUnavailableError as error:
        return [*findings, Diagnostic("prompts", "problem", error.message, _KEPT)]
    found = ", ".join(name for name in PROMPT_NAMES if name in offers) or "none, so that local texts are used"
    said = f"Langfuse answers; with the label `{settings.langfuse_prompt_label}` it has: {found}."
    return [*findings, ok("prompts", said), *_refused(offers)]


def _refused(offers: Offers) -> list[Diagnostic]:
    _, refused = usable(offers)
    remedy = "Correct the text; the prompt keeps the former one."
    return [warning(f"prompt {name}", reason, remedy) for name, reason in refused.items()]
