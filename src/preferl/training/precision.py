"""In which precision products are computed; parameters always keep 32 bits."""

from typing import Literal

Precision = Literal["float32", "bfloat16"]


def fast_precision() -> Precision:
    """The lowest precision that this machine's processor or GPU has instructions for."""
    import torch  # here, so that settings load no torch

    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    has: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # not in old versions
    return "bfloat16" if has.get("avx512_bf16") or has.get("amx_bf16") else "float32"
