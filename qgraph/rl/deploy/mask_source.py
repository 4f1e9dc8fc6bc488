"""C for masks: which options of an action are valid, beside each observation."""

from __future__ import annotations

from collections.abc import Mapping

from qgraph.rl.head import Head

NAMES = (
    "mask_size",
    "mask_text",
    "mask_parameter",
    "mask_argument",
    "mask_checked",
    "no_action",
    "or_no_action",
    "mask_declared",
    "mask_needed",
    "mask_stored",
    "mask_read",
    "mask_meaning",
)
CHECKED = """\
    {{
        static const int32_t choices[{count}] = {{{choices}}};
        int32_t at = 0;

        for (int32_t c = 0; c < {count}; ++c) {{
            int32_t valid = 0;

            for (int32_t i = 0; i < choices[c]; ++i)
                valid += mask[at + i] != 0;
            if (valid == 0)
                return {NAME}_NO_ACTION;
            at += choices[c];
        }}
    }}
"""


def words_of_masks(name: str, head: Head | None, outputs: int) -> Mapping[str, str]:
    """Words of the templates; empty for a policy without masks."""
    if head is None or not head.masks:
        return dict.fromkeys(NAMES, "")
    upper, choices = name.upper(), head.choices or (outputs,)
    checked = CHECKED.format(NAME=upper, count=len(choices), choices=", ".join(map(str, choices)))
    stored = f"mask[count++ - {upper}_OBSERVATION_SIZE] = (uint8_t)(number != 0);"
    return {
        "mask_size": f"#define {upper}_MASK_SIZE {outputs} /* one for each option */\n",
        "mask_text": f"\n * mask: {upper}_MASK_SIZE bytes; 0 where an option is not valid.",
        "mask_parameter": " const uint8_t *mask,",
        "mask_argument": " mask,",
        "mask_checked": checked,
        "no_action": (
            f"\n    {upper}_NO_ACTION = 2, /* the mask leaves no valid option; the action stays */"
        ),
        "or_no_action": f", or {upper}_NO_ACTION",
        "mask_declared": f"static uint8_t mask[{upper}_MASK_SIZE];\n",
        "mask_needed": f" + {upper}_MASK_SIZE",
        "mask_stored": (
            f"if (count >= {upper}_OBSERVATION_SIZE)\n            {stored}\n"
            "        else\n            "
        ),
        "mask_read": ", then its mask",
        "mask_meaning": f"- Mask: {outputs} bytes of `uint8_t`, 0 where an option is not valid\n",
    }
