"""Colours as style sheets write them."""

import re

_NAMED = """
aliceblue antiquewhite aqua aquamarine azure beige bisque black blanchedalmond blue
blueviolet brown burlywood cadetblue chartreuse chocolate coral cornflowerblue cornsilk crimson cyan darkblue
darkcyan darkgoldenrod darkgray darkgreen darkgrey darkkhaki darkmagenta darkolivegreen darkorange darkorchid
darkred darksalmon darkseagreen darkslateblue darkslategray darkslategrey darkturquoise darkviolet deeppink
deepskyblue dimgray dimgrey dodgerblue firebrick floralwhite forestgreen fuchsia gainsboro ghostwhite gold goldenrod
gray green greenyellow grey honeydew hotpink indianred indigo ivory khaki lavender lavenderblush lawngreen
lemonchiffon lightblue lightcoral lightcyan lightgoldenrodyellow lightgray lightgreen lightgrey lightpink
lightsalmon lightseagreen lightskyblue lightslategray lightslategrey lightsteelblue lightyellow lime limegreen linen
magenta maroon mediumaquamarine mediumblue mediumorchid mediumpurple mediumseagreen mediumslateblue
mediumspringgreen mediumturquoise mediumvioletred midnightblue mintcream mistyrose moccasin navajowhite navy oldlace
olive olivedrab orange orangered orchid palegoldenrod palegreen paleturquoise palevioletred papayawhip peachpuff
peru pink plum powderblue purple rebeccapurple red rosybrown royalblue saddlebrown salmon sandybrown seagreen
seashell sienna silver skyblue slateblue slategray slategrey snow springgreen steelblue tan teal thistle tomato
transparent turquoise violet wheat white whitesmoke yellow yellowgreen
"""
NAMED = frozenset(re.findall(r"[a-z]+", _NAMED))

_HEX = re.compile(r"#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})")
_PART = r"\s*[0-9]{1,3}(?:\.[0-9]{1,6})?(?:%|deg)?\s*"
_FUNCTION = re.compile(rf"(?:rgb|hsl)a?\({_PART}(?:[,/ ]{_PART}){{2,3}}\)")


def is_colour(text: str) -> bool:
    """Whether a style sheet would take this as a colour: a name, #rgb, #rrggbb, rgb(…) or hsl(…)."""
    return text.lower() in NAMED or bool(_HEX.fullmatch(text) or _FUNCTION.fullmatch(text.lower()))
