"""What the rules of axe find on a page, in light and dark, at a desk and on a phone."""

from importlib.resources import files

SIZES = {"desk": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}


def faults(page):
    """What axe finds serious or critical, as its rule and the place."""
    if not page.evaluate("'axe' in window"):
        script = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        page.evaluate(script)
    found = page.evaluate(
        """() => axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa',
             'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then((r) => r.violations)"""
    )
    return [
        (fault["id"], node["html"][:120])
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


def faults_anywhere(page):
    """The same in every size and scheme, with both named."""
    found = []
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # colours do not fade
            found += [(size, scheme, *fault) for fault in faults(page)]
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    return found
