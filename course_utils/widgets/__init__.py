"""Views for playing: sliders and arrows that drive the function on the page.

`explore` binds controls to any function and shows what it returns. Every view also carries the
picture of its first state, so that a page without a running kernel shows that and not nothing.
"""

from course_utils.widgets.attention_grid import AttentionGrid
from course_utils.widgets.explorer import explore
from course_utils.widgets.head_view import HeadView
from course_utils.widgets.next_token import NextToken
from course_utils.widgets.token_strip import TokenStrip
from course_utils.widgets.vector_plane import VectorPlane

__all__ = ["AttentionGrid", "HeadView", "NextToken", "TokenStrip", "VectorPlane", "explore"]
